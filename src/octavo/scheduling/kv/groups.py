"""Page groups: layers that keep the same tokens share a block table, and one pool of equal pages serves all groups.

The idea is vLLM's hybrid KV cache manager: a block is one page in each of `group_size` tensors, and each group owns the
blocks that its table names. A sliding-window group can so give back pages that a full-attention group then takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.lib.errors import NotSupportedError
from octavo.types.kv import KVGroup, KVLayer, KVLayout

# Largest share of unused layer slots in the blocks of a kind. Blocks of full attention grow with the context, those of
# a window do not, so that the latter may waste more for the sake of fewer groups.
_MAX_PADDING_FULL = 1 / 8
_MAX_PADDING_WINDOW = 1 / 4


def plan_groups(layers: Sequence[KVLayer], block_size: int, dtype: str) -> KVLayout:
    """Divide `layers` into page groups, full attention first.

    Layers of the same window are one kind. Each kind is cut into groups of equal size; a last group may be smaller and
    then leaves slots of its blocks unused (see `num_padding_slots`).

    Raises:
        NotSupportedError: the layers differ in their number of KV heads or head dimension.
    """
    shapes = {(layer.num_kv_heads, layer.head_dim) for layer in layers}
    if len(shapes) != 1:
        raise NotSupportedError(
            f"all attention layers of a model must keep keys and values of one shape; found (kv heads, head dim) {sorted(shapes)}"
        )
    kinds: dict[int, list[int]] = {}
    for number, layer in enumerate(layers):
        kinds.setdefault(layer.window, []).append(number)
    size = _group_size({window: len(members) for window, members in kinds.items()})
    groups = [
        KVGroup(tuple(kinds[window][start : start + size]), window)
        for window in sorted(kinds)
        for start in range(0, len(kinds[window]), size)
    ]
    num_kv_heads, head_dim = shapes.pop()
    return KVLayout(block_size, num_kv_heads, head_dim, dtype, tuple(groups))


def num_padding_slots(layout: KVLayout) -> int:
    """Layer slots of the groups' blocks that no layer uses."""
    return sum(layout.num_tensors - len(group.layers) for group in layout.groups)


def _group_size(counts: dict[int, int]) -> int:
    """The largest group size that wastes little in each kind; `counts` maps a window (0 = full) to its layers."""
    return next(size for size in range(max(counts.values()), 0, -1) if _wastes_little(counts, size))


def _wastes_little(counts: dict[int, int], size: int) -> bool:
    for window, count in counts.items():
        limit = _MAX_PADDING_WINDOW if window else _MAX_PADDING_FULL
        if -count % size > limit * count:
            return False
    return True
