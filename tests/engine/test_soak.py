"""A99 in its short form: with the prefix cache on, memory does not grow with the number of requests served."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections import deque

from tests.engine.fakes import FakeExecutor, fake_config, fake_core, fake_tokenizer

from octavo import LLM, LLMEngine, SamplingParams
from octavo.engine.clients.inproc import InprocClient

ROUND = 150


def test_memory_stays_level_over_many_different_prompts() -> None:
    config = fake_config(num_blocks=64, max_num_queued_reqs=1000)
    engine = LLMEngine(
        config, InprocClient(fake_core(config, FakeExecutor(plans=deque(maxlen=1)))), fake_tokenizer()
    )
    llm = LLM.from_engine(engine)
    random_numbers = random.Random(5)
    params = SamplingParams(max_tokens=1, stop=["zq"])

    def serve() -> int:
        prompts = [[random_numbers.randrange(256) for _ in range(200)] for _ in range(ROUND)]
        llm.generate(prompts, params, use_tqdm=False)
        for number in range(20):
            engine.add_request(f"aborted {number}", prompts[number], SamplingParams(max_tokens=50))
        engine.step()
        engine.abort_request([f"aborted {number}" for number in range(20)])
        while engine.has_unfinished_requests():
            engine.step()
        del prompts
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        serve()
        first = serve()
        for _ in range(3):
            last = serve()
    finally:
        tracemalloc.stop()
    assert last - first < 0.02 * first + 2_000
    core = engine.client.core  # type: ignore[attr-defined]
    core.scheduler.check_integrity()
    assert core.scheduler.kv.pool.usage == 0.0
