"""Names of what this engine does not have (yet): present and zero, so that boards and alerts made for vLLM read on.

Labels that only such a feature has carry one placeholder each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# Nothing is ever observed, so a bucket beside +Inf is enough.
_BUCKETS = (1.0,)
_TIER = {"tier": "none"}
_OPERATION = {"operation": "none", "status": "none"}


@dataclass(frozen=True)
class Inactive:
    """Families of one type with the same labels."""

    kind: type[Counter] | type[Gauge] | type[Histogram]
    names: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)


INACTIVE = (
    Inactive(
        Counter,
        (
            "external_prefix_cache_queries",
            "external_prefix_cache_hits",
            "mm_cache_queries",
            "mm_cache_hits",
            "corrupted_requests",
            "spec_decode_num_drafts",
            "spec_decode_num_draft_tokens",
            "spec_decode_num_accepted_tokens",
            "diffusion_num_denoising_steps",
            "diffusion_num_canvas_positions",
            "diffusion_num_committed_tokens",
            "estimated_flops_per_gpu_total",
            "estimated_read_bytes_per_gpu_total",
            "estimated_write_bytes_per_gpu_total",
            "nixl_num_failed_transfers",
            "nixl_num_failed_notifications",
            "nixl_num_kv_expired_reqs",
            "hf3fs_num_failed_load",
            "hf3fs_num_failed_save",
            "kv_offload_load_bytes",
            "kv_offload_load_time",
            "kv_offload_store_bytes",
            "kv_offload_store_time",
            "kv_offload_allocation_failure",
            "kv_offload_stores_skipped",
        ),
    ),
    Inactive(Counter, ("spec_decode_num_accepted_tokens_per_pos",), {"position": "0"}),
    Inactive(
        Counter,
        (
            "mooncake_store_operation_total",
            "mooncake_store_operation_keys_total",
            "mooncake_store_operation_bytes_total",
            "mooncake_store_operation_failed_keys_total",
        ),
        _OPERATION,
    ),
    Inactive(Histogram, ("mooncake_store_operation_time_seconds",), _OPERATION),
    Inactive(
        Histogram,
        (
            "kv_block_lifetime_seconds",
            "kv_block_idle_before_evict_seconds",
            "kv_block_reuse_gap_seconds",
            "nixl_xfer_time_seconds",
            "nixl_post_time_seconds",
            "nixl_bytes_transferred",
            "nixl_num_descriptors",
            "hf3fs_load_duration_seconds",
            "hf3fs_save_duration_seconds",
            "kv_offload_load_size",
            "kv_offload_store_size",
            "kv_offload_lookup_sync_delay_seconds",
            "kv_offload_lookup_async_delay_seconds",
        ),
    ),
    Inactive(
        Gauge,
        (
            "kv_offload_cpu_cache_usage_perc",
            "kv_offload_cpu_cache_read_usage_perc",
            "kv_offload_cpu_cache_write_usage_perc",
            "kv_offload_cpu_allocation_size",
        ),
    ),
    Inactive(
        Gauge,
        ("lora_requests_info",),
        {"max_lora": "0", "waiting_lora_adapters": "", "running_lora_adapters": ""},
    ),
    Inactive(
        Histogram,
        (
            "kv_offload_tiering_lookup_sync_delay_seconds",
            "kv_offload_tiering_lookup_async_delay_seconds",
        ),
        _TIER,
    ),
    Inactive(
        Counter,
        (
            "kv_offload_tiering_read_bytes",
            "kv_offload_tiering_write_bytes",
            "kv_offload_tiering_read_time",
            "kv_offload_tiering_write_time",
            "kv_offload_tiering_promotion_job_failures",
            "kv_offload_tiering_cascade_job_failures",
            "kv_offload_tiering_block_queries",
            "kv_offload_tiering_block_hits",
            "kv_offload_tiering_promotion_allocation_failures",
        ),
        _TIER,
    ),
    Inactive(
        Gauge,
        (
            "kv_offload_tiering_primary_read_usage_perc",
            "kv_offload_tiering_primary_write_usage_perc",
            "kv_offload_tiering_active_promotion_jobs",
            "kv_offload_tiering_active_cascade_jobs",
        ),
        _TIER,
    ),
)
# Of the server and of no model.
INACTIVE_HTTP = (
    Inactive(Gauge, ("websocket_connections_active",)),
    Inactive(Counter, ("websocket_connections",)),
    Inactive(Histogram, ("websocket_connection_duration_seconds",)),
)


def add_inactive(
    rows: tuple[Inactive, ...], registry: CollectorRegistry, prefix: str, labels: Mapping[str, str]
) -> None:
    """Register the families of `rows` with a series of zeros each."""
    for row in rows:
        values = {**labels, **row.labels}
        for name in row.names:
            full_name, text = f"{prefix}:{name}", "Not active in this engine: zero."
            family: Counter | Gauge | Histogram
            if issubclass(row.kind, Histogram):
                family = Histogram(full_name, text, list(values), buckets=_BUCKETS, registry=registry)
            else:
                family = row.kind(full_name, text, list(values), registry=registry)
            if values:
                family.labels(**values)
