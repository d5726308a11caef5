"""Where the time of prefill and of decode goes: step programs timed op by op."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from octavo.entrypoints.bench.offline import check_answered
from octavo.types.sampling_params import RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    from octavo.engine.llm_engine import LLMEngine
    from octavo.ops.program import OpTime

OUTSIDE = "outside of programs"


@dataclass(slots=True)
class OpKind:
    """All calls of one kind of op."""

    calls: int = 0
    seconds: float = 0.0
    weight_bytes: int = 0
    """Of weights that were read whole."""


@dataclass
class Phase:
    """Prefill, or decode."""

    name: str
    steps: int = 0
    tokens: int = 0
    """Rows that went through the model."""
    seconds: float = 0.0
    """Of whole steps, scheduling and sampling included."""
    kinds: dict[str, OpKind] = field(default_factory=dict)

    def add(self, times: Sequence[OpTime]) -> None:
        """The ops of one run of a program."""
        for op in times:
            kind = self.kinds.setdefault(op.name, OpKind())
            kind.calls += 1
            kind.seconds += op.nanoseconds * 1e-9
            kind.weight_bytes += op.weight_bytes

    @property
    def outside(self) -> float:
        """Seconds not spent in ops: Python, sampling, the clock itself."""
        return max(0.0, self.seconds - sum(kind.seconds for kind in self.kinds.values()))

    def lines(self) -> list[str]:
        """A table, the largest share first."""
        speed = self.tokens / self.seconds if self.seconds else 0.0
        head = f"{self.name}: {self.steps} steps, {self.tokens} tokens, {speed:.1f} tok/s"
        columns = f"{'op':<22}{'calls/step':>11}{'ms/step':>10}{'%':>7}{'weights GB/s':>14}"
        if not self.steps:
            return [head]
        ordered = sorted(self.kinds.items(), key=lambda entry: -entry[1].seconds)
        rows = [self._line(name, kind) for name, kind in ordered]
        return [head, columns, *rows, self._line(OUTSIDE, OpKind(0, self.outside))]

    def _line(self, name: str, kind: OpKind) -> str:
        share = 100 * kind.seconds / self.seconds if self.seconds else 0.0
        speed = (
            f"{kind.weight_bytes / kind.seconds / 1e9:14.1f}" if kind.weight_bytes and kind.seconds else ""
        )
        calls = f"{kind.calls / self.steps:11.1f}" if kind.calls else " " * 11
        return f"{name:<22}{calls}{kind.seconds / self.steps * 1e3:10.3f}{share:7.1f}{speed}"

    def to_json(self) -> dict[str, Any]:
        kinds = {name: vars_of(kind) for name, kind in self.kinds.items()}
        counts = {"steps": self.steps, "tokens": self.tokens, "seconds": self.seconds}
        return counts | {"ops": kinds, "outside_seconds": self.outside}


def vars_of(kind: OpKind) -> dict[str, float | int]:
    return {"calls": kind.calls, "seconds": kind.seconds, "weight_bytes": kind.weight_bytes}


def profile_batch(
    engine: LLMEngine, prompts: Sequence[Any], sampling: SamplingParams, runs: int
) -> tuple[Phase, Phase]:
    """Run the batch `runs` times with every op timed. Steps count as prefill until each request has its first token.

    Args:
        engine: With its core in this process, and its step programs recorded.
        prompts: As `LLMEngine.add_request` takes them.
        sampling: For all of them.
        runs: How often.

    Raises:
        OctavoError: the engine refused or lost a request.
    """
    from octavo.ops.program import op_times

    phases = Phase("prefill"), Phase("decode")
    streamed = msgspec.structs.replace(sampling, output_kind=RequestOutputKind.DELTA)
    for number in range(runs):
        waiting = {f"profile-{number}-{index}" for index in range(len(prompts))}
        for request_id, prompt in zip(sorted(waiting), prompts, strict=True):
            engine.add_request(request_id, prompt, streamed)
        while engine.has_unfinished_requests():
            phase = phases[0] if waiting else phases[1]
            with op_times(lambda rows, times, phase=phase: _note(phase, rows, times)):  # type: ignore[misc]
                begin = time.perf_counter()
                outputs = engine.step()
                phase.seconds += time.perf_counter() - begin
            check_answered(outputs)
            phase.steps += 1
            waiting -= {output.request_id for output in outputs}
    return phases


def _note(phase: Phase, rows: int, times: Sequence[OpTime]) -> None:
    """The program that picks rows is the head's: its rows were counted when they went through the body."""
    phase.add(times)
    if not any(op.name == "select_rows" for op in times):
        phase.tokens += rows
