"""Prompts as rows of the embedding: on a real model the rows of its own tokens must give what the tokens give."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.assets import smollm2_gguf
from tests.engine.fakes import HIDDEN, fake_config, fake_tokenizer

from octavo import LLM, SamplingParams
from octavo.engine.clients.inproc import InprocClient
from octavo.engine.input import InputProcessor
from octavo.engine.prompt_embeds import read_embeds
from octavo.lib.errors import InvalidRequestError

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, logprobs=2)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    settings: dict[str, Any] = {"max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 64}
    with LLM(str(smollm2_gguf()), enable_prompt_embeds=True, **settings) as model:
        yield model


def rows_of(llm: LLM, ids: list[int]) -> torch.Tensor:
    """What the model's own embedding gives for these tokens."""
    assert isinstance(llm.llm_engine.client, InprocClient)
    worker = llm.llm_engine.client.core.executor._worker  # type: ignore[attr-defined]
    rows: torch.Tensor = worker._decoder.model.embed_tokens.forward(torch.tensor(ids))
    return rows.clone()


def answers(llm: LLM, prompts: list[Any], params: SamplingParams = GREEDY) -> list[Any]:
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [(output.outputs[0].token_ids, output.outputs[0].logprobs) for output in outputs]


def test_rows_of_tokens_give_the_answers_of_these_tokens(llm: LLM) -> None:
    """One row alone, several pages, and more than one step takes; beside prompts of tokens; the second time from the cache."""
    prompts = [[900], list(range(300, 340)), list(range(1000, 1150)), list(range(500, 532))]
    wanted = answers(llm, prompts)
    embedded = [{"prompt_embeds": rows_of(llm, ids)} for ids in prompts]
    assert answers(llm, embedded) == wanted
    mixed = [embedded[0], prompts[1], embedded[2], prompts[3]]
    assert answers(llm, mixed) == wanted
    outputs = llm.generate(embedded, GREEDY, use_tqdm=False)
    assert outputs[2].num_cached_tokens == 128


def test_other_rows_never_hit_the_pages_of_some(llm: LLM) -> None:
    rows = rows_of(llm, list(range(2000, 2100)))
    changed = rows.clone()
    changed[0] = 0.5
    first, second, zeros = (
        llm.generate([prompt], GREEDY, use_tqdm=False)[0]
        for prompt in ({"prompt_embeds": rows}, {"prompt_embeds": changed}, [0] * 100)
    )
    assert (second.num_cached_tokens, zeros.num_cached_tokens) == (0, 0)
    assert first.outputs[0].logprobs != second.outputs[0].logprobs


def test_placeholders_are_not_penalised(llm: LLM) -> None:
    """`repetition_penalty` counts prompt tokens; rows of the embedding are none."""
    ids = list(range(300, 320))
    params = SamplingParams(temperature=0.0, max_tokens=4, logprobs=2, repetition_penalty=1.5)
    rows = {"prompt_embeds": rows_of(llm, ids).numpy()}
    assert answers(llm, [rows], params) == answers(llm, [rows], params)


def test_seeded_answers_with_n(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=3, n=2, max_tokens=6)
    ids = list(range(300, 320))
    by_tokens, by_rows = llm.generate([ids, {"prompt_embeds": rows_of(llm, ids)}], params, use_tqdm=False)
    assert [one.token_ids for one in by_rows.outputs] == [one.token_ids for one in by_tokens.outputs]


# -- at the door ------------------------------------------------------------------------------------------------------


def safetensors(array: NDArray[Any], dtype: str, names: tuple[str, ...] = ("x",)) -> str:
    data = array.tobytes()
    header = {
        name: {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [i * len(data), (i + 1) * len(data)],
        }
        for i, name in enumerate(names)
    }
    raw = json.dumps(header).encode()
    return base64.b64encode(len(raw).to_bytes(8, "little") + raw + data * len(names)).decode()


def test_three_float_types_are_read() -> None:
    values = np.array([[1.5, -2.0], [0.25, 3.0]], np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    for array, dtype in ((values, "F32"), (values.astype(np.float16), "F16"), (halves, "BF16")):
        assert (read_embeds(safetensors(array, dtype)) == values).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not base64!", "base64"),
        ("", "too short"),
        (base64.b64encode(b"\xff" * 40).decode(), "header"),
        (safetensors(np.zeros((1, 4), np.int64), "I64"), "F32, F16 or BF16, got I64"),
        (safetensors(np.zeros((1, 4), np.float32), "F32", ("a", "b")), "one tensor, got 2"),
        (safetensors(np.zeros((1, 4), np.float32), "F32")[:-8], "."),
    ],
)
def test_what_is_no_tensor_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        read_embeds(text)
    assert caught.value.param == "prompt_embeds"


@pytest.mark.parametrize(
    ("rows", "sampling", "message"),
    [
        (np.zeros((2, HIDDEN + 1)), {}, rf"shape \[tokens, {HIDDEN}\]"),
        (np.zeros(HIDDEN), {}, "shape"),
        (np.zeros((0, HIDDEN)), {}, "shape"),
        (np.full((2, HIDDEN), np.nan), {}, "finite"),
        (np.full((2, HIDDEN), 1e300), {}, "finite"),
        ("rows", {}, "tensor"),
        (np.zeros((600, HIDDEN)), {}, "context length"),
        (np.zeros((2, HIDDEN)), {"prompt_logprobs": 1}, "prompt_logprobs are of tokens"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_rows_that_cannot_be_a_prompt_are_refused(rows: Any, sampling: dict[str, Any], message: str) -> None:
    processor = InputProcessor(fake_config(enable_prompt_embeds=True).model, fake_tokenizer())
    with pytest.raises(InvalidRequestError, match=message):
        processor.process("r", {"prompt_embeds": rows}, SamplingParams(max_tokens=4, **sampling))


def test_they_must_be_asked_for() -> None:
    processor = InputProcessor(fake_config().model, fake_tokenizer())
    with pytest.raises(InvalidRequestError, match="--enable-prompt-embeds"):
        processor.process("r", {"prompt_embeds": np.zeros((1, HIDDEN))}, SamplingParams(max_tokens=4))
