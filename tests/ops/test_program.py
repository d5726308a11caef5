"""Step programs: recorded ops replay to the bits of the ops themselves, and what cannot be recorded is refused."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable

import pytest
import torch

from octavo import ops
from octavo.compilation import StepProgram
from octavo.compilation.buffers import BufferPool
from octavo.lib.errors import NotSupportedError
from octavo.ops.program import OpTime, PageInputs, Program, StepInputs, op_times, ops_are_timed

ROWS, HIDDEN, VOCAB = 40, 64, 100


def inputs(rows: int, seed: int = 0) -> StepInputs:
    generator = torch.Generator().manual_seed(seed)
    return StepInputs(
        torch.randint(VOCAB, (rows,), generator=generator),
        torch.arange(rows),
        torch.tensor([0, rows], dtype=torch.int32),
        torch.tensor([rows], dtype=torch.int32),
        (PageInputs(torch.tensor([[1, 2, 3]], dtype=torch.int32), torch.arange(rows) + 16),),
    )


class Model:
    """A little of everything: embedding, norm, rotation, pages, attention, a gated product, residuals."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator)

        self.embedding = ops.pack_weight(random(VOCAB, HIDDEN).bfloat16(), "bf16", VOCAB, HIDDEN)
        self.qkv = ops.pack_weight(random(3 * HIDDEN, HIDDEN), "f32", 3 * HIDDEN, HIDDEN)
        self.gate_up = ops.pack_weight(random(2 * HIDDEN, HIDDEN), "f32", 2 * HIDDEN, HIDDEN)
        self.norm, self.bias = random(HIDDEN), random(2 * HIDDEN)
        self.cos_sin = random(64, 16)
        k_shape, v_shape = ops.kv_cache_shapes(4, 4, 16, 16)
        self.k_cache, self.v_cache = torch.zeros(k_shape), torch.zeros(v_shape)

    def __call__(self, step: StepInputs) -> torch.Tensor:
        x = ops.scale(ops.embedding(step.token_ids, self.embedding), 3.0)
        heads = ops.linear(ops.rms_norm(x, self.norm, 1e-5), [self.qkv]).view(x.shape[0], 12, 16)
        q, k, v = heads.split_with_sizes([4, 4, 4], 1)
        ops.rope(heads.narrow(1, 0, 8), step.positions, self.cos_sin)
        [group] = step.groups
        ops.write_kv(k, v, self.k_cache, self.v_cache, group.slot_mapping)
        attended = ops.paged_attention(
            ops.rms_norm(q, self.norm[:16], 1e-5),
            self.k_cache,
            self.v_cache,
            step.query_start,
            step.seq_lens,
            group.block_table,
            scale=0.25,
        )
        x = ops.add(x, attended)
        y = ops.act_mul(
            ops.linear(ops.layer_norm(x, self.norm, None, 1e-5), [self.gate_up], self.bias), "silu"
        )
        return ops.softcap(ops.add(x, y), 5.0)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def program(model: Model) -> StepProgram:
    example = inputs(ROWS)
    return StepProgram(lambda: model(example), example)


@pytest.mark.parametrize("rows", [1, 2, 17, ROWS])
def test_replay_gives_the_bits_of_the_ops(model: Model, program: StepProgram, rows: int) -> None:
    step = inputs(rows, seed=rows)
    expected = model(step)
    model.k_cache.zero_(), model.v_cache.zero_()
    assert torch.equal(program.run(step), expected)
    assert model.k_cache.count_nonzero() > 0


def test_a_timed_run_names_each_op(model: Model) -> None:
    example = inputs(4)
    program = Program(example)
    with program.record(torch.empty):
        rows = ops.embedding(example.token_ids, model.embedding)
        kept = ops.scale(rows, 2.0)
    timed = program.run_timed(example)
    assert [name for name, _ in timed] == ["embedding", "scale"]
    assert all(nanoseconds >= 0 for _, nanoseconds in timed)
    assert torch.equal(kept, ops.scale(ops.embedding(example.token_ids, model.embedding), 2.0))


