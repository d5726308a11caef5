"""Metric names are a contract: dashboards and alerts hang on them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.metrics import EngineMetrics, RequestSummary
from octavo.metrics.buckets import one_two_five
from octavo.types.engine import SchedulerStats

GAUGES = {
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "kv_cache_num_pages",
    "kv_cache_num_shared_pages",
    "num_requests_waiting_by_reason",
}
COUNTERS = {
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "mm_cache_queries",
    "mm_cache_hits",
    "num_preemptions",
    "prompt_tokens",
    "prompt_tokens_cached",
    "generation_tokens",
    "request_success",
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
}
HISTOGRAMS = {
    "iteration_tokens_total",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_max_num_generation_tokens",
    "request_params_max_tokens",
    "request_prefill_kv_computed_tokens",
    "request_params_n",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
}


def families(metrics: EngineMetrics) -> dict[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(metrics.render().decode())}


def sample(metrics: EngineMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"model_name": "m", "engine": "0", **labels})


@pytest.mark.parametrize("prefix", ["octavo", "vllm"])
def test_every_name_is_there_from_the_start(prefix: str) -> None:
    found = families(EngineMetrics("m", prefix=prefix))
    kinds = {"gauge": GAUGES, "counter": COUNTERS, "histogram": HISTOGRAMS}
    expected = {f"{prefix}:{name}": kind for kind, names in kinds.items() for name in names}
    assert found == expected


def test_a_step_sets_gauges_and_adds_to_counters() -> None:
    metrics = EngineMetrics("m")
    stats = SchedulerStats(
        num_running=2, num_waiting=1, kv_usage=0.5, prefix_queries=64, prefix_hits=32, num_preemptions=1
    )
    metrics.on_stats(stats)
    metrics.on_stats(stats)
    metrics.on_tokens(prompt=64, cached=32, generation=2)
    assert sample(metrics, "octavo:num_requests_running") == 2
    assert sample(metrics, "octavo:kv_cache_usage_perc") == 0.5
    assert sample(metrics, "octavo:prefix_cache_hits_total") == 64
    assert sample(metrics, "octavo:num_preemptions_total") == 2
    assert sample(metrics, "octavo:prompt_tokens_cached_total") == 32
    metrics.on_engine_down()
    assert sample(metrics, "octavo:num_requests_running") == 0


def test_a_finished_request_counts_each_answer_and_skips_stages_never_reached() -> None:
    metrics = EngineMetrics("m")
    metrics.on_finished(
        RequestSummary(
            finish_reasons=("stop", "length"),
            num_prompt_tokens=10,
            num_generation_tokens=(3, 5),
            num_cached_tokens=4,
            max_tokens=5,
            e2e_latency=1.5,
            decode_time=0.4,
        )
    )
    assert sample(metrics, "octavo:request_success_total", finished_reason="stop") == 1
    assert sample(metrics, "octavo:request_success_total", finished_reason="length") == 1
    assert sample(metrics, "octavo:request_success_total", finished_reason="abort") == 0
    assert sample(metrics, "octavo:request_generation_tokens_sum") == 8
    assert sample(metrics, "octavo:request_prefill_kv_computed_tokens_sum") == 6
    assert sample(metrics, "octavo:request_queue_time_seconds_count") == 0
    assert sample(metrics, "octavo:request_time_per_output_token_seconds_sum") == pytest.approx(0.1)


def test_token_buckets_end_at_the_context_length() -> None:
    assert one_two_five(60) == (1, 2, 5, 10, 20, 50)
    assert one_two_five(1) == (1,)
