"""What a client may ask of the sampler. Names and meanings are vLLM's, so that code can switch by its import."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from octavo.lib.errors import InvalidRequestError
from octavo.types.structured_outputs import StructuredOutputsParams

MAX_N = 16384
MAX_STOP_STRINGS = 64
MAX_STOP_CHARACTERS = 8192
MAX_STOP_TOKEN_IDS = 4096
MAX_LOGIT_BIAS = 4096
MAX_ALLOWED_TOKEN_IDS = 1 << 20
MAX_BAD_WORDS = 128
MAX_BAD_WORD_CHARACTERS = 8192
MAX_LOGPROB_TOKEN_IDS = 1024
MAX_LOGPROBS_FIELD = 1 << 20
MAX_PATTERN_SIZE = 512
MAX_PATTERN_COUNT = 1 << 16
MAX_EXTRA_ARGS = 64
MAX_BEAM_WIDTH = 1024
MAX_LENGTH_PENALTY = 10.0
MAX_EXTRA_ARGS_BYTES = 1 << 16
SEED_MAX = 2**63 - 1
# Below this a temperature cannot be told from greedy in float32 (and 1/t would overflow): treated as greedy.
GREEDY_EPSILON = 1e-5


_FLAGS = (
    "detokenize", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output",
    "flat_logprobs",
)  # fmt: skip


class RequestOutputKind(enum.IntEnum):
    """How often and how much of an answer is handed out."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


class RepetitionDetectionParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """When an answer counts as caught in a loop: its end is one pattern of tokens, again and again.

    Raises:
        InvalidRequestError: a size or count is out of its range.
    """

    max_pattern_size: int = 0
    """Longest pattern looked for, in tokens; 0: nothing is looked for."""
    min_pattern_size: int = 0
    """Shortest pattern; 0 means 1."""
    min_count: int = 0
    """Patterns in a row that end the answer: at least 2."""

    def __post_init__(self) -> None:
        name = "repetition_detection"
        _whole(name, self.max_pattern_size, 0, MAX_PATTERN_SIZE, "max_pattern_size")
        _whole(name, self.min_pattern_size, 0, self.max_pattern_size, "min_pattern_size")
        _whole(name, self.min_count, 2 if self.max_pattern_size else 0, MAX_PATTERN_COUNT, "min_count")


_CONTAINERS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("stop", (str, list, tuple), "a string or a list of strings"),
    ("stop_token_ids", (list, tuple), "a list of token ids"),
    ("structured_outputs", (StructuredOutputsParams,), "StructuredOutputsParams"),
    ("logit_bias", (dict,), "a dictionary from token ids to numbers"),
    ("allowed_token_ids", (list, tuple), "a list of token ids"),
    ("logprob_token_ids", (list, tuple), "a list of token ids"),
    ("bad_words", (list, tuple), "a list of strings"),
    ("extra_args", (dict,), "a dictionary"),
    ("skip_reading_prefix_cache", (bool,), "true or false"),
    ("repetition_detection", (RepetitionDetectionParams,), "a RepetitionDetectionParams"),
)


