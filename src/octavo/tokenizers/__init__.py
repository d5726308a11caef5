"""Tokenizers, chat templates, incremental detokenisation and stop strings. Never imports torch or transformers."""

from octavo.tokenizers.base import Tokenizer, TokenizerInfo
from octavo.tokenizers.load import load_tokenizer
from octavo.tokenizers.stop import StopStrings
from octavo.tokenizers.stream import TokenStream

__all__ = ["StopStrings", "TokenStream", "Tokenizer", "TokenizerInfo", "load_tokenizer"]
