"""Promise 2: the logits of a token depend on the tokens before it and on nothing else, to the bit.

Every run keeps a digest of the logits of every position. The reference is the sequence alone, prefilled in one piece,
on one thread; whatever else happens around it must give the same digests.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import assets
from tests.engine.stepping import RecordingRunner, Stepper, load, threads, write_config

from octavo.models.decoder import Decoder
from octavo.types.kv import KV_DTYPES
from octavo.types.sampling_params import SamplingParams

# Tiny models in bfloat16: one of the plain kind, one with sliding windows, sandwich norms and grouped heads, one of experts.
TINY = {
    "llama-bf16": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": 301,
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "eos_token_id": 2,
    },
    "gemma3-bf16": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "torch_dtype": "bfloat16",
        "vocab_size": 301,
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "sliding_window": 24,
        "sliding_window_pattern": 6,
        "query_pre_attn_scalar": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "eos_token_id": 1,
    },
    "qwen3moe-bf16": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "torch_dtype": "bfloat16",
        "vocab_size": 301,
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_experts": 9,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "eos_token_id": 2,
    },
}


@dataclass
class Subject:
    """A model and the digests of sequences that ran alone."""

    model: Decoder
    known: dict[tuple[object, ...], tuple[list[int], dict[int, bytes]]] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int:
        return self.model.spec.vocab_size

    def prompt(self, length: int, seed: int) -> list[int]:
        """Pseudo-random tokens."""
        return random.Random(seed).choices(range(self.vocab_size), k=length)

    def alone(
        self, prompt: Sequence[int], count: int, kv_dtype: str = "float32"
    ) -> tuple[list[int], dict[int, bytes]]:
        """Tokens and digests of the sequence by itself."""
        key = (kv_dtype, count, *prompt)
        if key not in self.known:
            with threads(1):
                stepper = Stepper(self.model, runner=RecordingRunner, kv_dtype=kv_dtype)
                stepper.add("alone", prompt, greedy(count))
                answers = stepper.run()
            self.known[key] = (answers["alone"].token_ids, digests(stepper)["alone"])
        return self.known[key]

    def check(self, stepper: Stepper, requests: dict[str, tuple[Sequence[int], int]]) -> None:
        """Compare all requests of a finished run with their solo runs."""
        assert runner_of(stepper).conflicts == []
        for request_id, (prompt, count) in requests.items():
            tokens, expected = self.alone(prompt, count, stepper.layout.dtype)
            answer = stepper.answers[request_id]
            found = digests(stepper)[request_id]
            wrong = [position for position in sorted(found) if found[position] != expected.get(position)]
            assert not wrong, f"request {request_id}: other bits at positions {wrong[:10]} of {len(found)}"
            assert answer.token_ids == tokens[: len(answer.token_ids)]
            if answer.finished:
                assert len(answer.token_ids) == count
                assert len(found) == len(expected) - answer.num_cached_tokens


def greedy(count: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=count)


def runner_of(stepper: Stepper) -> RecordingRunner:
    assert isinstance(stepper.runner, RecordingRunner)
    return stepper.runner


def digests(stepper: Stepper) -> dict[str, dict[int, bytes]]:
    return runner_of(stepper).digests


def run_all(
    subject: Subject,
    requests: dict[str, tuple[Sequence[int], int]],
    num_threads: int = 2,
    watched: Sequence[str] | None = None,
    **options: Any,
) -> Stepper:
    """Run requests together and compare them (or only those `watched`) with their solo runs."""
    stepper = Stepper(subject.model, runner=RecordingRunner, **options)
    with threads(num_threads):
        for request_id, (prompt, count) in requests.items():
            stepper.add(request_id, prompt, greedy(count))
        stepper.run()
    subject.check(stepper, requests if watched is None else {name: requests[name] for name in watched})
    return stepper


@pytest.fixture(scope="module", params=["smollm2-q4_1", *TINY])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    if request.param == "smollm2-q4_1":
        return Subject(load(assets.smollm2_gguf()))
    return Subject(tiny_model(request.param, tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module", params=list(TINY))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return Subject(tiny_model(request.param, tmp_path_factory.mktemp("tiny")))


def tiny_model(name: str, folder: Path) -> Decoder:
    return load(write_config(folder, TINY[name]), load_format="dummy")


def test_digests_tell_sequences_apart(subject: Subject) -> None:
    """The instrument itself: one other token changes every later digest and none before it."""
    prompt = subject.prompt(20, 0)
    changed = [*prompt[:10], (prompt[10] + 1) % subject.vocab_size, *prompt[11:]]
    first, second = subject.alone(prompt, 1)[1], subject.alone(changed, 1)[1]
    assert len(first) == 20
    assert [position for position in first if first[position] == second[position]] == list(range(10))
    assert len(set(first.values())) == 20


@pytest.mark.parametrize("size", [2, 7, 32])
def test_in_a_batch(subject: Subject, size: int) -> None:
    requests = {"first": (subject.prompt(37, 0), 6)}
    requests |= {f"r{i}": (subject.prompt(1 + 4 * (i % 7), i), 1 + i % 5) for i in range(1, size)}
    stepper = run_all(subject, requests, watched=["first", "r1", f"r{size // 2}", f"r{size - 1}"])
    assert stepper.step_sizes.count(1) < 6  # they did run together


@pytest.mark.parametrize("chunk", [1, 16, 33, 512])
def test_prefill_chunks(subject: Subject, chunk: int) -> None:
    length = 70 if chunk == 1 else 530
    stepper = run_all(subject, {"a": (subject.prompt(length, 1), 3)}, max_num_batched_tokens=chunk)
    assert max(stepper.step_sizes) == chunk


def test_chunks_beside_decodes(subject: Subject) -> None:
    requests = {"decode": (subject.prompt(5, 2), 12), "prefill": (subject.prompt(200, 3), 3)}
    stepper = run_all(subject, requests, max_num_batched_tokens=64, long_prefill_token_threshold=33)
    assert 34 in stepper.step_sizes


def test_after_a_prefix_cache_hit(subject: Subject) -> None:
    prompt = subject.prompt(101, 4)
    stepper = Stepper(subject.model, runner=RecordingRunner, enable_prefix_caching=True)
    requests = {"cold": (prompt, 3), "warm": (prompt, 3), "longer": (prompt + subject.prompt(30, 5), 3)}
    for request_id, (ids, count) in requests.items():
        stepper.add(request_id, ids, greedy(count))
        stepper.run()
    subject.check(stepper, requests)
    assert [stepper.answers[name].num_cached_tokens for name in requests] == [0, 96, 96]


def test_after_preemption(subject: Subject) -> None:
    pages = Stepper(subject.model).scheduler.kv.pages_for
    # Both begin side by side; the second takes the last pages first, and the first takes them back.
    requests = {"first": (subject.prompt(40, 0), 20), "second": (subject.prompt(47, 1), 20)}
    stepper = run_all(subject, requests, num_blocks=pages(60) + pages(47))
    assert stepper.num_preemptions > 0


@pytest.mark.parametrize("num_threads", [1, 2])
def test_threads(subject: Subject, num_threads: int) -> None:
    run_all(subject, {"a": (subject.prompt(120, 6), 4), "b": (subject.prompt(11, 7), 4)}, num_threads)


@st.composite
def mixes(draw: st.DrawFn) -> dict[str, Any]:
    """Any way to run up to nine requests."""
    lengths = draw(st.lists(st.integers(1, 90), min_size=1, max_size=9))
    return {
        "lengths": lengths,
        "counts": [draw(st.integers(1, 8)) for _ in lengths],
        "arrivals": [draw(st.integers(0, 6)) for _ in lengths],
        # Some share their beginning with the first.
        "shared": [draw(st.integers(0, 64)) for _ in lengths],
        "aborted": draw(st.sets(st.integers(0, len(lengths) - 1), max_size=2)),
        "num_threads": draw(st.sampled_from([1, 2])),
        "options": {
            "block_size": draw(st.sampled_from([16, 32])),
            "max_num_batched_tokens": draw(st.sampled_from([1, 5, 16, 33, 64, 512])),
            "long_prefill_token_threshold": draw(st.sampled_from([0, 7, 20])),
            "enable_prefix_caching": draw(st.booleans()),
            "num_blocks": draw(st.sampled_from([40, 60, 400])),
            "max_num_seqs": draw(st.sampled_from([1, 3, 16])),
            "kv_dtype": draw(st.sampled_from(KV_DTYPES)),
        },
    }


def run_mix(subject: Subject, mix: dict[str, Any]) -> None:
    first = subject.prompt(64, 99)
    requests: dict[str, tuple[Sequence[int], int]] = {}
    for i, (length, count, shared) in enumerate(
        zip(mix["lengths"], mix["counts"], mix["shared"], strict=True)
    ):
        requests[f"r{i}"] = ((first[:shared] + subject.prompt(length, i))[:length], count)
    stepper = Stepper(subject.model, runner=RecordingRunner, **mix["options"])
    waiting = sorted(zip(mix["arrivals"], requests, strict=True))
    number = 0
    with threads(mix["num_threads"]):
        while waiting or stepper.scheduler.has_work():
            while waiting and waiting[0][0] <= number:
                request_id = waiting.pop(0)[1]
                stepper.add(request_id, requests[request_id][0], greedy(requests[request_id][1]))
            if stepper.scheduler.has_work():
                stepper.step()
            number += 1
            if number == 5:
                for i in mix["aborted"]:
                    stepper.abort(f"r{i}")
    ran = {request_id: requests[request_id] for request_id in digests(stepper)}
    subject.check(stepper, ran)


RELAXED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=RELAXED)
@given(mix=mixes())
def test_random_mixes(tiny: Subject, mix: dict[str, Any]) -> None:
    run_mix(tiny, mix)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=RELAXED)
@given(mix=mixes())
def test_many_random_mixes(tiny: Subject, mix: dict[str, Any]) -> None:
    run_mix(tiny, mix)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=RELAXED)
@given(mix=mixes())
def test_random_mixes_of_a_real_model(real: Subject, mix: dict[str, Any]) -> None:
    run_mix(real, mix)


@pytest.fixture(scope="module")
def real() -> Subject:
    return Subject(load(assets.smollm2_gguf()))
