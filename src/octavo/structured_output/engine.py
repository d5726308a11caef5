"""All about grammars that a worker needs: one vocabulary, one compiler, matchers for answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from octavo.config import StructuredOutputsConfig
from octavo.lib.errors import NotSupportedError
from octavo.structured_output.backend import Backend, Matcher, NewMatcher
from octavo.structured_output.compiler import GrammarCompiler
from octavo.structured_output.reasoning import AfterReasoning
from octavo.structured_output.select import ChosenBackend
from octavo.structured_output.vocabulary import Vocabulary
from octavo.types.structured_outputs import StructuredOutputsParams


class GrammarEngine:
    """Compiles constraints for one model.

    Args:
        config: How.
        read_vocabulary: Called once, in a thread, when the first constraint comes.
    """

    def __init__(self, config: StructuredOutputsConfig, read_vocabulary: Callable[[], Vocabulary]) -> None:
        self._config = config
        self._read_vocabulary = read_vocabulary
        self._compiler = GrammarCompiler(self._make_backend)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The model's tokens."""
        return self._read_vocabulary()

    def prepare(self, params: StructuredOutputsParams) -> Future[NewMatcher]:
        """Compile a constraint, unless that was done before; see `GrammarCompiler.submit`."""
        return self._compiler.submit(self._with_defaults(params))

    def matcher(self, params: StructuredOutputsParams, prompt: Sequence[int]) -> Matcher:
        """A matcher for an answer to `prompt`.

        Raises:
            GrammarError: the constraint cannot be held to.
        """
        inner = self._compiler.matcher(self._with_defaults(params))
        marks = self._reasoning_marks
        if marks is None or self._config.enable_in_reasoning:
            return inner
        return AfterReasoning(inner, marks, prompt, self.vocabulary.eos_token_ids)

    def _with_defaults(self, params: StructuredOutputsParams) -> StructuredOutputsParams:
        """What the server's settings add to a request's."""
        config = self._config
        spaced = params.disable_any_whitespace or (
            config.disable_any_whitespace and params.whitespace_pattern is None
        )
        return msgspec.structs.replace(
            params,
            disable_any_whitespace=spaced,
            disable_additional_properties=params.disable_additional_properties
            or config.disable_additional_properties,
        )

    def may_end(self, bits: NDArray[np.int32]) -> bool:
        """Whether a mask lets the answer end."""
        return any(bits[token // 32] >> (token % 32) & 1 for token in self.vocabulary.eos_token_ids)

    def close(self) -> None:
        """Free everything."""
        self._compiler.close()

    @cached_property
    def _reasoning_marks(self) -> tuple[list[int], list[int]] | None:
        texts = self._config.reasoning_marks
        if texts is None:
            return None
        begin, end = (self.vocabulary.tokenizer.encode(text, add_special_tokens=False) for text in texts)
        return begin, end

    def _make_backend(self) -> Backend:
        if not self.vocabulary.eos_token_ids:
            raise NotSupportedError(
                "structured outputs need a model with a token that ends an answer", param="structured_outputs"
            )
        return ChosenBackend(self._config, self.vocabulary)
