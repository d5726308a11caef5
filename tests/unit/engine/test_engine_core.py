"""The core: steps, aborts, failures that stay where they belong, and a pool sized from memory."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.fakes import (
    BROKEN,
    RAISE,
    SLOW_GRAMMAR,
    WRONG_GRAMMAR,
    FakeExecutor,
    fake_config,
    fake_core,
)

from octavo.config import CacheConfig, SchedulerConfig
from octavo.engine.core import MAX_FAILED_STEPS, EngineCore
from octavo.engine.kv_sizing import MemoryFacts, memory_table, pages_for_tokens, size_pool, workspace_bytes
from octavo.lib.errors import ConfigError, OctavoError
from octavo.scheduling.kv.groups import plan_groups
from octavo.types.engine import EngineOutput, EngineRequest, FinishReason
from octavo.types.kv import KVLayer
from octavo.types.sampling_params import SamplingParams
from octavo.types.structured_outputs import StructuredOutputsParams


def request(name: str, tokens: list[int], **sampling: Any) -> EngineRequest:
    params = SamplingParams(**{"max_tokens": 4, "temperature": 0.0, "seed": 0, **sampling})
    return EngineRequest(request_id=name, prompt_token_ids=tokens, sampling=params)


def run(core: EngineCore, limit: int = 500) -> dict[str, list[EngineOutput]]:
    """Step until nothing is left."""
    found: dict[str, list[EngineOutput]] = {}
    for _ in range(limit):
        if not core.has_work():
            break
        for output in core.step().outputs:
            found.setdefault(output.request_id, []).append(output)
    assert not core.has_work()
    core.scheduler.check_integrity()
    return found


def tokens(outputs: list[EngineOutput]) -> list[int]:
    return [token for output in outputs for token in output.new_token_ids]


def test_requests_run_together_and_end() -> None:
    core = fake_core()
    core.add([request("a", [1, 2, 3]), request("b", [4] * 40, max_tokens=7)])
    found = run(core)
    assert [len(tokens(found[name])) for name in "ab"] == [4, 7]
    assert all(found[name][-1].finish_reason is FinishReason.LENGTH for name in "ab")


def test_an_idle_core_has_no_work() -> None:
    core = fake_core()
    assert not core.has_work()
    assert core.step().outputs == []


def test_an_abort_takes_effect_before_the_next_step() -> None:
    executor = FakeExecutor()
    core = fake_core(executor=executor)
    core.add([request("a", [1], max_tokens=50), request("b", [2], max_tokens=3)])
    core.step()
    core.abort(["a", "unknown"])
    found = run(core)
    assert found["a"][-1].finish_reason is FinishReason.ABORT
    assert tokens(found["a"]) == []
    assert len(tokens(found["b"])) == 2
    assert all("a" not in plan.num_scheduled_tokens for plan in list(executor.plans)[1:])


def test_a_step_that_raises_takes_only_its_own_requests_with_it() -> None:
    core = fake_core()
    core.add([request("bad", [RAISE])])
    first = run(core)["bad"]
    assert first[-1].finish_reason is FinishReason.ERROR
    assert "told to fail" in (first[-1].error or "")
    core.add([request("good", [1, 2])])
    assert len(tokens(run(core)["good"])) == 4


def test_an_engine_whose_every_step_raises_gives_up_with_the_cause() -> None:
    core = fake_core()
    for number in range(MAX_FAILED_STEPS - 1):
        core.add([request(str(number), [RAISE])])
        core.step()
    core.add([request("last", [RAISE])])
    with pytest.raises(OctavoError, match="told to fail"):
        core.step()


def test_a_fault_of_one_request_is_its_own() -> None:
    core = fake_core()
    core.add([request("broken", [BROKEN]), request("good", [1])])
    found = run(core)
    assert found["broken"][-1].error == "the logits are not finite"
    assert len(tokens(found["good"])) == 4


def test_a_request_that_never_fits_is_refused_and_small_ones_finish() -> None:
    """A68."""
    core = fake_core(fake_config(num_blocks=8, max_model_len=512))
    core.add([request("big", [1] * 200), *(request(f"small{i}", [i] * 20) for i in range(3))])
    found = run(core)
    assert found["big"][-1].finish_reason is FinishReason.ERROR
    assert found["big"][-1].error_type == "invalid_request_error"
    assert "8 pages" in (found["big"][-1].error or "")
    assert all(len(tokens(found[f"small{i}"])) == 4 for i in range(3))


def test_a_full_queue_refuses_with_its_own_kind_of_error() -> None:
    core = fake_core(fake_config(max_num_queued_reqs=2))
    core.add([request(str(i), [1]) for i in range(3)])
    found = run(core)
    assert found["2"][-1].error_type == "overloaded_error"
    assert len(tokens(found["0"])) == len(tokens(found["1"])) == 4


# -- sizing -----------------------------------------------------------------------------------------------------------

LAYOUT = plan_groups([KVLayer(2, 64)] * 4, 16, "float16")
GIB = 1 << 30


def facts(available: int = GIB, weights: int = 0, workspace: int = 0) -> MemoryFacts:
    return MemoryFacts(weight_bytes=weights, memory_available=available, workspace_bytes=workspace)


def test_the_share_covers_weights_and_pages() -> None:
    cache = CacheConfig(memory_utilization=0.5)
    # 1.5 GiB were free before loading; half of that, less the weights, is 0.25 GiB.
    assert size_pool(cache, LAYOUT, facts(weights=GIB // 2), 512) == GIB // 4 // LAYOUT.block_bytes


def test_an_automatic_pool_is_not_larger_than_useful() -> None:
    cache = CacheConfig(target_tokens=1024)
    assert size_pool(cache, LAYOUT, facts(64 * GIB), 512) == 1024 // 16
    assert size_pool(cache, LAYOUT, facts(64 * GIB), 4096) == 4096 // 16


def test_explicit_amounts_win() -> None:
    assert size_pool(CacheConfig(num_blocks=5), LAYOUT, facts(0), 512) == 5
    assert size_pool(CacheConfig(memory_bytes=10 * LAYOUT.block_bytes), LAYOUT, facts(0), 512) == 10


def test_no_room_for_a_page_is_an_error_with_the_amounts() -> None:
    with pytest.raises(ConfigError, match="one page needs") as caught:
        size_pool(CacheConfig(), LAYOUT, facts(available=1000), 512)
    assert "0 B are left" in caught.value.message or "B are left" in caught.value.message


def test_window_groups_count_in_pages_of_their_own() -> None:
    hybrid = plan_groups([KVLayer(2, 64), KVLayer(2, 64, window=32)] * 2, 16, "float32")
    assert pages_for_tokens(hybrid, 160) == 10 * len(hybrid.groups)


def test_the_table_tells_where_memory_goes() -> None:
    text = "\n".join(memory_table(LAYOUT, 100, facts(weights=92 << 20), 400))
    assert "92.0 MiB" in text
    assert "1,600" in text
    assert "4.0 requests of 400 tokens" in text
    assert workspace_bytes(SchedulerConfig(), 1000) > 0


def shaped(name: str, regex: str) -> EngineRequest:
    return request(name, [1, 2], structured_outputs=StructuredOutputsParams(regex=regex))


def test_nobody_waits_for_a_grammar_that_is_being_compiled() -> None:
    executor = FakeExecutor()
    core = fake_core(executor=executor)
    core.add([shaped("slow", SLOW_GRAMMAR), shaped("ready", "a"), request("plain", [3])])
    found: dict[str, list[EngineOutput]] = {}
    while len(found.get("plain", [])) < 4 or len(found.get("ready", [])) < 4:
        for output in core.step().outputs:
            found.setdefault(output.request_id, []).append(output)
    assert "slow" not in found
    assert core.has_work()
    executor.grammars[SLOW_GRAMMAR].set_result(None)
    assert len(tokens(run(core)["slow"])) == 4


def test_a_wrong_grammar_is_the_requests_fault_and_names_the_field() -> None:
    core = fake_core()
    core.add([shaped("wrong", WRONG_GRAMMAR), request("plain", [3])])
    found = run(core)
    (failure,) = found["wrong"]
    assert failure.error_type == "invalid_request_error"
    assert failure.error_param == "structured_outputs.regex"
    assert len(tokens(found["plain"])) == 4


def test_a_request_that_waits_for_its_grammar_can_be_aborted() -> None:
    core = fake_core()
    core.add([shaped("slow", SLOW_GRAMMAR)])
    core.abort(["slow"])
    (output,) = run(core)["slow"]
    assert output.finish_reason is FinishReason.ABORT
