"""Tokenizers, incremental detokenisation and stop strings; chat templates are in `chat` and `chat_format`.

Never imports torch or transformers, and jinja2 only with the chat templates.
"""

from octavo.tokenizers.base import Tokenizer, TokenizerInfo
from octavo.tokenizers.load import load_tokenizer
from octavo.tokenizers.stop import StopStrings
from octavo.tokenizers.stream import TokenStream

__all__ = ["StopStrings", "TokenStream", "Tokenizer", "TokenizerInfo", "load_tokenizer"]
