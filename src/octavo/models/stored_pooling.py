"""What a checkpoint's own configuration says of pooling: what the architecture is for, its classes, its matryoshka sizes."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.models.config_values import ConfigValues

_CAUSAL = "ForCausalLM"
_CLASSIFIER = "ForSequenceClassification"
_BACKBONE = "Model"
# llama.cpp's numbers (`llama_pooling_type`).
_GGUF_TYPES = {0: None, 1: "MEAN", 2: "CLS", 3: "LAST"}
# Class names of torch, as Sentence Transformers stores a cross-encoder's activation, and ours.
_ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "identity", "Softmax": "softmax"}
# transformers' `problem_type`, and what turns its logits into what it was trained for.
_PROBLEMS = {
    "regression": "identity",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}
# transformers counts two classes where a configuration says nothing.
_DEFAULT_LABELS = 2


@dataclass(frozen=True, kw_only=True)
class StoredPooling:
    """Settings of one model that concern pooling."""

    task: str | None
    """`classify` or `embed` where the architecture has a classifier or no head; None: it generates."""
    labels: tuple[str, ...]
    """Names of the classes."""
    activation: str
    """Of the classes: `softmax`, `sigmoid` or `identity`."""
    pooling_type: str | None
    """`LAST`, `MEAN` or `CLS`, which GGUF files of embedders state."""
    is_matryoshka: bool
    matryoshka_dimensions: tuple[int, ...]


def causal_name(architecture: str) -> str:
    """The generating sibling of an architecture: all differ in their heads only."""
    for suffix in (_CLASSIFIER, _BACKBONE):
        if architecture.endswith(suffix):
            return architecture.removesuffix(suffix) + _CAUSAL
    return architecture


def read_stored_pooling(hf: ConfigValues, architecture: str) -> StoredPooling:
    """Read the settings.

    Raises:
        UnsupportedModelError: one has a value that is not known here.
        CheckpointError: one has the wrong type.
    """
    labels = _labels(hf)
    sizes = tuple(hf.list("matryoshka_dimensions", int) or ())
    return StoredPooling(
        task=_task(architecture),
        labels=labels,
        activation=_activation(hf, len(labels)),
        pooling_type=_gguf_pooling(hf),
        is_matryoshka=hf.bool("is_matryoshka", bool(sizes)),
        matryoshka_dimensions=sizes,
    )


def _task(architecture: str) -> str | None:
    if architecture.endswith(_CLASSIFIER):
        return "classify"
    return "embed" if architecture.endswith(_BACKBONE) else None


def _labels(hf: ConfigValues) -> tuple[str, ...]:
    """Class names in the order of their numbers; transformers' own where there are none."""
    count = hf.int("num_labels", None)
    named = hf.get("id2label")
    if not isinstance(named, dict):
        return tuple(f"LABEL_{index}" for index in range(_DEFAULT_LABELS if count is None else count))
    try:
        by_number = {int(key): str(name) for key, name in named.items()}
    except ValueError:
        raise hf.error("id2label", "must have numbers as its keys") from None
    if sorted(by_number) != list(range(len(by_number))) or count not in (None, len(by_number)):
        raise hf.error("id2label", f"must name classes 0 to {(count or len(by_number)) - 1}")
    return tuple(by_number[index] for index in range(len(by_number)))


def _activation(hf: ConfigValues, num_labels: int) -> str:
    """A cross-encoder states its activation; else it follows from `problem_type`; else from the number of classes."""
    problem = hf.str("problem_type", None)
    if problem is not None and problem not in _PROBLEMS:
        raise hf.unsupported("problem_type", f"is {problem!r}; known are {', '.join(_PROBLEMS)}")
    stated = hf.sub("sentence_transformers").str("activation_fn", None)
    hf.sub("sentence_transformers").get("version")
    stated = stated or hf.str("sbert_ce_default_activation_function", None)
    if stated is not None:
        name = stated.rpartition(".")[2]
        if not stated.startswith("torch.nn.modules.") or name not in _ACTIVATIONS:
            raise hf.unsupported(
                "activation_fn", f"is {stated!r}; known are {', '.join(_ACTIVATIONS)} of torch.nn"
            )
        return _ACTIVATIONS[name]
    return _PROBLEMS[problem] if problem else "sigmoid" if num_labels == 1 else "softmax"


def _gguf_pooling(hf: ConfigValues) -> str | None:
    number = hf.int("pooling_type", None)
    if number is None:
        return None
    if number not in _GGUF_TYPES:
        raise hf.unsupported("pooling_type", f"is {number}; known are 1 (mean), 2 (cls) and 3 (last)")
    return _GGUF_TYPES[number]