class SamplingParams(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Sampling parameters of one request; checked when made.

    Raises:
        InvalidRequestError: a value is out of its range; `param` names the field and the message its limit.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: Sequence[int] | None = None
    """Tokens whose log probabilities are wanted at each position, beside those of `logprobs`."""
    flat_logprobs: bool = False
    """Hand log probabilities out as `FlatLogprobs`: a few long lists instead of an object a token."""
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    """The only tokens that may come; stop tokens too come only if they are among them."""
    bad_words: Sequence[str] | None = None
    """Words that may not come, at the start of a text or after a space."""
    extra_args: dict[str, Any] | None = None
    """Arguments of the logits processors that the engine was started with."""
    skip_reading_prefix_cache: bool | None = None
    """Compute the whole prompt, whatever the cache has. Default: only where prompt log probabilities need it."""
    thinking_token_budget: int | None = None
    """Tokens of reasoning after which its end is forced."""
    repetition_detection: RepetitionDetectionParams | None = None
    """End an answer that repeats itself, with finish reason `repetition`."""

    def __post_init__(self) -> None:
        self._check_types()
        self._check_integers()
        self._check_floats()
        self._check_stops()
        self._check_logit_bias()
        self._check_token_lists()
        self._check_bad_words()
        self._check_extra_args()

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken (ties: the lowest id)."""
        return self.temperature < GREEDY_EPSILON

    @property
    def draws_plainly(self) -> bool:
        """Whether a token is drawn from the model's logits as they are, and nothing but its id is wanted."""
        edits = self.logit_bias or self.min_tokens or self.repetition_penalty != 1.0
        penalties = self.frequency_penalty or self.presence_penalty
        rules = self.allowed_token_ids or self.bad_words or self.thinking_token_budget is not None
        return not (edits or penalties or rules or self.structured_outputs or self.wants_logprobs)

    @property
    def wants_logprobs(self) -> bool:
        """Whether log probabilities of generated tokens are wanted."""
        return self.logprobs is not None or bool(self.logprob_token_ids)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple, whatever form it was given in."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def _check_types(self) -> None:
        """What the annotations promise and Python does not hold; a wrong type would only be found in the engine."""
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                _refuse(name, f"must be true or false, got {getattr(self, name)!r}")
        for name, kinds, wanted in _CONTAINERS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, kinds):
                _refuse(name, f"must be {wanted}, got {type(value).__name__}")

    def _check_integers(self) -> None:
        _whole("n", self.n, 1, MAX_N)
        _whole("top_k", self.top_k, -1, 2**31 - 1)
        _whole("min_tokens", self.min_tokens, 0, 2**31 - 1)
        if self.seed is not None:
            _whole("seed", self.seed, -SEED_MAX - 1, SEED_MAX)
        if self.thinking_token_budget is not None:
            _whole("thinking_token_budget", self.thinking_token_budget, 0, 2**31 - 1)
        if self.max_tokens is not None:
            _whole("max_tokens", self.max_tokens, 1, 2**31 - 1)
            if self.min_tokens > self.max_tokens:
                _refuse(
                    "min_tokens", f"must not exceed max_tokens ({self.max_tokens}), got {self.min_tokens}"
                )
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                _whole(name, value, -1, MAX_LOGPROBS_FIELD)

    def _check_floats(self) -> None:
        _in_range("temperature", self.temperature, 0.0, 100.0)
        _in_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _in_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _in_range("min_p", self.min_p, 0.0, 1.0)
        for name, upper in (("top_p", 1.0), ("repetition_penalty", 100.0)):
            value = getattr(self, name)
            _in_range(name, value, 0.0, upper)
            if value == 0.0:
                _refuse(name, "must be greater than 0")

    def _check_stops(self) -> None:
        strings = self.stop_strings
        if len(strings) > MAX_STOP_STRINGS:
            _refuse("stop", f"takes at most {MAX_STOP_STRINGS} strings, got {len(strings)}")
        if any(not isinstance(text, str) or not text for text in strings):
            _refuse("stop", "must be non-empty strings")
        letters = sum(map(len, strings))
        if letters > MAX_STOP_CHARACTERS:
            _refuse("stop", f"takes at most {MAX_STOP_CHARACTERS} characters in all, got {letters}")

    def _check_logit_bias(self) -> None:
        bias = self.logit_bias or {}
        if len(bias) > MAX_LOGIT_BIAS:
            _refuse("logit_bias", f"takes at most {MAX_LOGIT_BIAS} entries, got {len(bias)}")
        for token, value in bias.items():
            _whole("logit_bias", token, 0, 2**31 - 1)
            _in_range("logit_bias", value, -100.0, 100.0)

    def _check_token_lists(self) -> None:
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            _refuse("allowed_token_ids", "must hold at least one token id")
        for name, most in (
            ("stop_token_ids", MAX_STOP_TOKEN_IDS),
            ("allowed_token_ids", MAX_ALLOWED_TOKEN_IDS),
            ("logprob_token_ids", MAX_LOGPROB_TOKEN_IDS),
        ):
            _token_ids(name, getattr(self, name) or (), most)

    def _check_bad_words(self) -> None:
        words = self.bad_words or ()
        if len(words) > MAX_BAD_WORDS:
            _refuse("bad_words", f"takes at most {MAX_BAD_WORDS} words, got {len(words)}")
        if any(not isinstance(word, str) or not word.strip() for word in words):
            _refuse("bad_words", "must be strings that hold more than spaces")
        letters = sum(map(len, words))
        if letters > MAX_BAD_WORD_CHARACTERS:
            _refuse("bad_words", f"takes at most {MAX_BAD_WORD_CHARACTERS} characters in all, got {letters}")

    def _check_extra_args(self) -> None:
        extra = self.extra_args or {}
        if len(extra) > MAX_EXTRA_ARGS:
            _refuse("extra_args", f"takes at most {MAX_EXTRA_ARGS} entries, got {len(extra)}")
        if any(not isinstance(name, str) for name in extra):
            _refuse("extra_args", "must have strings as keys")
        if not extra:
            return
        try:
            size = len(msgspec.msgpack.encode(extra))
        except (TypeError, ValueError, OverflowError, RecursionError):
            _refuse("extra_args", "must hold numbers, strings, lists and dictionaries of these")
        if size > MAX_EXTRA_ARGS_BYTES:
            _refuse("extra_args", f"takes at most {MAX_EXTRA_ARGS_BYTES} bytes, got {size}")

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse token ids that the model does not have.

        Raises:
            InvalidRequestError: an id in one of the fields that hold some is not below `vocab_size`.
        """
        for name in ("logit_bias", "stop_token_ids", "allowed_token_ids", "logprob_token_ids"):
            token = max(getattr(self, name) or (0,))
            if token >= vocab_size:
                _refuse(name, f"token id {token} is outside the vocabulary (size {vocab_size})")


class BeamSearchParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to search for the most likely answers; checked when made.

    Raises:
        InvalidRequestError: a value is out of its range; `param` names the field and the message its limit.
    """

    beam_width: int
    """Beams that are followed, and answers that are given."""
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    """Beams are ranked by the model's own probabilities: 0 and 1 are taken, and mean the same."""
    length_penalty: float = 1.0
    """A sequence scores its log probability over its length, prompt and answer, to this power."""
    include_stop_str_in_output: bool = False
    """Keep the token that ended a sequence."""
    stop_token_ids: Sequence[int] = ()
    """End a sequence, beside EOS."""

    def __post_init__(self) -> None:
        _whole("beam_width", self.beam_width, 1, MAX_BEAM_WIDTH)
        _whole("max_tokens", self.max_tokens, 1, 2**31 - 1)
        _in_range("length_penalty", self.length_penalty, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY)
        if self.temperature not in (0, 1):
            _refuse("temperature", f"must be 0 or 1 with beam search, got {self.temperature!r}")
        for name in ("ignore_eos", "include_stop_str_in_output"):
            if not isinstance(getattr(self, name), bool):
                _refuse(name, f"must be true or false, got {getattr(self, name)!r}")
        _token_ids("stop_token_ids", self.stop_token_ids, MAX_STOP_TOKEN_IDS)


def _refuse(name: str, why: str) -> NoReturn:
    raise InvalidRequestError(f"{name} {why}", param=name)


def _token_ids(name: str, ids: Sequence[int], most: int) -> None:
    if len(ids) > most:
        _refuse(name, f"takes at most {most} ids, got {len(ids)}")
    # There may be as many as a vocabulary has: looked at one by one only to say which is wrong.
    if ids and (set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) >= 2**31):
        for token in ids:
            _whole(name, token, 0, 2**31 - 1)


def _whole(name: str, value: float, low: int, high: int, part: str = "") -> None:
    """Hold a value, or its `part`, to whole numbers of a range."""
    if not isinstance(value, int):
        _refuse(name, f"{part} must be a whole number, got {value!r}".lstrip())
    _in_range(name, value, low, high, part)


def _in_range(name: str, value: float, low: float, high: float, part: str = "") -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:
        _refuse(name, f"{part} must be between {low} and {high}, got {value!r}".lstrip())
