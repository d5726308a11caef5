"""What is asked: random tokens, recorded conversations, prompts of your own, prompts with common beginnings."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.engine.flags import flag
from octavo.entrypoints.bench.arguments import check_at_least, flag_name, given, refuse
from octavo.lib.errors import ConfigError

if TYPE_CHECKING:
    from octavo.tokenizers import Tokenizer

# What vLLM's benchmark keeps of ShareGPT: neither too short to measure nor longer than small models can take.
SHAREGPT_SHORTEST, SHAREGPT_LONGEST_PROMPT, SHAREGPT_LONGEST = 4, 1024, 2048
# Decoding random ids and encoding the text again rarely gives the same number of ids; so often it is mended.
TEXT_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """One request."""

    token_ids: list[int]
    """Of the prompt; empty if there was no tokenizer to find them."""
    text: str
    """The prompt; empty if it exists as ids only."""
    output_len: int
    """Tokens to generate."""


@dataclass(kw_only=True)
class DatasetArgs:
    """Which prompts, and how many."""

    dataset_name: str = flag("random", choices=("random", "sharegpt", "custom", "prefix_repetition"))
    """Where prompts come from."""
    dataset_path: str | None = None
    """File of `sharegpt` (JSON) or `custom` (a JSON object with `prompt` a line, perhaps with `output_tokens`)."""
    num_prompts: int = 1000
    """Requests to make."""
    oversample: bool = True
    """Ask the prompts of a file again when it has fewer than --num-prompts."""
    input_len: int | None = None
    """Tokens of a prompt, in place of --random-input-len."""
    output_len: int | None = None
    """Tokens of an answer, in place of the dataset's own flag."""
    random_input_len: int = 1024
    """Tokens of a random prompt."""
    random_output_len: int = 128
    """Tokens of the answer to a random prompt."""
    random_range_ratio: float = 0.0
    """Random lengths are drawn from [len * (1 - ratio), len * (1 + ratio)]; in [0, 1)."""
    random_prefix_len: int = 0
    """Tokens that all random prompts begin with, before --random-input-len others."""
    sharegpt_output_len: int | None = None
    """Tokens of an answer, in place of the recorded answer's length."""
    custom_output_len: int = 256
    """Tokens of an answer to a line without `output_tokens`."""
    prefix_repetition_prefix_len: int = 256
    """Tokens of each common beginning."""
    prefix_repetition_suffix_len: int = 256
    """Tokens of each prompt after it."""
    prefix_repetition_num_prefixes: int = 10
    """How many beginnings there are."""
    prefix_repetition_output_len: int = 128
    """Tokens of an answer."""

    def check(self) -> None:
        """Refuse values out of range and flags that the dataset does not read.

        Raises:
            ConfigError: names the flag.
        """
        check_at_least(self, num_prompts=1, **dict.fromkeys(_LENGTHS, 1), random_prefix_len=0)
        if not 0 <= self.random_range_ratio < 1:
            raise refuse("random_range_ratio", f"must lie in [0, 1), got {self.random_range_ratio}")
        for field in sorted(given(self)):
            owner = next((name for name in _SOURCES if field.startswith(f"{name}_")), self.dataset_name)
            if owner != self.dataset_name:
                raise refuse(field, f"has no effect with --dataset-name {self.dataset_name}")
        self._check_source()

    def _check_source(self) -> None:
        from_file = self.dataset_name in ("sharegpt", "custom")
        if from_file and self.dataset_path is None:
            raise refuse("dataset_path", f"is needed with --dataset-name {self.dataset_name}")
        if not from_file and self.dataset_path is not None:
            raise refuse("dataset_path", f"has no effect with --dataset-name {self.dataset_name}")
        if self.dataset_name != "random" and self.input_len is not None:
            raise refuse("input_len", f"has no effect with --dataset-name {self.dataset_name}")
        if self.input_len is not None and "random_input_len" in given(self):
            raise refuse("input_len", "and --random-input-len contradict each other; give one")
        own = _OUTPUT_LEN[self.dataset_name]
        if self.output_len is not None and own in given(self):
            raise refuse("output_len", f"and {flag_name(own)} contradict each other; give one")


def load_samples(args: DatasetArgs, tokenizer: Tokenizer | None, seed: int, *, as_text: bool) -> list[Sample]:
    """Exactly `args.num_prompts` requests (fewer from a short file without oversampling); the same for the same seed.

    Args:
        args: Checked.
        tokenizer: Of the model. None is enough for `custom`.
        seed: Of all that is random.
        as_text: Whether prompts are sent as text. Random ones are then made of text that encodes to the length asked.

    Raises:
        ConfigError: the file cannot be read or has nothing that fits, or a tokenizer is needed.
    """
    rng = random.Random(seed)
    samples = _SOURCES[args.dataset_name](args, tokenizer, rng, as_text)
    if args.dataset_name in ("sharegpt", "custom"):
        return _as_many(samples, args, rng)
    return samples


def _random(
    args: DatasetArgs, tokenizer: Tokenizer | None, rng: random.Random, as_text: bool
) -> list[Sample]:
    words = _Words(_needed(tokenizer, args), rng)
    prefix = words.draw(args.random_prefix_len)
    inputs, outputs = args.input_len or args.random_input_len, args.output_len or args.random_output_len
    samples = []
    for _ in range(args.num_prompts):
        ids = prefix + words.draw(_about(inputs, args.random_range_ratio, rng))
        samples.append(words.sample(ids, _about(outputs, args.random_range_ratio, rng), as_text))
    return samples


