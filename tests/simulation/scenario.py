"""Random settings and random requests, all from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from octavo.config.octavo_config import CacheConfig, SchedulerConfig
from octavo.types.engine import EngineRequest
from octavo.types.kv import KVGroup, KVLayout
from octavo.types.sampling_params import SamplingParams
from tests.simulation.fake_executor import VOCABULARY

_WINDOWS = [(0,), (0,), (0, 5), (0, 3, 3), (4,), (0, 7, 12), (9, 2), (1, 0)]


@dataclass(frozen=True)
class Scenario:
    """Settings of one simulation."""

    seed: int
    layout: KVLayout
    num_blocks: int
    max_model_len: int
    scheduler: SchedulerConfig
    cache: CacheConfig
    arrival_rate: float
    abort_rate: float
    error_rate: float
    restart_rate: float
    decode_steps: list[int]
    """What the scheduler may plan at once: one of these in each step."""

    @property
    def max_kv_tokens(self) -> int:
        """Tokens that one request can keep, by trying (and not as the scheduler reckons it)."""
        tokens = 0
        while tokens < 4 * self.max_model_len and self._pages_at(tokens) <= self.num_blocks:
            tokens += 1
        return tokens

    def _pages_at(self, position: int) -> int:
        """Pages in use while the token at `position` is computed: alone, or in one step with all before it."""
        size, used = self.layout.block_size, 0
        for group in self.layout.groups:
            slides = group.window and self.scheduler.enable_chunked_prefill
            first = max(0, position - group.window + 1) // size if slides else 0
            used += position // size + 1 - first
        return used


def random_scenario(seed: int) -> Scenario:
    """Settings that are small enough to get into trouble in a few hundred steps."""
    rng = random.Random(seed)
    windows = rng.choice(_WINDOWS)
    block_size = rng.choice([1, 2, 3, 4, 4, 8])
    max_model_len = rng.choice([16, 32, 48])
    fraction = rng.choice([0.3, 0.6, 1.0, 1.0, 2.0])  # of what one longest request needs
    num_blocks = max(2 * len(windows), int(fraction * len(windows) * max_model_len / block_size))
    layout = KVLayout(
        block_size, 1, 8, "float32", tuple(KVGroup((number,), w) for number, w in enumerate(windows))
    )
    scheduler = SchedulerConfig(
        policy=rng.choice(["fcfs", "fcfs", "priority"]),
        max_num_batched_tokens=rng.choice([1, 5, 16, 24, 64]),
        max_num_seqs=rng.choice([1, 4, 8, 8]),
        long_prefill_token_threshold=rng.choice([0, 2, 7]),
        enable_chunked_prefill=rng.random() < 0.85,
        max_num_queued_reqs=rng.choice([2, 6, 12]),
    )
    return Scenario(
        seed=seed,
        layout=layout,
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        scheduler=scheduler,
        cache=CacheConfig(block_size=block_size, enable_prefix_caching=rng.random() < 0.85),
        arrival_rate=rng.choice([0.15, 0.4, 1.0]),
        abort_rate=rng.choice([0.0, 0.01, 0.05]),
        error_rate=rng.choice([0.0, 0.0, 0.003, 0.02]),
        restart_rate=rng.choice([0.0, 0.0, 0.003]),
        decode_steps=rng.choice([[1], [1, 2, 5], [8]]),
    )


class RequestSource:
    """Makes requests, many of which share the start of their prompt."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self._rng = rng
        self._limit = scenario.max_model_len
        self._stems = [self._tokens(rng.randint(1, scenario.max_model_len // 2)) for _ in range(3)]
        self._count = 0

    def make(self) -> EngineRequest:
        """The next request."""
        rng = self._rng
        self._count += 1
        stem = rng.choice(self._stems)
        prompt = stem[: rng.randint(0, len(stem))] + self._tokens(
            rng.choice([0, 1, 3, rng.randint(0, self._limit // 2)])
        )
        max_tokens = rng.choice([1, rng.randint(1, 8), rng.randint(1, self._limit), self._limit // 2, None])
        min_tokens = rng.randint(0, min(max_tokens or 6, 6)) if rng.random() < 0.3 else 0
        eos = [0] if rng.random() < 0.3 else []
        own_stops = rng.sample(range(1, VOCABULARY), rng.choice([0, 0, 0, 1, 2]))
        return EngineRequest(
            request_id=f"r{self._count}",
            prompt_token_ids=prompt,
            sampling=SamplingParams(
                max_tokens=max_tokens,
                min_tokens=min_tokens,
                prompt_logprobs=1 if rng.random() < 0.08 else None,
            ),
            stop_token_ids=eos + own_stops,
            eos_token_ids=eos,
            priority=rng.randint(0, 2),
            cache_salt=rng.choice([None, None, None, "0", "1"]),
        )

    def _tokens(self, count: int) -> list[int]:
        return [self._rng.randrange(VOCABULARY) for _ in range(count)]
