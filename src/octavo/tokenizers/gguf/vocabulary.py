"""The vocabulary in a GGUF file: token texts, kinds and scores, and which tokens are special.

The keys are those of ggml's `docs/gguf.md`. Where a file says less than a tokenizer needs, the same is read into it
as by llama.cpp's `llama-vocab.cpp`: the default special ids of each kind of vocabulary, and the spellings by which
end-of-answer tokens are known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from octavo.lib.errors import CheckpointError
from octavo.lib.gguf import GGUFFile

PREFIX = "tokenizer.ggml."
T = TypeVar("T", str, int, float)


class Kind(IntEnum):
    """What a token is, as `tokenizer.ggml.token_type` numbers it."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Spellings of tokens that end an answer (or a turn, or a tool call), whatever the file calls them.
END_OF_ANSWER = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<turn|>",
        "<|tool_response>",
        "<｜end▁of▁sentence｜>",
        "[e~[",
    }
)
# Where this is plain text (the end of an HTML tag, as in Qwen 2 and Gemma), it ends nothing; llama.cpp differs here.
END_OF_SENTENCE = "</s>"
# Fill-in-the-middle tokens after which a completion is over, by the key that may name them.
FILL_IN_ENDS = {
    "fim_pad_token_id": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep_token_id": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep_token_id": ("<|file_sep|>",),
}
# Fill-in-the-middle tokens that are control tokens even where the file does not say so.
FILL_IN_MARKS = frozenset(
    {
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    }
)
# Parts of the harmony format that belong to the text even when control tokens are left out.
ALWAYS_TEXT = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"})

_SPECIAL_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",
    "pad": "padding_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
}
_DEFAULT_IDS: dict[str, dict[str, int]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
    "plamo2": {"bos": 1, "eos": 2, "unk": 0, "pad": 3},
}


@dataclass(slots=True)
class Vocabulary:
    """The tokens of a GGUF file.

    Attributes:
        model: The kind of vocabulary (`tokenizer.ggml.model`).
        tokens: Text of each id.
        ids: Id of each text.
        kinds: Kind of each id, after the corrections that llama.cpp makes.
        scores: Score of each id; empty if the file has none.
        special: Role ("bos", "eos", ...) to id.
        end_ids: Tokens that end an answer.
        file: The file, for errors.
    """

    model: str
    tokens: list[str]
    ids: dict[str, int]
    kinds: bytearray
    scores: list[float]
    special: dict[str, int]
    file: str
    end_ids: set[int] = field(default_factory=set)

    def of_kind(self, *kinds: Kind) -> list[int]:
        """Ids of the given kinds, ascending."""
        wanted = re.compile(b"[" + re.escape(bytes(kinds)) + b"]")
        return [match.start() for match in wanted.finditer(self.kinds)]

    def error(self, message: str) -> CheckpointError:
        """An error that names the file."""
        return CheckpointError(message, file=self.file)


def read_vocabulary(gguf: GGUFFile) -> Vocabulary:
    """Read and check the vocabulary of a GGUF file.

    Raises:
        CheckpointError: A key is missing, of another type or length, or a token is there twice.
    """
    metadata = gguf.metadata
    model = gguf.get_str(PREFIX + "model")
    tokens = gguf.get_list(PREFIX + "tokens", str)
    tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)] if "" in tokens else tokens
    ids = {text: i for i, text in enumerate(tokens)}
    vocabulary = Vocabulary(
        model=model,
        tokens=tokens,
        ids=ids,
        kinds=_kinds(gguf, len(tokens)),
        scores=_array(gguf, "scores", len(tokens)),
        special=_special_ids(metadata, model, len(tokens)),
        file=str(gguf.path),
    )
    if len(ids) != len(tokens):
        twice = next(text for i, text in enumerate(tokens) if ids[text] != i)
        raise vocabulary.error(f"{PREFIX}tokens holds the token {twice!r} twice")
    _find_ends(vocabulary, metadata)
    return vocabulary


def _array(gguf: GGUFFile, name: str, length: int) -> list[float]:
    """Numbers, one a token; none if the file has none."""
    values = gguf.metadata.get(PREFIX + name, [])
    if not isinstance(values, list) or (values and type(values[0]) not in (int, float)):
        raise CheckpointError(
            f"metadata key {PREFIX + name!r} must be an array of numbers", file=str(gguf.path)
        )
    if values and len(values) < length:
        raise CheckpointError(
            f"metadata key {PREFIX + name!r} has {len(values)} elements for {length} tokens",
            file=str(gguf.path),
        )
    return values if len(values) == length else values[:length]


def _kinds(gguf: GGUFFile, length: int) -> bytearray:
    kinds = _array(gguf, "token_type", length) or [Kind.NORMAL.value] * length
    known = frozenset(Kind)
    undefined = dict.fromkeys(set(kinds) - known, Kind.UNDEFINED.value)
    return bytearray([undefined.get(kind, int(kind)) for kind in kinds] if undefined else map(int, kinds))


def _special_ids(metadata: Mapping[str, object], model: str, size: int) -> dict[str, int]:
    found = dict(_DEFAULT_IDS.get(model, {}))
    for role, key in _SPECIAL_KEYS.items():
        value = metadata.get(PREFIX + key)
        if isinstance(value, int) and 0 <= value < size:  # an id outside means "none" in files of the wild
            found[role] = value
    if model == "bert":
        found["bos"] = found.pop("cls", found["bos"])
    return {role: token_id for role, token_id in found.items() if token_id < size}


def _find_ends(vocabulary: Vocabulary, metadata: Mapping[str, object]) -> None:
    """Collect the tokens that end an answer, and make control tokens of those that look like it."""
    ids, kinds, ends = vocabulary.ids, vocabulary.kinds, vocabulary.end_ids
    looks = [text for text in END_OF_ANSWER | FILL_IN_MARKS if text in ids]
    for key, spellings in FILL_IN_ENDS.items():
        looks += [text for text in spellings if text in ids]
        named = metadata.get(PREFIX + key)
        if not isinstance(named, int):
            named = next((ids[text] for text in spellings if text in ids), None)
        if named is not None and named < len(kinds):
            ends.add(named)
    for text in looks:
        kinds[ids[text]] = Kind.CONTROL
    ends.update(ids[text] for text in looks if text in END_OF_ANSWER)
    ends.update(vocabulary.special[role] for role in ("eos", "eot", "eom") if role in vocabulary.special)
    if END_OF_SENTENCE in ids and kinds[ids[END_OF_SENTENCE]] == Kind.CONTROL:
        ends.add(ids[END_OF_SENTENCE])
    _correct(vocabulary)


def _correct(vocabulary: Vocabulary) -> None:
    """Known formats in which a token that looks special is not."""
    ids, kinds, ends = vocabulary.ids, vocabulary.kinds, vocabulary.end_ids
    for text in ALWAYS_TEXT & ids.keys():
        kinds[ids[text]] = Kind.USER_DEFINED
    harmony = {"<|return|>", "<|call|>"} <= ids.keys()
    solar = "<|flush|>" in ids and bool({"<|call|>", "<|calls|>"} & ids.keys())
    if "<|end|>" in ids and (harmony or solar):
        ends.discard(ids["<|end|>"])
        kinds[ids["<|end|>"]] = Kind.USER_DEFINED
