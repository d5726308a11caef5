"""Finds the family of an architecture without importing every family, and has no list to edit.

The keys of the literal dictionaries `ARCHITECTURES`, `GGUF` and `TINY` of each file in `families/` are read by
`ast`; only the one file that is needed is imported.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from octavo.lib.errors import UnsupportedModelError
from octavo.models.hf_config import HFConfig
from octavo.models.spec import DecoderSpec
from octavo.models.stored_pooling import causal_name

_FOLDER = Path(__file__).with_name("families")
TABLES = ("ARCHITECTURES", "GGUF", "TINY")


def build_spec(hf: HFConfig) -> DecoderSpec:
    """The spec of a configuration.

    Raises:
        UnsupportedModelError: the architecture, or one of its settings, is not known.
        CheckpointError: a setting is missing or of the wrong type.
    """
    table = "GGUF" if hf.is_gguf else "ARCHITECTURES"
    names = discover(table)
    architecture = hf.architecture if hf.is_gguf else causal_name(hf.architecture)
    if architecture not in names:
        raise UnsupportedModelError(
            f"architecture {hf.architecture!r} is not supported; supported are {', '.join(sorted(names))}",
            file=hf.origin,
        )
    family: Callable[[HFConfig], DecoderSpec] = getattr(_family(names[architecture]), table)[architecture]
    spec = family(hf)
    _ = hf.quantization, hf.pooling  # read, or refused, as all settings must be
    hf.finish()
    return spec


def gguf_naming(architecture: str) -> dict[str, bool]:
    """What is particular about a GGUF architecture's tensors: the arguments of `octavo.weights.names.GGUFNaming`."""
    module = _family(discover("GGUF")[architecture])
    naming: dict[str, dict[str, bool]] = getattr(module, "GGUF_NAMING", {})
    return naming.get(architecture, {})


def hf_renames(architecture: str) -> tuple[tuple[str, str], ...]:
    """Substitutions (regular expression, replacement) that make a Hugging Face checkpoint's names those of the layers."""
    name = causal_name(architecture)
    module = _family(discover("ARCHITECTURES")[name])
    renames: dict[str, tuple[tuple[str, str], ...]] = getattr(module, "HF_RENAMES", {})
    return renames.get(name, ())


@functools.cache
def discover(table: str) -> dict[str, str]:
    """Keys of one of `TABLES` over all family files, each with its file's module name."""
    return {key: file.stem for file in family_files() for key in literal_keys(file, table)}


def _family(name: str) -> ModuleType:
    return importlib.import_module(f"octavo.models.families.{name}")


def family_files() -> list[Path]:
    return sorted(file for file in _FOLDER.glob("*.py") if file.stem != "__init__")


def literal_keys(file: Path, table: str) -> list[str]:
    """The string keys of the dictionary that `file` assigns to `table`; none where it does not."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        value = getattr(node, "value", None)
        if table in names and isinstance(value, ast.Dict):
            return [
                key.value
                for key in value.keys
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
    return []
