"""Loading a tokenizer from a checkpoint, whatever its format."""

from __future__ import annotations

from pathlib import Path

from octavo.lib.errors import UnsupportedModelError
from octavo.lib.gguf import GGUFFile
from octavo.tokenizers.base import Tokenizer
from octavo.tokenizers.gguf import build_tokenizer
from octavo.tokenizers.hf import load_hf_tokenizer


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a checkpoint.

    Args:
        path: A Hugging Face folder, its `tokenizer.json`, or a GGUF file.

    Raises:
        UnsupportedModelError: The tokenizer is of a kind that is not known; names it.
        CheckpointError: A file is damaged or missing.
    """
    path = Path(path)
    if path.is_dir():
        return load_hf_tokenizer(path)
    if path.name == "tokenizer.json":
        return load_hf_tokenizer(path.parent)
    if path.suffix == ".gguf":
        with GGUFFile.open(path) as gguf:
            return build_tokenizer(gguf)
    raise UnsupportedModelError("must be a folder with a tokenizer.json, or a .gguf file", file=str(path))
