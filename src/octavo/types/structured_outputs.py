"""What shape an answer must have. Names and meanings are vLLM's, so that code can switch by its import."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from octavo.lib.errors import InvalidRequestError

CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
MAX_CHARACTERS = 256 * 1024
"""Of a schema, grammar, regular expression or structural tag; of all choices together."""
MAX_CHOICES = 4096
MAX_WHITESPACE_PATTERN = 1024


class StructuredOutputsParams(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Exactly one constraint on the text of an answer, and how freely JSON may be laid out.

    Raises:
        InvalidRequestError: none or several constraints, a wrong type, or one that is too large.
    """

    json: str | dict[str, Any] | None = None
    """A JSON schema, or its text."""
    regex: str | None = None
    """The whole answer matches it."""
    choice: Sequence[str] | None = None
    """The answer is one of these."""
    grammar: str | None = None
    """A context-free grammar, in the dialect of Lark or in EBNF (GBNF)."""
    json_object: bool | None = None
    """Any JSON object."""
    structural_tag: str | dict[str, Any] | None = None
    """Free text in which certain tags open a constrained part."""
    disable_any_whitespace: bool = False
    """JSON without any whitespace between its parts."""
    disable_additional_properties: bool = False
    """Read every object schema that says nothing of `additionalProperties` as if it forbade them."""
    whitespace_pattern: str | None = None
    """A regular expression of the whitespace that may stand between the parts of JSON."""

    def __post_init__(self) -> None:
        given = self._given()
        if len(given) != 1:
            found = f"got {' and '.join(given)}" if given else "got none"
            _refuse(f"takes exactly one of {', '.join(CONSTRAINTS)}; {found}")
        self._check_types()
        self._check_sizes()
        if self.disable_any_whitespace and self.whitespace_pattern is not None:
            _refuse("cannot have both disable_any_whitespace and whitespace_pattern", "whitespace_pattern")

    @property
    def kind(self) -> str:
        """The name of the one constraint."""
        return self._given()[0]

    @property
    def text(self) -> str:
        """The constraint as text: JSON for what was given as a dictionary, a list or a flag."""
        value = getattr(self, self.kind)
        return value if isinstance(value, str) else _as_json(self.kind, value)

    def _given(self) -> list[str]:
        return [name for name in CONSTRAINTS if getattr(self, name) not in (None, False)]

    def _check_types(self) -> None:
        for name in ("json", "structural_tag"):
            _check_type(name, getattr(self, name), (str, dict), "a dictionary or its JSON text")
        for name in ("regex", "grammar", "whitespace_pattern"):
            _check_type(name, getattr(self, name), (str,), "a string")
        for name in ("json_object", "disable_any_whitespace", "disable_additional_properties"):
            _check_type(name, getattr(self, name), (bool,), "true or false")
        _check_type("choice", self.choice, (list, tuple), "a list of strings")

    def _check_sizes(self) -> None:
        if self.choice is not None:
            _check_choices(self.choice)
        size = len(self.text)
        if size > MAX_CHARACTERS:
            _refuse(f"takes at most {MAX_CHARACTERS} characters, got {size}", self.kind)
        if len(self.whitespace_pattern or "") > MAX_WHITESPACE_PATTERN:
            _refuse(f"takes at most {MAX_WHITESPACE_PATTERN} characters", "whitespace_pattern")


def _check_type(name: str, value: object, kinds: tuple[type, ...], wanted: str) -> None:
    if value is not None and not isinstance(value, kinds):
        _refuse(f"must be {wanted}, got {type(value).__name__}", name)


def _check_choices(choices: Sequence[str]) -> None:
    if not 1 <= len(choices) <= MAX_CHOICES:
        _refuse(f"takes 1 to {MAX_CHOICES} strings, got {len(choices)}", "choice")
    if any(not isinstance(text, str) or not text for text in choices):
        _refuse("must be non-empty strings", "choice")


def _as_json(name: str, value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal(f"is not JSON: {type(error).__name__}", name) from None


def _refuse(why: str, name: str = "") -> None:
    raise _refusal(why, name)


def _refusal(why: str, name: str = "") -> InvalidRequestError:
    param = f"structured_outputs.{name}" if name else "structured_outputs"
    return InvalidRequestError(f"{param} {why}", param=param)
