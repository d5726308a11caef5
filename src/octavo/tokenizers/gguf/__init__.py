"""Tokenizers built from the metadata of a GGUF file."""

from octavo.tokenizers.gguf.build import build_tokenizer

__all__ = ["build_tokenizer"]
