"""A model without weights: tokens follow from a rule, so that fronts and servers can be tested in milliseconds.

In this process: `fake_core()`. In its own: `fake_command()` gives what `AsyncZmqClient` and `SyncZmqClient` start.
Prompts hold the orders: a `RAISE` token makes the step fail, `BROKEN` that request alone, `DIE` the whole process.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from array import array
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from octavo.config import (
    CacheConfig,
    DeviceConfig,
    LoadConfig,
    ModelConfig,
    ObservabilityConfig,
    OctavoConfig,
    PoolingConfig,
    SchedulerConfig,
)
from octavo.engine.core import EngineCore
from octavo.lib.errors import InvalidRequestError
from octavo.tokenizers.base import Tokenizer, TokenizerInfo
from octavo.tokenizers.pieces import Pieces
from octavo.types.engine import TokenLogprobs
from octavo.types.kv import KVLayer, KVLayout
from octavo.types.pooling_params import PoolingParams
from octavo.types.sampling_params import SamplingParams
from octavo.types.step import RequestStep, StepOutput, StepPlan
from octavo.types.structured_outputs import StructuredOutputsParams

VOCAB = 1024
HIDDEN = 4
EOS, BOS = 256, 257
RAISE, BROKEN, DIE = 901, 902, 903
WRONG_GRAMMAR, SLOW_GRAMMAR = "wrong", "slow"
SPECIAL = {EOS: "<eos>", BOS: "<bos>"}


def fake_config(
    *,
    max_model_len: int = 512,
    num_blocks: int = 256,
    vocab_size: int = VOCAB,
    eos_token_ids: tuple[int, ...] = (EOS,),
    default_sampling: tuple[tuple[str, float | int], ...] = (),
    runner: str = "generate",
    pooling: PoolingConfig | None = None,
    name: str = "fake",
    enable_prompt_embeds: bool = False,
    **scheduler: int | str | bool,
) -> OctavoConfig:
    """A configuration for the fake model."""
    return OctavoConfig(
        model=ModelConfig(
            model="fake",
            served_model_names=(name,),
            tokenizer="fake",
            dtype="float32",
            max_model_len=max_model_len,
            vocab_size=vocab_size,
            hidden_size=HIDDEN,
            enable_prompt_embeds=enable_prompt_embeds,
            eos_token_ids=eos_token_ids,
            default_sampling=default_sampling,
            runner=runner,
            pooling=pooling,
        ),
        cache=CacheConfig(block_size=16, num_blocks=num_blocks),
        scheduler=SchedulerConfig(**{"max_num_seqs": 16, **scheduler}),
        device=DeviceConfig(),
        load=LoadConfig(),
        observability=ObservabilityConfig(log_stats_interval=0.0),
    )


class ByteEncoder:
    """One token per byte of UTF-8."""

    def encode(self, text: str, add_special_tokens: bool, parse_special: bool) -> list[int]:
        return list(text.encode())


def fake_tokenizer() -> Tokenizer:
    """Ids 0-255 are bytes, then come EOS and BOS; all others spell nothing."""

    def spell(token: int) -> bytes:
        return bytes([token]) if token < 256 else SPECIAL.get(token, "").encode()

    info = TokenizerInfo(
        vocab_size=VOCAB,
        bos_token_id=BOS,
        eos_token_id=EOS,
        eos_token_ids=(EOS,),
        special_ids=frozenset(SPECIAL),
        special_tokens={"bos_token": "<bos>", "eos_token": "<eos>"},
        chat_templates={
            "default": "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{% endif %}"
        },
    )
    return Tokenizer(info, ByteEncoder(), Pieces(spell))


@dataclass(frozen=True, kw_only=True)
class FakeModel:
    """What a fake executor says it has loaded."""

    architecture: str = "FakeForCausalLM"
    vocab_size: int = VOCAB
    kv_layers: tuple[KVLayer, ...] = (KVLayer(1, 8), KVLayer(1, 8))
    weight_bytes: int = 1000
    load_seconds: float = 0.0
    memory_available: int = 1 << 30
    process_rss: int = 0
    num_threads: int = 1
    isa: str = "fake"


@dataclass
class _State:
    tokens: list[int]
    num_prompt: int
    computed: int
    sampling: SamplingParams
    stop_ids: list[int]
    pooling: PoolingParams | None


@dataclass
class FakeExecutor:
    """Implements `octavo.executor.base.Executor`.

    Args:
        script: Ids of every answer, from its first token on; after them (or without any) letters that follow from the
            tokens so far and, with temperature, from the seed.
        step_seconds: How long a step takes.
        load_error: Raised when loading.
    """

    script: list[int] = field(default_factory=list)
    step_seconds: float = 0.0
    load_error: Exception | None = None
    steps: int = 0
    discarded: int = 0
    """How often its pages were given back."""
    loads: int = 0
    shutdowns: int = 0
    grammars: dict[str, Future[None]] = field(default_factory=dict)
    """Of requests so far; those for `SLOW_GRAMMAR` are the test's to finish."""
    plans: deque[StepPlan] = field(default_factory=lambda: deque(maxlen=100))
    states: dict[str, _State] = field(default_factory=dict)

    def load(self, progress: object = None) -> FakeModel:
        self.loads += 1
        if self.load_error is not None:
            raise self.load_error
        return FakeModel()

    def allocate_kv(self, layout: KVLayout, num_blocks: int) -> None:
        self.layout, self.num_blocks = layout, num_blocks

    def execute_model(self, plan: StepPlan) -> StepOutput:
        self.steps += 1
        self.plans.append(plan)
        time.sleep(self.step_seconds)
        for request_id in plan.released:
            self.states.pop(request_id, None)
        for new in plan.new_requests:
            self.states[new.request_id] = _State(
                list(new.token_ids),
                new.num_prompt_tokens,
                new.num_computed_tokens,
                new.sampling,
                new.stop_token_ids,
                new.pooling,
            )
        return StepOutput(
            step_id=plan.step_id,
            results=[self._run(name, n) for name, n in plan.num_scheduled_tokens.items()],
        )

    def discard_kv(self) -> None:
        self.discarded += 1

    def prepare_grammar(self, params: StructuredOutputsParams) -> Future[None]:
        future = self.grammars.setdefault(params.text, Future())
        if params.text == WRONG_GRAMMAR:
            future.set_exception(
                InvalidRequestError("the grammar is wrong", param="structured_outputs.regex")
            )
        elif params.text != SLOW_GRAMMAR and not future.done():
            future.set_result(None)
        return future

    def shutdown(self) -> None:
        self.shutdowns += 1
        self.states.clear()

    def _run(self, request_id: str, count: int) -> RequestStep:
        state = self.states[request_id]
        _obey(state.tokens)
        if BROKEN in state.tokens[: state.num_prompt]:
            return RequestStep(request_id=request_id, token_ids=[], error="the logits are not finite")
        start, end = state.computed, state.computed + count
        state.computed = end
        result = RequestStep(request_id=request_id, token_ids=[])
        if state.sampling.prompt_logprobs is not None:
            last = min(end + 1, state.num_prompt)
            result.prompt_logprobs = [
                _logprobs(state.tokens[i], state.sampling.prompt_logprobs) for i in range(start + 1, last)
            ]
        if state.pooling is not None:
            result.pooled = fake_vector(state.tokens, state.pooling) if end == len(state.tokens) else None
        elif end == len(state.tokens):
            token = self._next(state)
            state.tokens.append(token)
            result.token_ids = [token]
            if state.sampling.wants_logprobs:
                asked = state.sampling.logprob_token_ids or ()
                result.logprobs = [_logprobs(token, state.sampling.logprobs or 0, asked)]
        return result

    def _next(self, state: _State) -> int:
        position = len(state.tokens) - state.num_prompt
        if position < len(self.script):
            token = self.script[position]
            held = token in state.stop_ids and position < state.sampling.min_tokens
            return ord("x") if held else token
        seed = 0 if state.sampling.greedy else state.sampling.seed
        digest = hashlib.blake2b(f"{seed} {state.tokens}".encode(), digest_size=4).digest()
        return ord("a") + int.from_bytes(digest, "little") % 26


