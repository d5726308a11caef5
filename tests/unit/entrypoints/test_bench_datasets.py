"""Prompts: lengths, seeds, files, and flags that do not fit each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engine.fakes import fake_tokenizer

from octavo.entrypoints.bench.datasets import DatasetArgs, Sample, load_samples
from octavo.lib.errors import ConfigError


def samples(
    args: DatasetArgs, *, seed: int = 0, as_text: bool = False, tokenizer: bool = True
) -> list[Sample]:
    args.check()
    return load_samples(args, fake_tokenizer() if tokenizer else None, seed, as_text=as_text)


def test_random_prompts_have_their_length_and_follow_the_seed() -> None:
    args = DatasetArgs(num_prompts=5, random_input_len=40, random_output_len=7, random_prefix_len=8)
    made = samples(args)
    assert [(len(sample.token_ids), sample.output_len) for sample in made] == [(48, 7)] * 5
    assert len({tuple(sample.token_ids[:8]) for sample in made}) == 1
    assert len({tuple(sample.token_ids[8:]) for sample in made}) == 5
    assert made == samples(args) != samples(args, seed=1)
    special = fake_tokenizer().special_ids
    assert not any(special & set(sample.token_ids) for sample in made)


def test_lengths_vary_within_the_ratio() -> None:
    made = samples(DatasetArgs(num_prompts=300, input_len=100, output_len=10, random_range_ratio=0.5))
    lengths = [len(sample.token_ids) for sample in made]
    assert (min(lengths), max(lengths)) == (50, 150)
    assert {sample.output_len for sample in made} == set(range(5, 16))


def test_text_is_what_the_ids_say() -> None:
    for sample in samples(DatasetArgs(num_prompts=4, input_len=30), as_text=True):
        assert fake_tokenizer().encode(sample.text, add_special_tokens=False) == sample.token_ids
        assert len(sample.token_ids) >= 30  # bytes that are no text grow; with a real vocabulary it is exact


def test_common_beginnings() -> None:
    args = DatasetArgs(
        dataset_name="prefix_repetition", num_prompts=9, prefix_repetition_prefix_len=16,
        prefix_repetition_suffix_len=4, prefix_repetition_num_prefixes=3,
    )  # fmt: skip
    made = samples(args)
    beginnings = [tuple(sample.token_ids[:16]) for sample in made]
    assert {beginnings.count(one) for one in beginnings} == {3}
    assert {len(sample.token_ids) for sample in made} == {20}


def test_sharegpt(tmp_path: Path) -> None:
    def talk(*texts: str) -> dict[str, Any]:
        return {"conversations": [{"from": "human", "value": text} for text in texts]}

    path = tmp_path / "share.json"
    path.write_text(
        json.dumps(
            [talk("a" * 20, "b" * 30), talk("abc", "too short"), talk("lonely"), talk("c" * 2000, "long")]
        )
    )
    args = DatasetArgs(dataset_name="sharegpt", dataset_path=str(path), num_prompts=3)
    assert [(sample.text, sample.output_len) for sample in samples(args)] == [("a" * 20, 30)] * 3
    args.oversample = False
    assert len(samples(args)) == 1


def test_custom_needs_no_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "one", "output_tokens": 3}\n\n{"prompt": "two"}\n')
    args = DatasetArgs(dataset_name="custom", dataset_path=str(path), num_prompts=2, custom_output_len=9)
    found = samples(args, tokenizer=False)
    assert sorted((sample.text, sample.output_len) for sample in found) == [("one", 3), ("two", 9)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1 is not JSON"),
        ('{"prompt": 3}', 'must be an object with a text "prompt"'),
        ('{"prompt": "a", "output_tokens": 0}', "output_tokens must be at least 1"),
        ("", "holds no prompt of a usable length"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        samples(DatasetArgs(dataset_name="custom", dataset_path=str(path)))


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"num_prompts": 0}, "num_prompts"),
        ({"random_range_ratio": 1.0}, "random_range_ratio"),
        ({"random_input_len": 0}, "random_input_len"),
        ({"dataset_name": "sharegpt"}, "dataset_path"),
        ({"dataset_path": "x"}, "dataset_path"),
        ({"custom_output_len": 4}, "custom_output_len"),
        ({"dataset_name": "custom", "dataset_path": "x", "random_input_len": 4}, "random_input_len"),
        ({"dataset_name": "custom", "dataset_path": "x", "input_len": 4}, "input_len"),
        ({"prefix_repetition_num_prefixes": 4}, "prefix_repetition_num_prefixes"),
        ({"input_len": 4, "random_input_len": 4}, "input_len"),
        ({"output_len": 4, "random_output_len": 4}, "output_len"),
    ],
)
def test_flags_that_do_not_fit(fields: dict[str, Any], flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DatasetArgs(**fields).check()
    assert caught.value.param == flag
    assert f"--{flag.replace('_', '-')}" in caught.value.message


def test_a_missing_tokenizer_and_a_missing_file_are_named() -> None:
    with pytest.raises(ConfigError, match="--tokenizer"):
        samples(DatasetArgs(), tokenizer=False)
    with pytest.raises(ConfigError, match="--dataset-path"):
        samples(DatasetArgs(dataset_name="custom", dataset_path="/nowhere"))