def _prefix_repetition(
    args: DatasetArgs, tokenizer: Tokenizer | None, rng: random.Random, as_text: bool
) -> list[Sample]:
    words = _Words(_needed(tokenizer, args), rng)
    count = min(args.prefix_repetition_num_prefixes, args.num_prompts)
    prefixes = [words.draw(args.prefix_repetition_prefix_len) for _ in range(count)]
    output_len = args.output_len or args.prefix_repetition_output_len
    samples = [
        words.sample(
            prefixes[index % count] + words.draw(args.prefix_repetition_suffix_len), output_len, as_text
        )
        for index in range(args.num_prompts)
    ]
    rng.shuffle(samples)
    return samples


def _sharegpt(
    args: DatasetArgs, tokenizer: Tokenizer | None, rng: random.Random, as_text: bool
) -> list[Sample]:
    encode = _needed(tokenizer, args).encode
    try:
        conversations = [entry["conversations"] for entry in json.loads(_text(args))]
        pairs = [(turns[0]["value"], turns[1]["value"]) for turns in conversations if len(turns) >= 2]
    except (ValueError, KeyError, TypeError) as error:
        raise refuse("dataset_path", f"{args.dataset_path} is not in ShareGPT's form ({error!r})") from error
    rng.shuffle(pairs)
    fixed = args.output_len or args.sharegpt_output_len
    samples: list[Sample] = []
    for prompt, answer in pairs:
        if len(samples) == args.num_prompts:
            break
        ids = encode(prompt)
        output_len = fixed or len(encode(answer))
        if _fits(len(ids), output_len, fixed is not None):
            samples.append(Sample(ids, prompt, output_len))
    return samples


def _custom(
    args: DatasetArgs, tokenizer: Tokenizer | None, rng: random.Random, as_text: bool
) -> list[Sample]:
    samples = []
    for number, line in enumerate(_text(args).splitlines(), 1):
        if not line.strip():
            continue
        entry = _custom_entry(line, f"{args.dataset_path}, line {number}")
        output_len = args.output_len or entry.get("output_tokens") or args.custom_output_len
        ids = tokenizer.encode(entry["prompt"]) if tokenizer is not None else []
        samples.append(Sample(ids, entry["prompt"], output_len))
    rng.shuffle(samples)
    return samples[: args.num_prompts]


_SOURCES: dict[str, Callable[[DatasetArgs, Tokenizer | None, random.Random, bool], list[Sample]]] = {
    "random": _random,
    "sharegpt": _sharegpt,
    "custom": _custom,
    "prefix_repetition": _prefix_repetition,
}
_OUTPUT_LEN = {name: f"{name}_output_len" for name in _SOURCES}
_LENGTHS = (
    "input_len", "output_len", "random_input_len", "random_output_len", "sharegpt_output_len", "custom_output_len",
    "prefix_repetition_prefix_len", "prefix_repetition_suffix_len", "prefix_repetition_num_prefixes",
    "prefix_repetition_output_len",
)  # fmt: skip


class _Words:
    """Draws prompts from the tokens that are no control tokens."""

    def __init__(self, tokenizer: Tokenizer, rng: random.Random) -> None:
        self._tokenizer = tokenizer
        self._rng = rng
        self._ids = [token for token in range(tokenizer.vocab_size) if token not in tokenizer.special_ids]

    def draw(self, count: int) -> list[int]:
        """Random ids."""
        return self._rng.choices(self._ids, k=count)

    def sample(self, ids: list[int], output_len: int, as_text: bool) -> Sample:
        """A request with these ids, or with a text of as many tokens that begins alike."""
        if not as_text:
            return Sample(ids, "", output_len)
        wanted = len(ids)
        for _ in range(TEXT_ATTEMPTS):
            text = self._tokenizer.decode(ids)
            ids = self._tokenizer.encode(text, add_special_tokens=False)
            if len(ids) == wanted:
                break
            ids = ids[:wanted] + self.draw(wanted - len(ids))
        text = self._tokenizer.decode(ids)
        return Sample(self._tokenizer.encode(text, add_special_tokens=False), text, output_len)


def _needed(tokenizer: Tokenizer | None, args: DatasetArgs) -> Tokenizer:
    if tokenizer is None:
        raise refuse(
            "tokenizer",
            f"is needed with --dataset-name {args.dataset_name}: a folder or .gguf file of the model that is served",
        )
    return tokenizer


def _about(length: int, ratio: float, rng: random.Random) -> int:
    return rng.randint(max(1, int(length * (1 - ratio))), int(length * (1 + ratio)))


def _fits(prompt_len: int, output_len: int, output_is_fixed: bool) -> bool:
    if prompt_len < SHAREGPT_SHORTEST or (output_len < SHAREGPT_SHORTEST and not output_is_fixed):
        return False
    return prompt_len <= SHAREGPT_LONGEST_PROMPT and prompt_len + output_len <= SHAREGPT_LONGEST


def _text(args: DatasetArgs) -> str:
    try:
        return Path(str(args.dataset_path)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise refuse("dataset_path", f"{args.dataset_path} cannot be read ({error})") from error


def _custom_entry(line: str, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON ({error}).", param="dataset_path") from error
    if not isinstance(entry, dict) or not isinstance(entry.get("prompt"), str):
        raise ConfigError(f'{where} must be an object with a text "prompt".', param="dataset_path")
    length = entry.get("output_tokens")
    if length is not None and (not isinstance(length, int) or length < 1):
        raise ConfigError(f"{where}: output_tokens must be at least 1, got {length!r}.", param="dataset_path")
    return entry


def _as_many(samples: list[Sample], args: DatasetArgs, rng: random.Random) -> list[Sample]:
    """Ask some again until there are as many as were asked for."""
    if not samples:
        raise refuse("dataset_path", f"{args.dataset_path} holds no prompt of a usable length")
    missing = args.num_prompts - len(samples) if args.oversample else 0
    return samples + rng.choices(samples, k=max(0, missing))
