"""Logits processors of the user: each sees its requests wherever they stand, and nothing else changes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from octavo.config import ModelConfig
from octavo.lib.errors import ConfigError, InvalidRequestError
from octavo.sampling import (
    AdapterLogitsProcessor,
    BatchUpdate,
    LogitsProcessor,
    MoveDirectionality,
    ProcessorChain,
    Sampler,
    SamplingTable,
)
from octavo.sampling.processors import (
    ProcessorRow,
    RequestLogitsProcessor,
    batch_update,
    check_extra_args,
    load_processor_classes,
    make_processors,
)
from octavo.types.sampling_params import SamplingParams

VOCAB = 20
CPU = torch.device("cpu")
CONFIG = ModelConfig(
    model="m", served_model_names=("m",), tokenizer="m", dtype="float32", max_model_len=64, vocab_size=VOCAB,
    eos_token_ids=(),
)  # fmt: skip
HERE = __name__


class Wanted(LogitsProcessor):
    """Makes `extra_args["want"]` the best token of rows that ask for one."""

    extra_args = frozenset({"want"})

    def __init__(self, config: ModelConfig, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(config, device, is_pin_memory)
        self.rows: dict[int, int] = {}

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        want = (sampling_params.extra_args or {}).get("want", 0)
        if not isinstance(want, int):
            raise ValueError(f"want must be a token id, got {want!r}")

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.rows.pop(row, None)
        for row, params, _, _ in batch_update.added:
            self.rows.pop(row, None)
            if "want" in (params.extra_args or {}):
                self.rows[row] = params.extra_args["want"]  # type: ignore[index]
        for source, target, kind in batch_update.moved:
            there, moving = self.rows.pop(target, None), self.rows.pop(source, None)
            if moving is not None:
                self.rows[target] = moving
            if there is not None and kind is MoveDirectionality.SWAP:
                self.rows[source] = there

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, token in self.rows.items():
            logits[row, token] = 100.0
        return logits


class AfterLast(AdapterLogitsProcessor):
    """The token after the last one of the answer, or of the prompt, for requests that ask for `follow`."""

    extra_args = frozenset({"follow"})

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        return _follow if (params.extra_args or {}).get("follow") else None


def _follow(prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
    chosen = torch.full_like(logits, -torch.inf)
    chosen[([*prompt, *output][-1] + 1) % VOCAB] = 0.0
    return chosen


class Sharper(LogitsProcessor):
    """Takes the half of the tokens that are least likely away: the best one stays the best."""

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self.update = batch_update

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.masked_fill(logits < logits.median(dim=1, keepdim=True).values, -torch.inf)


def table_of(params: Sequence[SamplingParams]) -> SamplingTable:
    table = SamplingTable(len(params), VOCAB, has_processors=True)
    for slot, one in enumerate(params):
        table.add(slot, f"r{slot}", one, [slot], [], [])
    return table


def greedy(**extra: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, extra_args=extra or None)


@pytest.mark.parametrize("seed", range(30))
def test_an_update_carried_out_gives_the_next_batch(seed: int) -> None:
    rng = random.Random(seed)
    before: list[int] = []
    held: dict[int, int] = {}
    for _ in range(30):
        keys = rng.sample(range(12), rng.randint(0, 8))
        rows = [ProcessorRow(key, SamplingParams(seed=key), [], []) for key in keys]
        update = batch_update(before, rows)
        if update is not None:
            for row in update.removed:
                del held[row]
            for row, params, _, _ in update.added:
                held[row] = params.seed or 0
            for source, target, kind in update.moved:
                there, moving = held.pop(target, None), held.pop(source)
                assert (there is not None) == (kind is MoveDirectionality.SWAP)
                held[target] = moving
                if there is not None:
                    held[source] = there
            assert update.batch_size == len(keys)
        else:
            assert keys == before
        assert held == dict(enumerate(keys))
        before = keys


def test_requests_keep_theirs_wherever_they_stand() -> None:
    params = [greedy(want=3), greedy(), greedy(want=5), greedy(follow=True), greedy(want=7)]
    chain = ProcessorChain([Wanted(CONFIG, CPU, False), AfterLast(CONFIG, CPU, False)])
    table, sampler = table_of(params), Sampler(processors=chain)
    rng = random.Random(1)
    expected = {0: 3, 1: 19, 2: 5, 4: 7}
    last = 3
    for _ in range(20):
        slots = np.array(rng.sample(range(5), rng.randint(1, 5)))
        logits = torch.arange(VOCAB, dtype=torch.float32).repeat(len(slots), 1)
        tokens = [row.token_id for row in sampler(logits, table.batch(slots))]
        for slot, token in zip(slots.tolist(), tokens, strict=True):
            assert token == (expected[slot] if slot != 3 else (last + 1) % VOCAB)
            last = token if slot == 3 else last
        table.append_each(slots, np.array([tokens]))


def test_an_invariant_one_sees_tempered_logits_and_leaves_greedy_rows() -> None:
    params = [SamplingParams(temperature=2.0, seed=seed) for seed in range(200)]
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0)).repeat(200, 1)
    kept = logits[0] >= logits[0].median()
    sampler = Sampler(processors=ProcessorChain([Sharper(CONFIG, CPU, False)]))
    drawn = {row.token_id for row in sampler(logits.clone(), table_of(params).batch(np.arange(200)))}
    assert drawn <= set(kept.nonzero().flatten().tolist())
    assert len(drawn) > 3
    mixed = [greedy(), SamplingParams(temperature=2.0, seed=1)]
    rows = sampler(logits[:2].clone(), table_of(mixed).batch(np.arange(2)))
    assert rows[0].token_id == int(logits[0].argmax())


def test_with_a_processor_that_does_nothing_the_tokens_stay() -> None:
    class Idle(Sharper):
        def apply(self, logits: torch.Tensor) -> torch.Tensor:
            return logits

    logits = torch.randn(40, VOCAB, generator=torch.Generator().manual_seed(3)) * 2
    params = [
        SamplingParams(temperature=0.5 * 2 ** (seed % 3), top_k=seed % 5, seed=seed) for seed in range(40)
    ]
    plain = Sampler()(logits.clone(), table_of(params).batch(np.arange(40)))
    idle = Sampler(processors=ProcessorChain([Idle(CONFIG, CPU, False)]))
    assert [row.token_id for row in idle(logits.clone(), table_of(params).batch(np.arange(40)))] == [
        row.token_id for row in plain
    ]


def test_classes_are_found_by_their_path() -> None:
    assert [cls.__name__ for cls in load_processor_classes([f"{HERE}:Wanted"])] == ["Wanted"]
    for path in ("no.such.module:X", f"{HERE}:Nothing", f"{HERE}:VOCAB", "math:inf"):
        with pytest.raises(ConfigError, match="--logits-processors") as caught:
            load_processor_classes([path])
        assert caught.value.param == "logits_processors"


def test_no_processors_make_no_chain() -> None:
    assert not make_processors(CONFIG)


def test_extra_args_are_checked_by_who_reads_them() -> None:
    classes = [Wanted, AfterLast]
    check_extra_args(classes, greedy(want=3, follow=True))
    for params, text in ((greedy(wand=3), "'wand'"), (greedy(want="x"), "must be a token id")):
        with pytest.raises(InvalidRequestError, match=text) as caught:
            check_extra_args(classes, params)
        assert caught.value.param == "extra_args"
    check_extra_args([Wanted, Sharper], greedy(anything=1))  # Sharper does not say what it reads
