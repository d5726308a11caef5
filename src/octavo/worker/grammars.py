"""Grammars of the persistent batch: masks before tokens are drawn, and what follows from a drawn token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.lib.errors import NotSupportedError, OctavoError
from octavo.sampling.edits import TokenMasks
from octavo.structured_output.backend import Matcher
from octavo.types.step import NewRequest, RequestStep
from octavo.types.structured_outputs import StructuredOutputsParams

# Forced tokens taken at a time: a prompt's chunk that nobody has to wait long for.
MAX_FORCED = 64


@dataclass(slots=True)
class _Constrained:
    """A slot whose answer has a grammar."""

    matcher: Matcher | None
    """None: `error` says why there is none."""
    stop_token_ids: NDArray[np.int64]
    """End the answer wherever the grammar lets it end."""
    jumps: bool
    """Whether tokens without a choice need no run of the model: nobody wants to see their log probabilities."""
    error: OctavoError | None = None


@dataclass(slots=True)
class MaskedRows:
    """Masks for some rows of logits, and which of them have none because of an error."""

    mask: TokenMasks
    errors: dict[int, OctavoError] = field(default_factory=dict)
    """By row of the logits."""


class Matchers(Protocol):
    """Where matchers come from; see `octavo.structured_output.engine.GrammarEngine`."""

    def matcher(self, params: StructuredOutputsParams, prompt: Sequence[int]) -> Matcher:
        """A matcher for an answer to `prompt`. Raises: GrammarError."""

    def may_end(self, bits: NDArray[np.int32]) -> bool:
        """Whether a mask lets the answer end."""


class _NoMatchers:
    """For runners without a vocabulary."""

    def matcher(self, params: StructuredOutputsParams, prompt: Sequence[int]) -> Matcher:
        raise NotSupportedError("this engine has no tokenizer to hold answers to a grammar with")

    def may_end(self, bits: NDArray[np.int32]) -> bool:
        return True


NO_GRAMMARS: Matchers = _NoMatchers()


class GrammarTable:
    """Matchers by slot.

    Args:
        engine: Makes matchers.
        vocab_size: Columns of the logits.
    """

    def __init__(self, engine: Matchers, vocab_size: int) -> None:
        self._engine = engine
        self._vocab_size = vocab_size
        self._rows: dict[int, _Constrained] = {}

    def add(self, slot: int, request: NewRequest) -> None:
        """Take in a request, if it has a grammar, as far as its answer has come."""
        if request.sampling.structured_outputs is None:
            return
        prompt = request.token_ids[: request.num_prompt_tokens]
        output = request.token_ids[request.num_prompt_tokens :]
        stops = np.array(request.stop_token_ids, np.int64)
        row = _Constrained(None, stops[stops < self._vocab_size], request.sampling.logprobs is None)
        try:
            row.matcher = self._engine.matcher(request.sampling.structured_outputs, prompt)
            if not row.matcher.accept(output):
                row.matcher, row.error = None, OctavoError("the answer so far does not fit its grammar")
        except OctavoError as error:
            row.error = error
        self._rows[slot] = row

    def remove(self, slot: int) -> None:
        """Drop a slot's matcher, if there is one."""
        self._rows.pop(slot, None)

    def mask(self, slots: NDArray[np.int64]) -> MaskedRows | None:
        """Masks of the rows of `slots` that have grammars; None: there are no such rows."""
        found = [(row, slot) for row, slot in enumerate(slots.tolist()) if slot in self._rows]
        if not found:
            return None
        bits = np.empty((len(found), (self._vocab_size + 31) // 32), np.int32)
        rows = torch.tensor([row for row, _ in found])
        masked = MaskedRows(TokenMasks(rows, torch.from_numpy(bits)))
        for (row, slot), line in zip(found, bits, strict=True):
            try:
                self._fill(self._rows[slot], line)
            except OctavoError as error:
                line[:] = -1
                masked.errors[row] = error
        return masked

    def _fill(self, row: _Constrained, bits: NDArray[np.int32]) -> None:
        if row.matcher is None:
            raise row.error or OctavoError("there is no grammar")
        row.matcher.fill_bitmask(bits)
        if len(row.stop_token_ids) and self._engine.may_end(bits):
            words, places = row.stop_token_ids // 32, row.stop_token_ids % 32
            np.bitwise_or.at(bits.view(np.uint32), words, np.uint32(1) << places.astype(np.uint32))

    def advance(self, slot: int, result: RequestStep) -> list[int]:
        """Note the token drawn for a slot, and write what follows from it into its result.

        Returns:
            Tokens that have to come next.
        """
        row = self._rows.get(slot)
        if row is None or row.matcher is None:
            return []
        token = result.token_ids[-1]
        if token in row.stop_token_ids:
            return []
        if not row.matcher.accept([token]):
            result.error = "the drawn token does not fit the grammar"
            return []
        forced = self._forced(row.matcher) if row.jumps else []
        result.forced_token_ids = forced
        result.ended = row.matcher.is_terminated()
        return forced

    def _forced(self, matcher: Matcher) -> list[int]:
        found: list[int] = []
        while len(found) < MAX_FORCED and not matcher.is_terminated():
            more: Sequence[int] = matcher.forced_tokens()[: MAX_FORCED - len(found)]
            if not more or not matcher.accept(more):
                break
            found += more
        return found
