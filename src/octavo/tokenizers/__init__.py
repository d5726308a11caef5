"""Tokenizers, chat templates, incremental detokenisation and stop strings. Never imports torch or transformers."""

from octavo.tokenizers.base import Tokenizer, TokenizerInfo
from octavo.tokenizers.chat import check_template, choose_template, render_chat
from octavo.tokenizers.chat_format import content_format, prepare_messages
from octavo.tokenizers.load import load_tokenizer
from octavo.tokenizers.stop import StopStrings
from octavo.tokenizers.stream import TokenStream

__all__ = [
    "StopStrings",
    "TokenStream",
    "Tokenizer",
    "TokenizerInfo",
    "check_template",
    "choose_template",
    "content_format",
    "load_tokenizer",
    "prepare_messages",
    "render_chat",
]
