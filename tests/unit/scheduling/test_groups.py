from __future__ import annotations

import pytest

from octavo.lib.errors import NotSupportedError
from octavo.scheduling.kv.groups import num_padding_slots, plan_groups
from octavo.types.kv import KVLayer


def _layers(*windows: int) -> list[KVLayer]:
    return [KVLayer(2, 64, window) for window in windows]


def test_one_kind_is_one_group() -> None:
    layout = plan_groups(_layers(0, 0, 0, 0, 0), 32, "bfloat16")
    assert [(group.layers, group.window) for group in layout.groups] == [((0, 1, 2, 3, 4), 0)]
    assert (layout.block_size, layout.num_kv_heads, layout.head_dim, layout.dtype) == (32, 2, 64, "bfloat16")
    assert layout.block_bytes == 5 * 2 * 32 * 2 * 64 * 2


def test_gemma3_270m_has_one_full_group_and_five_of_windows() -> None:
    windows = [0 if layer % 6 == 5 else 512 for layer in range(18)]
    layout = plan_groups(_layers(*windows), 32, "float32")
    assert [group.window for group in layout.groups] == [0, 512, 512, 512, 512, 512]
    assert layout.groups[0].layers == (5, 11, 17)
    assert num_padding_slots(layout) == 0


@pytest.mark.parametrize(
    ("num_window", "num_full", "group_size"),
    [(13, 13, 13), (22, 4, 4), (52, 10, 11), (25, 24, 25), (29, 5, 5)],
)
def test_group_size_wastes_little(num_window: int, num_full: int, group_size: int) -> None:
    windows = [1024] * num_window + [0] * num_full
    layout = plan_groups(_layers(*windows), 16, "float32")
    assert layout.num_tensors == group_size
    full = [group for group in layout.groups if not group.window]
    assert len(full) * group_size - num_full <= num_full / 8
    assert num_padding_slots(layout) <= len(windows) / 4


def test_every_layer_is_in_one_group() -> None:
    windows = [0, 8, 8, 0, 16, 8, 8, 8, 16, 8]
    layout = plan_groups(_layers(*windows), 16, "float32")
    members = [layer for group in layout.groups for layer in group.layers]
    assert sorted(members) == list(range(10))
    assert all(windows[layer] == group.window for group in layout.groups for layer in group.layers)


def test_layers_of_different_shapes_are_refused() -> None:
    with pytest.raises(NotSupportedError, match=r"\(2, 64\), \(4, 64\)"):
        plan_groups([KVLayer(2, 64), KVLayer(4, 64)], 16, "float32")
