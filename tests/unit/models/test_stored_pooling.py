"""What configurations say of pooling, as published."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.lib.errors import CheckpointError
from octavo.models.config_values import ConfigValues
from octavo.models.stored_pooling import StoredPooling, causal_name, read_stored_pooling


def read(architecture: str = "Qwen3ForSequenceClassification", **settings: Any) -> StoredPooling:
    return read_stored_pooling(ConfigValues(settings, "config.json"), architecture)


def test_architectures_that_differ_in_their_head() -> None:
    for name in ("MistralModel", "MistralForSequenceClassification", "MistralForCausalLM"):
        assert causal_name(name) == "MistralForCausalLM"
    assert [read(name).task for name in ("LlamaModel", "LlamaForCausalLM")] == ["embed", None]
    assert read().task == "classify"


def test_classes() -> None:
    assert read().labels == ("LABEL_0", "LABEL_1")
    assert read(id2label={"1": "yes", "0": "no"}).labels == ("no", "yes")
    assert read(num_labels=1).labels == ("LABEL_0",)


@pytest.mark.parametrize(
    ("settings", "activation"),
    [
        ({}, "softmax"),
        ({"id2label": {"0": "relevant"}}, "sigmoid"),
        ({"problem_type": "regression"}, "identity"),
        ({"problem_type": "multi_label_classification"}, "sigmoid"),
        (
            {
                "id2label": {"0": "LABEL_0"},
                "sentence_transformers": {
                    "activation_fn": "torch.nn.modules.linear.Identity",
                    "version": "4.1.0",
                },
            },
            "identity",
        ),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, "sigmoid"),
    ],
)
def test_activations(settings: dict[str, Any], activation: str) -> None:
    assert read(**settings).activation == activation


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"problem_type": "guessing"}, "guessing"),
        ({"sentence_transformers": {"activation_fn": "my.module.Act"}}, "my.module.Act"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label"),
        ({"id2label": {"x": "a"}}, "id2label"),
        ({"id2label": {"0": "a"}, "num_labels": 2}, "id2label"),
        ({"pooling_type": 9}, "pooling_type"),
        ({"matryoshka_dimensions": "64"}, "matryoshka_dimensions"),
    ],
)
def test_what_is_not_known_is_refused_by_name(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(CheckpointError, match=says):
        read(**settings)


def test_matryoshka() -> None:
    assert read("Qwen2Model", is_matryoshka=True).is_matryoshka
    found = read("Qwen2Model", matryoshka_dimensions=[64, 128])
    assert (found.is_matryoshka, found.matryoshka_dimensions) == (True, (64, 128))
