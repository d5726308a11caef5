"""How many pages the key-value cache gets: from flags, or from the memory that is really free; and the table that says so."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config import CacheConfig, SchedulerConfig
from octavo.lib.errors import ConfigError
from octavo.lib.human_numbers import format_bytes
from octavo.types.kv import KVLayout

# Activations of one step, per token: measured generously; counts only where memory is short.
_WORKSPACE_PER_TOKEN = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class MemoryFacts:
    """What is known once the weights are loaded. All in bytes."""

    weight_bytes: int
    memory_available: int
    """Free now, container limits included."""
    workspace_bytes: int


def workspace_bytes(scheduler: SchedulerConfig, vocab_size: int) -> int:
    """Room for activations and logits of the largest step."""
    logits = 2 * 4 * vocab_size * scheduler.max_num_seqs
    return logits + _WORKSPACE_PER_TOKEN * scheduler.max_num_batched_tokens


def pages_for_tokens(layout: KVLayout, tokens: int) -> int:
    """Blocks that hold `tokens` tokens of one request in every page group."""
    return -(-tokens // layout.block_size) * len(layout.groups)


def size_pool(cache: CacheConfig, layout: KVLayout, memory: MemoryFacts, max_model_len: int) -> int:
    """Number of pages, the null page not counted.

    Raises:
        ConfigError: not even one page fits; says what is needed and what is there.
    """
    if cache.num_blocks is not None:
        return cache.num_blocks
    if cache.memory_bytes is not None:
        return _checked(cache.memory_bytes // layout.block_bytes, layout, cache.memory_bytes)
    free = _free_for_pages(cache, memory)
    fitting = _checked(free // layout.block_bytes, layout, free)
    if cache.target_tokens is None:
        return fitting
    return min(fitting, pages_for_tokens(layout, max(cache.target_tokens, max_model_len)))


def _free_for_pages(cache: CacheConfig, memory: MemoryFacts) -> int:
    before_loading = memory.memory_available + memory.weight_bytes
    return int(before_loading * cache.memory_utilization) - memory.weight_bytes - memory.workspace_bytes


def _checked(blocks: int, layout: KVLayout, available: int) -> int:
    if blocks < 1:
        raise ConfigError(
            f"No memory for the key-value cache: one page needs {format_bytes(layout.block_bytes)}, and "
            f"{format_bytes(max(available, 0))} are left for pages. Use a smaller model, or raise "
            f"--memory-utilization or --kv-cache-memory-bytes.",
            param="kv_cache_memory_bytes",
        )
    return blocks


def memory_table(layout: KVLayout, num_blocks: int, memory: MemoryFacts, max_model_len: int) -> list[str]:
    """The start-up table: where memory goes and how many requests of full length fit at once."""
    tokens = num_blocks // max(len(layout.groups), 1) * layout.block_size
    rows = [
        ("weights", format_bytes(memory.weight_bytes), ""),
        ("KV pages", format_bytes(num_blocks * layout.block_bytes), _pages_text(layout, num_blocks)),
        ("KV tokens", f"{tokens:,}", f"{tokens / max_model_len:.1f} requests of {max_model_len:,} tokens"),
        (
            "free before",
            format_bytes(memory.memory_available),
            "after the weights, container limits included",
        ),
    ]
    return [f"  {name:<12}{amount:>12}  {note}".rstrip() for name, amount, note in rows]


def _pages_text(layout: KVLayout, num_blocks: int) -> str:
    kinds = "full" if all(group.window == 0 for group in layout.groups) else "full and sliding-window"
    return f"{num_blocks:,} pages of {layout.block_size} tokens, {layout.dtype}, {kinds} layers"