def test_ops_are_timed_with_the_weights_that_they_read(model: Model) -> None:
    """Whole matrices count, rows of the embedding do not; the bits are those of a plain run."""
    example = inputs(4)
    program = Program(example)
    with program.record(torch.empty):
        hidden = ops.embedding(example.token_ids, model.embedding)  # held: the program writes there
        out = ops.linear(hidden, [model.qkv, model.gate_up])
    program.run(example)
    plain = out.clone()
    out.zero_()
    seen: list[tuple[int, list[OpTime]]] = []
    with op_times(lambda rows, times: seen.append((rows, times))):
        assert ops_are_timed()
        program.run(example)
    program.run(example)
    assert torch.equal(out, plain)
    [(rows, times)] = seen
    assert rows == 4
    assert [(op.name, op.weight_bytes) for op in times] == [
        ("embedding", 0),
        ("linear", model.qkv.nbytes + model.gate_up.nbytes),
    ]
    assert not ops_are_timed()


def test_recording_runs_nothing(model: Model) -> None:
    model.k_cache.zero_()
    example = inputs(4)
    StepProgram(lambda: model(example), example)
    assert model.k_cache.count_nonzero() == 0


def test_more_rows_than_recorded_are_refused(program: StepProgram) -> None:
    with pytest.raises(ValueError, match="41 rows; the program holds 40"):
        program.run(inputs(ROWS + 1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("token_ids", r"token_ids\[0\] is 64, must be at least 0 and below"),
        ("positions", r"positions\[0\] is 64"),
        ("slots", r"slot_mapping\[0\] is 64"),
        ("pages", "block_table"),
        ("groups", "0 page groups"),
    ],
)
def test_contents_are_checked_before_anything_runs(model: Model, name: str, message: str) -> None:
    example = inputs(4)
    program = StepProgram(lambda: model(example), example)
    step = inputs(4)
    if name in ("token_ids", "positions"):
        getattr(step, name)[0] = 164 if name == "token_ids" else 64
        message = message.replace("is 64", "is 164") if name == "token_ids" else message
    elif name == "slots":
        step.groups[0].slot_mapping[0] = 64
    elif name == "pages":
        step.groups[0].block_table[0, 0] = 9
    else:
        step = StepInputs(step.token_ids, step.positions, step.query_start, step.seq_lens, ())
    with pytest.raises(ValueError, match=message):
        program.run(step)


ESCAPES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a product": lambda x: x * 2,
    "a function": torch.relu,
    "in place": lambda x: x.mul_(2),
    "by an operator": lambda x: operator.imul(x, 2),
    "into an output": lambda x: torch.exp(x, out=x),
    "an item": lambda x: x[:, : int(x.abs().max())],
    "a copy": lambda x: x.t().contiguous(),
    "rows by index": lambda x: x[[1, 0]],
    "a new tensor": lambda x: torch.zeros(4, HIDDEN),
    "written rows": lambda x: x.__setitem__(0, 1.0) or x,
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_what_is_no_op_cannot_be_recorded(
    model: Model, escape: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    example = inputs(4)
    with pytest.raises(NotSupportedError, match=r"torch's \S+ cannot be recorded"):
        StepProgram(lambda: escape(model(example)), example)
    assert torch.equal(model(example), model(example))  # recording is off again


def test_foreign_tensors_cannot_stand_for_inputs(model: Model) -> None:
    example, other = inputs(4), inputs(4)
    with pytest.raises(ValueError, match="no input of the step"):
        StepProgram(lambda: model(other), example)


def test_values_that_do_not_live_together_share_memory() -> None:
    pool = BufferPool()
    first = pool.empty(8, 16)
    view = first[:, :4]
    address = first.data_ptr()
    del first
    gc.collect()
    second = pool.empty(8, 16)
    assert second.data_ptr() != address  # the view is still in use
    del view
    gc.collect()
    assert pool.empty(16, 8).data_ptr() == address
    assert pool.nbytes == 2 * 8 * 16 * 4
