"""Grammars by llguidance (https://github.com/guidance-ai/llguidance): an Earley parser over derivatives of regular expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import llguidance
import numpy as np
from llguidance.gbnf_to_lark import gbnf_to_lark
from numpy.typing import NDArray

from octavo.structured_output.backend import GrammarError, NewMatcher, UnsupportedGrammarError
from octavo.structured_output.lark import choice_grammar, structural_tag_grammar
from octavo.structured_output.schema_check import find_fault, read_schema
from octavo.structured_output.vocabulary import Vocabulary
from octavo.types.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# Between the parts of JSON: enough for pretty-printing, and not endless, or a warm model would never come to the point.
WHITESPACE = r"[\x20\x0A\x0D\x09]{0,40}"
_ERROR_LETTERS = 300
_SCHEMA = "structured_outputs.json"
_GBNF_RULE = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)


def limits() -> llguidance.LLParserLimits:
    """Resources of one grammar; at a million units of fuel compilation takes a few tens of milliseconds."""
    return llguidance.LLParserLimits(verbose_errors=False, max_lexer_states=100_000)


class GuidanceBackend:
    """`Backend` by llguidance.

    Args:
        vocabulary: Read at the first compilation.
        check: Tries a grammar where it can do no harm; raises GrammarError.
    """

    def __init__(self, vocabulary: Vocabulary, check: Callable[[str], None] = lambda grammar: None) -> None:
        self._vocabulary = vocabulary
        self._check = check

    def compile(self, params: StructuredOutputsParams) -> NewMatcher:
        """See `Backend.compile`."""
        try:
            matcher = self._compiled(params)
        except GrammarError:
            if params.kind == "json":
                _check_schema(params, definitions=True)  # names the place, which the library does not
            raise
        return lambda: GuidanceMatcher(matcher.deep_copy(), self._tokenizer.vocab_size)

    def _compiled(self, params: StructuredOutputsParams) -> llguidance.LLMatcher:
        grammar = grammar_text(params)
        self._check(grammar)
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits())
        if matcher.is_error():
            raise GrammarError(shown(params.kind, matcher.get_error()))
        return matcher

    @cached_property
    def _tokenizer(self) -> llguidance.LLTokenizer:
        wrapped = llguidance.TokenizerWrapper(_Spelling(self._vocabulary))
        return llguidance.LLTokenizer(wrapped, eos_token=list(self._vocabulary.eos_token_ids))


class _Spelling:
    """A vocabulary by the names that llguidance asks for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_token_ids[0]
        self.bos_token_id = None
        self.tokens = vocabulary.pieces
        self.special_token_ids = vocabulary.special_ids
        self._encode = vocabulary.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text.decode() if isinstance(text, bytes) else text)


class GuidanceMatcher:
    """`Matcher` by llguidance's."""

    def __init__(self, matcher: llguidance.LLMatcher, num_tokens: int) -> None:
        self._matcher = matcher
        self._words = (num_tokens + 31) // 32

    def accept(self, token_ids: Sequence[int]) -> bool:
        """See `Matcher.accept`."""
        return bool(self._matcher.consume_tokens(list(token_ids)))

    def fill_bitmask(self, bits: NDArray[np.int32]) -> None:
        """See `Matcher.fill_bitmask`."""
        bits[self._words :] = 0
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, 4 * self._words)
        if self._matcher.is_error():
            raise GrammarError(shown("the grammar", self._matcher.get_error()))

    def rollback(self, count: int) -> None:
        """See `Matcher.rollback`."""
        if count and not self._matcher.rollback(count):
            raise GrammarError(shown("the grammar", self._matcher.get_error()))

    def is_terminated(self) -> bool:
        """See `Matcher.is_terminated`."""
        return bool(self._matcher.is_stopped())

    def forced_tokens(self) -> list[int]:
        """See `Matcher.forced_tokens`."""
        return list(self._matcher.compute_ff_tokens())


def grammar_text(params: StructuredOutputsParams) -> str:
    """A constraint in llguidance's own form, which says nothing of a vocabulary.

    Raises:
        GrammarError: says what is wrong.
    """
    return _WRITERS[params.kind](params)


def _check_schema(params: StructuredOutputsParams, *, definitions: bool) -> Any:
    try:
        schema = read_schema(params.text)
    except ValueError as error:
        raise GrammarError(f"the schema {error}", param=_SCHEMA) from None
    fault = find_fault(schema, definitions=definitions)
    if fault is not None:
        raise UnsupportedGrammarError(f"the schema cannot be held to at {fault}", param=_SCHEMA)
    return schema


def _json(params: StructuredOutputsParams) -> str:
    schema = _check_schema(params, definitions=False)  # of definitions only what is used has to be known
    if schema is False:
        raise GrammarError("the schema admits nothing")
    return _schema_grammar({} if schema is True else schema, params)


def _schema_grammar(schema: Any, params: StructuredOutputsParams) -> str:
    if params.disable_additional_properties:
        schema = closed(schema)
    options: JsonCompileOptions = {
        "whitespace_pattern": params.whitespace_pattern or WHITESPACE,
        "lenient": False,
    }
    if params.disable_any_whitespace:
        options = {"whitespace_flexible": False, "lenient": False}
    text = json.dumps(schema, ensure_ascii=False)
    return str(llguidance.LLMatcher.grammar_from_json_schema(text, overrides=options))


def closed(schema: Any) -> Any:
    """The schema with every object that names its properties closed to others."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {
        word: value if word in ("enum", "const", "default", "examples") else closed(value)
        for word, value in schema.items()
    }
    is_object = schema.get("type") == "object" or isinstance(schema.get("properties"), dict)
    return {"additionalProperties": False} | inner if is_object else inner


def _regex(params: StructuredOutputsParams) -> str:
    return str(llguidance.LLMatcher.grammar_from_regex(params.text))


def _choice(params: StructuredOutputsParams) -> str:
    return _lark(choice_grammar(params.choice or ()))


def _grammar(params: StructuredOutputsParams) -> str:
    try:
        return _lark(gbnf_to_lark(params.text) if _GBNF_RULE.search(params.text) else params.text)
    except Exception as error:  # its reader of GBNF raises bare exceptions, and recurses
        raise GrammarError(shown("the grammar", str(error) or type(error).__name__)) from None


def _json_object(params: StructuredOutputsParams) -> str:
    return _schema_grammar({"type": "object"}, params)


def _structural_tag(params: StructuredOutputsParams) -> str:
    try:
        tag = json.loads(params.text)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"structural_tag is not JSON: {error}") from None
    return _lark(structural_tag_grammar(tag))


def _lark(text: str) -> str:
    return str(llguidance.LLMatcher.grammar_from_lark(text))


_WRITERS: dict[str, Callable[[StructuredOutputsParams], str]] = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _json_object,
    "structural_tag": _structural_tag,
}


def shown(what: str, error: str) -> str:
    """An error of llguidance, without the dump of its state."""
    words = " ".join(error.split("<state>")[0].split())
    return f"{what} cannot be held to: {words[:_ERROR_LETTERS]}"