def fake_vector(tokens: list[int], params: PoolingParams) -> bytes:
    """Eight numbers that follow from the tokens; classes of a model with one or three: the first of them."""
    digest = hashlib.blake2b(str(tokens).encode(), digest_size=8).digest()
    numbers = [byte / 256 - 0.3 for byte in digest]
    classes = {"score": 1, "classify": 3}.get(params.task or "", 8)
    return array("f", numbers[: params.dimensions or classes]).tobytes()


def _obey(tokens: list[int]) -> None:
    if RAISE in tokens:
        raise RuntimeError("the fake model was told to fail")
    if DIE in tokens:
        os._exit(7)


def _logprobs(token: int, count: int, asked: Sequence[int] = ()) -> TokenLogprobs:
    """The chosen token, then ids from 65 on, then those asked for; the chosen one ranks first."""
    top = [65 + i for i in range(count)]
    missing = [one for one in sorted(set(asked)) if one not in (token, *top)]
    values = [-0.25, *(-1.0 - i for i in range(count)), *(-50.0 - one for one in missing)]
    return TokenLogprobs([token, *top, *missing], values, 1, [50 + one for one in missing])


def fake_core(config: OctavoConfig | None = None, executor: FakeExecutor | None = None) -> EngineCore:
    """An engine core over the fake model, in this process."""
    return EngineCore(config or fake_config(), executor or FakeExecutor())  # type: ignore[arg-type]


def fake_command(
    *,
    script: str | Sequence[int] = "",
    step_seconds: float = 0.0,
    load_error: str = "",
    boot_seconds: float = 0.0,
) -> list[str]:
    """Command of an engine process over the fake model, for a client's `command`. A text as script stands for its bytes."""
    ids = script.encode() if isinstance(script, str) else script
    options = [
        f"--script={' '.join(map(str, ids))}",
        f"--step-seconds={step_seconds}",
        f"--load-error={load_error}",
    ]
    return [sys.executable, str(Path(__file__).resolve()), *options, f"--boot-seconds={boot_seconds}"]


def main() -> int:
    """Run an engine process; the address is the last argument."""
    from octavo.engine.clients.core_main import serve
    from octavo.lib.errors import CheckpointError

    parser = argparse.ArgumentParser()
    parser.add_argument("--script", default="")
    parser.add_argument("--step-seconds", type=float, default=0.0)
    parser.add_argument("--boot-seconds", type=float, default=0.0)
    parser.add_argument("--load-error", default="")
    parser.add_argument("address")
    args = parser.parse_args()
    executor = FakeExecutor(
        script=[int(token) for token in args.script.split()],
        step_seconds=args.step_seconds,
        load_error=CheckpointError(args.load_error) if args.load_error else None,
    )
    return serve(args.address, lambda _config: executor, lambda: time.sleep(args.boot_seconds))  # type: ignore[arg-type,return-value]


if __name__ == "__main__":
    sys.exit(main())
