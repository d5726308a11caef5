"""Metric names are a contract: dashboards and alerts hang on them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.metrics import EngineMetrics, RequestSummary
from octavo.metrics.buckets import one_two_five
from octavo.metrics.engine_metrics import SLEEP_STATES
from octavo.types.engine import SchedulerStats

GAUGES = {
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "kv_cache_num_pages",
    "kv_cache_num_shared_pages",
    "num_requests_waiting_by_reason",
    "engine_sleep_state",
    "lora_requests_info",
    "kv_offload_cpu_cache_usage_perc",
    "kv_offload_cpu_cache_read_usage_perc",
    "kv_offload_cpu_cache_write_usage_perc",
    "kv_offload_cpu_allocation_size",
    "kv_offload_tiering_primary_read_usage_perc",
    "kv_offload_tiering_primary_write_usage_perc",
    "kv_offload_tiering_active_promotion_jobs",
    "kv_offload_tiering_active_cascade_jobs",
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
    "spec_decode_num_accepted_tokens_per_pos",
    "prompt_tokens_by_source",
    "corrupted_requests",
    "diffusion_num_denoising_steps",
    "diffusion_num_canvas_positions",
    "diffusion_num_committed_tokens",
    "estimated_flops_per_gpu",
    "estimated_read_bytes_per_gpu",
    "estimated_write_bytes_per_gpu",
    "nixl_num_failed_transfers",
    "nixl_num_failed_notifications",
    "nixl_num_kv_expired_reqs",
    "mooncake_store_operation",
    "mooncake_store_operation_keys",
    "mooncake_store_operation_bytes",
    "mooncake_store_operation_failed_keys",
    "hf3fs_num_failed_load",
    "hf3fs_num_failed_save",
    "kv_offload_load_bytes",
    "kv_offload_load_time",
    "kv_offload_store_bytes",
    "kv_offload_store_time",
    "kv_offload_allocation_failure",
    "kv_offload_stores_skipped",
    "kv_offload_tiering_read_bytes",
    "kv_offload_tiering_write_bytes",
    "kv_offload_tiering_read_time",
    "kv_offload_tiering_write_time",
    "kv_offload_tiering_promotion_job_failures",
    "kv_offload_tiering_cascade_job_failures",
    "kv_offload_tiering_block_queries",
    "kv_offload_tiering_block_hits",
    "kv_offload_tiering_promotion_allocation_failures",
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
    "kv_block_lifetime_seconds",
    "kv_block_idle_before_evict_seconds",
    "kv_block_reuse_gap_seconds",
    "nixl_xfer_time_seconds",
    "nixl_post_time_seconds",
    "nixl_bytes_transferred",
    "nixl_num_descriptors",
    "mooncake_store_operation_time_seconds",
    "hf3fs_load_duration_seconds",
    "hf3fs_save_duration_seconds",
    "kv_offload_load_size",
    "kv_offload_store_size",
    "kv_offload_lookup_sync_delay_seconds",
    "kv_offload_lookup_async_delay_seconds",
    "kv_offload_tiering_lookup_sync_delay_seconds",
    "kv_offload_tiering_lookup_async_delay_seconds",
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


def test_at_the_start_every_series_is_zero_but_the_state() -> None:
    one = [
        (sample.name, sample.labels.get("sleep_state"))
        for family in text_string_to_metric_families(EngineMetrics("m").render().decode())
        for sample in family.samples
        if sample.value != 0
    ]
    assert one == [("octavo:engine_sleep_state", "awake")]


def test_a_model_is_in_one_state_and_its_pages_are_described() -> None:
    metrics = EngineMetrics("m")
    metrics.set_cache_info({"block_size": "16"})
    metrics.on_sleep(2)
    states = [sample(metrics, "octavo:engine_sleep_state", sleep_state=state) for state in SLEEP_STATES]
    assert states == [0, 0, 1]
    assert sample(metrics, "octavo:cache_config_info", block_size="16") == 1


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
    assert sample(metrics, "octavo:prompt_tokens_by_source_total", source="local_compute") == 32
    assert sample(metrics, "octavo:prompt_tokens_by_source_total", source="local_cache_hit") == 32
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
