"""The page tensors, the warm-up, and an executor from its configuration to a sampled token."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.worker.fake_model import LAYOUT, VOCAB, HashModel

from octavo import ops
from octavo.attention.metadata import ForwardBatch
from octavo.config.octavo_config import (
    CacheConfig,
    DeviceConfig,
    LoadConfig,
    ModelConfig,
    ObservabilityConfig,
    OctavoConfig,
    SchedulerConfig,
)
from octavo.executor import UniprocExecutor
from octavo.lib.errors import CheckpointError, ConfigError, OctavoError
from octavo.platforms import UNBOUND, ThreadPlaces, process_rss
from octavo.scheduling.kv.groups import plan_groups
from octavo.types.kv import KV_DTYPES, KVGroup, KVLayout
from octavo.types.sampling_params import SamplingParams
from octavo.types.step import NewRequest, StepPlan
from octavo.worker.kv_tensors import KVTensors
from octavo.worker.model_runner import ModelRunner
from octavo.worker.warmup import warm_up

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}


def config_for(folder: Path, **device: Any) -> OctavoConfig:
    (folder / "config.json").write_text(json.dumps(TINY))
    path = str(folder)
    return OctavoConfig(
        model=ModelConfig(
            model=path,
            served_model_names=("tiny",),
            tokenizer=path,
            dtype="bfloat16",
            max_model_len=128,
            vocab_size=64,
            eos_token_ids=(2,),
        ),
        cache=CacheConfig(),
        scheduler=SchedulerConfig(max_num_seqs=4),
        device=DeviceConfig(**device),
        load=LoadConfig(load_format="dummy"),
        observability=ObservabilityConfig(),
    )


class HugeMachine:
    """A platform with more cores than the kernels use."""

    def default_num_threads(self) -> int:
        return 384


@pytest.fixture
def threads_used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ThreadPlaces]]:
    """What a worker asks of `ops.set_num_threads`, on a huge machine."""
    used: list[tuple[int, ThreadPlaces]] = []
    check = ops.set_num_threads

    def use(n: int, places: ThreadPlaces = UNBOUND) -> None:
        if n > ops.MAX_THREADS:
            check(n)
        used.append((n, places))

    monkeypatch.setattr("octavo.worker.worker.select_platform", lambda device: HugeMachine())
    monkeypatch.setattr("octavo.worker.worker.thread_places", lambda n: ThreadPlaces(((0,),) * n, (n,)))
    monkeypatch.setattr(ops, "set_num_threads", use)
    return used


@pytest.fixture(autouse=True)
def same_threads_after() -> Any:
    before = ops.num_threads(), torch.get_num_threads()
    yield
    ops.set_num_threads(before[0])
    torch.set_num_threads(before[1])


def plan_of(prompt: list[int]) -> StepPlan:
    request = NewRequest(
        request_id="a",
        token_ids=prompt,
        num_prompt_tokens=len(prompt),
        num_computed_tokens=0,
        block_ids=[[1]],
        sampling=SamplingParams(temperature=0.0),
        stop_token_ids=[2],
    )
    return StepPlan(
        step_id=1,
        released=[],
        new_requests=[request],
        num_scheduled_tokens={"a": len(prompt)},
        new_block_ids={},
    )


def test_an_executor_from_config_to_token(tmp_path: Path) -> None:
    executor = UniprocExecutor(config_for(tmp_path, num_threads=1))
    seen: list[tuple[int, int]] = []
    facts = executor.load(lambda done, total: seen.append((done, total)))
    assert facts.architecture == "LlamaForCausalLM"
    assert facts.vocab_size == 64
    assert [(layer.num_kv_heads, layer.head_dim) for layer in facts.kv_layers] == [(2, 8)] * 2
    assert facts.num_threads == 1
    assert facts.isa in ops.available_isas()
    assert facts.weight_bytes > 2 * 64 * 32 * 2
    assert seen[-1][0] == seen[-1][1] > 0
    executor.allocate_kv(plan_groups(facts.kv_layers, 32, "float32"), 3)
    output = executor.execute_model(plan_of([5, 6, 7]))
    assert output.step_id == 1
    assert len(output.results[0].token_ids) == 1
    executor.shutdown()
    executor.shutdown()


def test_calls_out_of_order_say_so(tmp_path: Path) -> None:
    executor = UniprocExecutor(config_for(tmp_path))
    with pytest.raises(OctavoError, match="before load"):
        executor.allocate_kv(LAYOUT, 3)
    with pytest.raises(OctavoError, match="before allocate_kv"):
        executor.execute_model(plan_of([1]))


def test_an_unknown_device_is_refused_before_loading(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="device must be"):
        UniprocExecutor(config_for(tmp_path, device="abacus")).load()


def test_pages_take_memory_only_when_touched() -> None:
    layout = KVLayout(64, 8, 64, "float32", (KVGroup((0, 1, 2, 3)),))
    before = process_rss()
    tensors = KVTensors(layout, 2000)
    assert tensors.nbytes == 2001 * layout.block_bytes > 1 << 30
    assert process_rss() - before < 64 << 20
    key, value = tensors.pairs[3]
    assert not key[[0, 1000, 2000]].any()
    value[2000] = 1.0
    assert float(value[2000].sum()) == value[2000].numel()


def test_each_layer_gets_its_group_and_its_own_tensor() -> None:
    layout = KVLayout(16, 1, 8, "bfloat16", (KVGroup((0, 3)), KVGroup((1, 4), 32), KVGroup((2,), 32)))
    tensors = KVTensors(layout, 5)
    bindings = tensors.bindings()
    assert [binding.group for binding in bindings] == [0, 1, 2, 0, 1]
    places = {id(key): place for place, (key, _) in enumerate(tensors.pairs)}
    assert [places[id(one.k_cache)] for one in bindings] == [0, 0, 0, 1, 1]
    assert all(one.v_cache is tensors.pairs[places[id(one.k_cache)]][1] for one in bindings)
    shapes = ops.kv_cache_shapes(6, 1, 8, 16)
    assert (tuple(bindings[0].k_cache.shape), tuple(bindings[0].v_cache.shape)) == tuple(map(tuple, shapes))
    assert bindings[0].k_cache.dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_pages_are_as_large_as_the_layout_says(dtype: str) -> None:
    layout = KVLayout(16, 2, 8, dtype, (KVGroup((0, 1)),))
    tensors = KVTensors(layout, 5)
    assert sum(cache.nbytes for pair in tensors.pairs for cache in pair) == tensors.nbytes


def test_too_much_memory_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(ConfigError, match=r"cannot reserve \d+ MiB for the key-value cache"):
        KVTensors(LAYOUT, 10)


def test_warm_up_writes_nothing() -> None:
    runner = ModelRunner(HashModel(), LAYOUT, 4, vocab_size=VOCAB, max_num_seqs=2)
    warm_up(runner)
    assert not any(tensor.any() for pair in runner.kv.pairs for tensor in pair)


def test_warm_up_finds_damaged_weights() -> None:
    class Damaged(HashModel):
        def forward(self, batch: ForwardBatch) -> torch.Tensor:
            return super().forward(batch) * torch.nan

    with pytest.raises(CheckpointError, match="weights are damaged"):
        warm_up(ModelRunner(Damaged(), LAYOUT, 4, vocab_size=VOCAB, max_num_seqs=2))


def test_more_cores_than_the_kernels_use(
    tmp_path: Path, threads_used: list[tuple[int, ThreadPlaces]]
) -> None:
    for device in ({}, {"bind_threads": False}, {"num_threads": 3}):
        UniprocExecutor(config_for(tmp_path, **device)).load()
    assert [n for n, _ in threads_used] == [256, 256, 3]
    assert [bool(places.cpus) for _, places in threads_used] == [True, False, True]


def test_more_threads_than_there_can_be_are_refused(
    tmp_path: Path, threads_used: list[tuple[int, ThreadPlaces]]
) -> None:
    with pytest.raises(ConfigError, match=r"num_threads must be in \[1, 256\], got 300"):
        UniprocExecutor(config_for(tmp_path, num_threads=300)).load()
    assert threads_used == []
