"""What a client may ask of the sampler. Names and meanings are vLLM's, so that code can switch by its import."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import msgspec

from octavo.lib.errors import InvalidRequestError
from octavo.types.structured_outputs import StructuredOutputsParams

MAX_N = 16384
MAX_STOP_STRINGS = 64
MAX_STOP_CHARACTERS = 8192
MAX_STOP_TOKEN_IDS = 4096
MAX_LOGIT_BIAS = 4096
MAX_LOGPROBS_FIELD = 1 << 20
SEED_MAX = 2**63 - 1
# Below this a temperature cannot be told from greedy in float32 (and 1/t would overflow): treated as greedy.
GREEDY_EPSILON = 1e-5


_FLAGS = (
    "detokenize", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output",
)  # fmt: skip
_CONTAINERS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("stop", (str, list, tuple), "a string or a list of strings"),
    ("stop_token_ids", (list, tuple), "a list of token ids"),
    ("logit_bias", (dict,), "a dictionary from token ids to numbers"),
    ("structured_outputs", (StructuredOutputsParams,), "StructuredOutputsParams"),
)


class RequestOutputKind(enum.IntEnum):
    """How often and how much of an answer is handed out."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


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
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: dict[int, float] | None = None

    def __post_init__(self) -> None:
        self._check_types()
        self._check_integers()
        self._check_floats()
        self._check_stops()
        self._check_logit_bias()

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken (ties: the lowest id)."""
        return self.temperature < GREEDY_EPSILON

    @property
    def draws_plainly(self) -> bool:
        """Whether a token is drawn from the model's logits as they are, and nothing but its id is wanted."""
        edits = (
            self.logit_bias or self.min_tokens or self.repetition_penalty != 1.0 or self.structured_outputs
        )
        return not (edits or self.frequency_penalty or self.presence_penalty) and self.logprobs is None

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
        ids = self.stop_token_ids or ()
        if len(ids) > MAX_STOP_TOKEN_IDS:
            _refuse("stop_token_ids", f"takes at most {MAX_STOP_TOKEN_IDS} ids, got {len(ids)}")
        for token in ids:
            _whole("stop_token_ids", token, 0, 2**31 - 1)

    def _check_logit_bias(self) -> None:
        bias = self.logit_bias or {}
        if len(bias) > MAX_LOGIT_BIAS:
            _refuse("logit_bias", f"takes at most {MAX_LOGIT_BIAS} entries, got {len(bias)}")
        for token, value in bias.items():
            _whole("logit_bias", token, 0, 2**31 - 1)
            _in_range("logit_bias", value, -100.0, 100.0)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse token ids that the model does not have.

        Raises:
            InvalidRequestError: an id in `logit_bias` or `stop_token_ids` is not below `vocab_size`.
        """
        for name, ids in (
            ("logit_bias", self.logit_bias or ()),
            ("stop_token_ids", self.stop_token_ids or ()),
        ):
            for token in ids:
                if token >= vocab_size:
                    _refuse(name, f"token id {token} is outside the vocabulary (size {vocab_size})")


def _refuse(name: str, why: str) -> None:
    raise InvalidRequestError(f"{name} {why}", param=name)


def _whole(name: str, value: float, low: int, high: int) -> None:
    if not isinstance(value, int):
        _refuse(name, f"must be a whole number, got {value!r}")
    _in_range(name, value, low, high)


def _in_range(name: str, value: float, low: float, high: float) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:
        _refuse(name, f"must be between {low} and {high}, got {value!r}")
