"""One slot between the output processor and a reader: what a slow reader missed is merged, so that nothing piles up."""

from __future__ import annotations

import asyncio

from octavo.lib.errors import OctavoError
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.pooling_outputs import PoolingRequestOutput

AnyOutput = RequestOutput | PoolingRequestOutput


class Mailbox:
    """Outputs of one request on their way to its caller.

    Args:
        delta: Outputs hold what is new, and are joined; otherwise a later one replaces an earlier one.
    """

    def __init__(self, *, delta: bool) -> None:
        self._delta = delta
        self._waiting: AnyOutput | None = None
        self._error: OctavoError | None = None
        self._ready = asyncio.Event()

    def put(self, output: AnyOutput) -> None:
        """Add an output."""
        if self._delta and isinstance(output, RequestOutput) and isinstance(self._waiting, RequestOutput):
            output = merge_deltas(self._waiting, output)
        self._waiting = output
        self._ready.set()

    def fail(self, error: OctavoError) -> None:
        """The request ended with an error, which comes after the outputs before it."""
        self._error = error
        self._ready.set()

    async def get(self) -> AnyOutput:
        """Wait for the next output.

        Raises:
            OctavoError: the request failed.
        """
        await self._ready.wait()
        output, self._waiting = self._waiting, None
        if output is None:
            assert self._error is not None
            raise self._error
        if self._error is None:
            self._ready.clear()
        return output


def merge_deltas(first: RequestOutput, second: RequestOutput) -> RequestOutput:
    """One delta that says what two after each other say."""
    outputs = {output.index: output for output in first.outputs}
    for later in second.outputs:
        earlier = outputs.get(later.index)
        outputs[later.index] = later if earlier is None else _joined(earlier, later)
    second.outputs = [outputs[index] for index in sorted(outputs)]
    second.prompt_logprobs = first.prompt_logprobs or second.prompt_logprobs
    return second


def _joined(earlier: CompletionOutput, later: CompletionOutput) -> CompletionOutput:
    logprobs = later.logprobs
    if logprobs is not None and earlier.logprobs is not None:
        logprobs = earlier.logprobs + logprobs  # type: ignore[operator]  # both are of one kind
    return CompletionOutput(
        index=later.index,
        text=earlier.text + later.text,
        token_ids=earlier.token_ids + later.token_ids,
        cumulative_logprob=later.cumulative_logprob,
        logprobs=logprobs,
        finish_reason=later.finish_reason,
        stop_reason=later.stop_reason,
    )
