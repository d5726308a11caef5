"""Grammars by xgrammar (https://github.com/mlc-ai/xgrammar), an extra: `pip install octavo[xgrammar]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import xgrammar
from numpy.typing import NDArray

from octavo.structured_output.backend import GrammarError, NewMatcher
from octavo.structured_output.schema_check import PLAIN, find_fault, read_schema
from octavo.structured_output.vocabulary import Vocabulary
from octavo.types.structured_outputs import StructuredOutputsParams

_CACHE_BYTES = 64 << 20


class XGrammarBackend:
    """`Backend` by xgrammar.

    Args:
        vocabulary: Read at the first compilation.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def compile(self, params: StructuredOutputsParams) -> NewMatcher:
        """See `Backend.compile`."""
        try:
            compiled = self._compiled(params)
        except (RuntimeError, ValueError) as error:
            words = " ".join(str(error).split())[:300]
            raise GrammarError(f"the {params.kind} cannot be held to: {words}") from None
        stops = list(self._vocabulary.eos_token_ids)
        return lambda: XGrammarMatcher(xgrammar.GrammarMatcher(compiled, override_stop_tokens=stops), stops)

    def _compiled(self, params: StructuredOutputsParams) -> Any:
        if params.kind == "json":
            return self._schema(read_schema(params.text), params)
        if params.kind == "json_object":
            return self._schema({"type": "object"}, params)
        if params.kind == "regex":
            return self._compiler.compile_regex(params.text)
        if params.kind == "choice":
            options = " | ".join(json.dumps(text, ensure_ascii=False) for text in params.choice or ())
            return self._compiler.compile_grammar(f"root ::= {options}")
        return self._compiler.compile_grammar(params.text)

    def _schema(self, schema: Any, params: StructuredOutputsParams) -> Any:
        fault = find_fault(schema, PLAIN)
        if fault is not None:
            raise GrammarError(f"the schema cannot be held to at {fault}")
        if params.whitespace_pattern is not None:
            raise GrammarError("xgrammar does not support whitespace_pattern")
        return self._compiler.compile_json_schema(
            json.dumps(schema),
            any_whitespace=not params.disable_any_whitespace,
            separators=(",", ":") if params.disable_any_whitespace else None,
            strict_mode=params.disable_additional_properties,
            max_whitespace_cnt=None if params.disable_any_whitespace else 40,
        )

    @cached_property
    def _compiler(self) -> Any:
        info = xgrammar.TokenizerInfo(
            self._vocabulary.pieces,
            vocab_size=self._vocabulary.size,
            stop_token_ids=list(self._vocabulary.eos_token_ids),
        )
        return xgrammar.GrammarCompiler(info, max_threads=1, cache_limit_bytes=_CACHE_BYTES)


class XGrammarMatcher:
    """`Matcher` by xgrammar's."""

    def __init__(self, matcher: Any, stops: Sequence[int]) -> None:
        self._matcher = matcher
        self._stops = frozenset(stops)

    def accept(self, token_ids: Sequence[int]) -> bool:
        """See `Matcher.accept`."""
        return all(map(self._matcher.accept_token, token_ids))

    def fill_bitmask(self, bits: NDArray[np.int32]) -> None:
        """See `Matcher.fill_bitmask`."""
        if not self._matcher.fill_next_token_bitmask(bits[None], 0):
            bits[:] = -1

    def rollback(self, count: int) -> None:
        """See `Matcher.rollback`."""
        if count:
            self._matcher.rollback(count)

    def is_terminated(self) -> bool:
        """See `Matcher.is_terminated`."""
        return bool(self._matcher.is_terminated()) or (self._matcher.is_completed() and not self._may_go_on())

    def forced_tokens(self) -> list[int]:
        """See `Matcher.forced_tokens`. What xgrammar calls a jump may be spelled with other tokens, so there are none."""
        return []

    def _may_go_on(self) -> bool:
        bits = np.zeros(self._num_words, np.int32)
        self.fill_bitmask(bits)
        allowed = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
        return not self._stops.issuperset(allowed.tolist())

    @cached_property
    def _num_words(self) -> int:
        return int(xgrammar.get_bitmask_shape(1, self._matcher.compiled_grammar.tokenizer_info.vocab_size)[1])
