"""Choices and structural tags as grammars in llguidance's dialect of Lark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from octavo.structured_output.backend import GrammarError

MAX_PARTS = 1000
_ANY_TEXT = r"/(.|\n)*/"


def literal(text: str) -> str:
    """A text as itself; empty text is nothing."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def choice_grammar(choices: Sequence[str]) -> str:
    """One of these texts."""
    return "start: " + " | ".join(map(literal, choices))


def structural_tag_grammar(tag: Any) -> str:
    """Free text in which tags open constrained parts.

    Both forms that clients know are taken: `{"structures": [{begin, schema, end}], "triggers": [...]}`, and
    `{"type": "structural_tag", "format": {...}}` of xgrammar.

    Raises:
        GrammarError: it is neither, or uses something unknown; names its place.
    """
    if not isinstance(tag, dict):
        raise GrammarError("structural_tag must be an object")
    form = tag.get("format") if tag.get("type") == "structural_tag" and "format" in tag else _older_form(tag)
    writer = _TagWriter()
    body = writer.expression(form, "/format" if "format" in tag else "")
    return "\n".join([f"start: {body}", *writer.rules])


def _older_form(tag: dict[str, Any]) -> dict[str, Any]:
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if not isinstance(structures, list) or not isinstance(triggers, list) or not structures:
        raise GrammarError("structural_tag needs either `format`, or `structures` and `triggers`")
    tags = [
        {
            "begin": _text(one, "begin", f"/structures/{at}"),
            "content": {"type": "json_schema", "json_schema": one.get("schema", {})},
            "end": _text(one, "end", f"/structures/{at}"),
        }
        for at, one in enumerate(structures)
    ]
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags}


class _TagWriter:
    """Writes formats as expressions, with rules of their own where they need them."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self._parts = 0

    def expression(self, form: Any, where: str) -> str:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise GrammarError(f"structural_tag{where}: at most {MAX_PARTS} parts are taken")
        kind = form.get("type") if isinstance(form, dict) else None
        write = getattr(self, f"_{kind}", None) if isinstance(kind, str) and kind in _FORMATS else None
        if write is None:
            raise GrammarError(f"structural_tag{where}: the type {str(kind)[:64]!r} is not supported")
        return str(write(form, where))

    def _const_string(self, form: dict[str, Any], where: str) -> str:
        return literal(_text(form, "value", where)) or '""'

    def _json_schema(self, form: dict[str, Any], where: str) -> str:
        return f"%json {json.dumps(form.get('json_schema', {}), ensure_ascii=False)}"

    def _regex(self, form: dict[str, Any], where: str) -> str:
        return f"/{slashed(_text(form, 'pattern', where))}/"

    def _any_text(self, form: dict[str, Any], where: str) -> str:
        return _ANY_TEXT

    def _sequence(self, form: dict[str, Any], where: str) -> str:
        elements = _list(form, "elements", where)
        parts = [self.expression(one, f"{where}/elements/{at}") for at, one in enumerate(elements)]
        return f"({' '.join(map(self._named, parts))})"

    def _or(self, form: dict[str, Any], where: str) -> str:
        elements = _list(form, "elements", where)
        parts = [self.expression(one, f"{where}/elements/{at}") for at, one in enumerate(elements)]
        return f"({' | '.join(map(self._named, parts))})"

    def _tag(self, form: dict[str, Any], where: str) -> str:
        return f"{literal(_text(form, 'begin', where))} {self._inside(form, where)}"

    def _inside(self, form: dict[str, Any], where: str) -> str:
        """The content of a tag and its end, which free text cannot run past."""
        content, end = form.get("content"), _text(form, "end", where)
        if isinstance(content, dict) and content.get("type") == "any_text" and end:
            return self._rule(f"/(.|\\n)*/ {literal(end)}", "[lazy]")
        return f"{self._named(self.expression(content, f'{where}/content'))} {literal(end)}"

    def _tags_with_separator(self, form: dict[str, Any], where: str) -> str:
        tags = [self._rule(self._tag(one, at)) for one, at in _tags(form, where)]
        one = self._rule(" | ".join(tags))
        separator = literal(_text(form, "separator", where))
        more = "" if form.get("stop_after_first") else f" ({separator} {one})*"
        return f"({one}{more})" if form.get("at_least_one") else f"({one}{more})?"

    def _triggered_tags(self, form: dict[str, Any], where: str) -> str:
        triggers = _list(form, "triggers", where)
        if not all(isinstance(trigger, str) and trigger for trigger in triggers):
            raise GrammarError(f"structural_tag{where}/triggers: must be non-empty texts")
        tags = [self._triggered(one, triggers, at) for one, at in _tags(form, where)]
        one = self._rule(" | ".join(tags))
        times = "" if form.get("stop_after_first") else "*"
        if form.get("at_least_one"):
            times = "" if form.get("stop_after_first") else "+"
        elif form.get("stop_after_first"):
            times = "?"
        tail = "" if form.get("stop_after_first") else f" {self._tail()}"
        return f"({one}{times}{tail})"

    def _triggered(self, tag: Any, triggers: list[str], where: str) -> str:
        """Text up to the trigger, from which on only this tag's own words may come."""
        begin = _text(tag, "begin", where)
        trigger = next((trigger for trigger in triggers if begin.startswith(trigger)), None)
        if trigger is None:
            raise GrammarError(f"structural_tag{where}/begin: begins with none of the triggers")
        opening = self._rule(f"{_ANY_TEXT} {literal(trigger)}", "[lazy]")
        return self._rule(f"{opening} {literal(begin.removeprefix(trigger))} {self._inside(tag, where)}")

    def _tail(self) -> str:
        return self._rule(_ANY_TEXT, token=True)

    def _named(self, expression: str) -> str:
        """`%json` stands alone in a rule."""
        return self._rule(expression) if expression.startswith("%") else expression

    def _rule(self, body: str, attribute: str = "", *, token: bool = False) -> str:
        name = f"{'TEXT' if token else 'part'}_{len(self.rules)}"
        self.rules.append(f"{name}{attribute}: {body}")
        return name


_FORMATS = frozenset(
    {"const_string", "json_schema", "regex", "any_text", "sequence", "or", "tag", "tags_with_separator", "triggered_tags"}
)  # fmt: skip


def slashed(pattern: str) -> str:
    """A regular expression between slashes."""
    import llguidance

    return str(llguidance.regex_to_lark(pattern, ""))


def _tags(form: dict[str, Any], where: str) -> list[tuple[Any, str]]:
    tags = _list(form, "tags", where)
    if not tags:
        raise GrammarError(f"structural_tag{where}/tags: must not be empty")
    return [(tag, f"{where}/tags/{at}") for at, tag in enumerate(tags)]


def _list(form: dict[str, Any], name: str, where: str) -> list[Any]:
    value = form.get(name)
    if not isinstance(value, list) or not value:
        raise GrammarError(f"structural_tag{where}/{name}: must be a list that is not empty")
    return value


def _text(form: Any, name: str, where: str) -> str:
    value = form.get(name) if isinstance(form, dict) else None
    if not isinstance(value, str):
        raise GrammarError(f"structural_tag{where}/{name}: must be a text")
    return value
