"""The tokenizer that prompts are made with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.tokenizers import Tokenizer


def load_model_tokenizer(path: str | None, model: str) -> Tokenizer | None:
    """From `path`, else from `model` if that is a file or folder, else the embedded model's for its name.

    Raises:
        CheckpointError, ConfigError: there is one, and it cannot be read.
    """
    from octavo.engine.default_model import SERVED_NAME, default_model_path
    from octavo.tokenizers import load_tokenizer

    if path is not None:
        return load_tokenizer(path)
    if Path(model).exists():
        return load_tokenizer(model)
    return load_tokenizer(default_model_path()) if model == SERVED_NAME else None
