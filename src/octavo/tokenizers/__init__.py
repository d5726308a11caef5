"""Tokenizers, chat templates, incremental detokenisation and stop strings. Never imports torch or transformers."""

from octavo.tokenizers.base import Tokenizer, TokenizerInfo
from octavo.tokenizers.load import load_tokenizer

__all__ = ["Tokenizer", "TokenizerInfo", "load_tokenizer"]
