"""The jinja2 sandbox that chat templates run in: immutable, and bounded in time, steps and size.

What is guaranteed: a template may take `Limits.steps` steps and `Limits.seconds` of time, both checked at every
turn of a loop, every call, every filter and every operator that can make a value grow; and no such operation makes
a text longer than `Limits.characters`, nor a text of a structure with more parts than that, which is worked out
before it is done. Between two checks only one operation on values of bounded size can run.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

_CONCATENATE = "_concatenate"
_STRINGIFIERS = frozenset({"tojson", "string", "pprint", "format", "join", _CONCATENATE})
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one rendering may take.

    Attributes:
        seconds: Wall-clock time.
        steps: Turns of loops, calls, filters and operators.
        characters: Length of the result, of any text on the way, and number of parts of any structure.
        template_characters: Length of the template itself.
    """

    seconds: float = 5.0
    steps: int = 1_000_000
    characters: int = 1 << 25
    template_characters: int = 1 << 19


class TemplateLimitError(jinja2.TemplateError):
    """A template took more than its limits allow."""


class Budget:
    """What is left of the limits during one rendering."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._steps = limits.steps
        self._deadline = time.monotonic() + limits.seconds

    def spend(self) -> None:
        """Take a step.

        Raises:
            TemplateLimitError: Steps or time are used up.
        """
        self._steps -= 1
        if self._steps < 0:
            raise TemplateLimitError(f"The chat template takes more than {self.limits.steps} steps.")
        if time.monotonic() > self._deadline:
            raise TemplateLimitError(f"The chat template takes longer than {self.limits.seconds} seconds.")

    def check_size(self, size: int) -> None:
        """Refuse to make something of `size` letters or parts.

        Raises:
            TemplateLimitError: It is more than allowed.
        """
        if size > self.limits.characters:
            raise TemplateLimitError(
                f"The chat template makes a text of more than {self.limits.characters} characters."
            )

    def check_structure(self, value: object) -> None:
        """Refuse to write out a structure that has too many parts (each counted as often as it would be written)."""
        left = self.limits.characters
        waiting = [value]
        while waiting:
            part = waiting.pop()
            left -= len(part) if isinstance(part, str) else 1
            if left < 0:
                self.check_size(self.limits.characters + 1)
            if isinstance(part, Mapping):
                waiting += [*part.keys(), *part.values()]
            elif isinstance(part, list | tuple):
                waiting += part


_UNLIMITED = Budget(Limits(seconds=float("inf"), steps=1 << 62))
_budget: ContextVar[Budget] = ContextVar("octavo_template_budget", default=_UNLIMITED)
use_budget = _budget.set
end_budget = _budget.reset


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox. What templates find in it is what transformers gives them (`render_jinja_template`)."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, jinja2.ext.loopcontrols],
            finalize=_finalize,
        )
        self.filters["tojson"] = _tojson
        self.filters[_CONCATENATE] = _concatenate
        self.filters = {name: _bounded(name, function) for name, function in self.filters.items()}
        del self.globals["lipsum"]  # endless random text
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "dict": TemplateDict(),
            "namespace": TemplateNamespace,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Instrument().visit(tree)
        return tree

    def spend(self) -> None:
        """Take a step; compiled into every loop."""

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Every call that a template makes."""
        budget = _budget.get()
        budget.spend()
        _check_call(budget, __obj, args, kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        _check_result(budget, result)
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Every operator that can make a value grow."""
        budget = _budget.get()
        budget.spend()
        _check_operator(budget, operator, left, right)
        return super().call_binop(context, operator, left, right)


class _Instrument(NodeTransformer):
    """Makes each turn of a loop a call, and each `~` a filter, so that both are counted."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        step = nodes.Call(nodes.EnvironmentAttribute("spend"), [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(step).set_lineno(node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        parts = nodes.List(node.nodes)
        return nodes.Filter(parts, _CONCATENATE, [], [], None, None).set_lineno(node.lineno)


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks what an assistant wrote; training needs the marks, rendering only what is inside."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> nodes.Node:
        """A block with a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("write"), [], [], body).set_lineno(line)

    def write(self, caller: Callable[[], str]) -> str:
        """What the block writes."""
        return caller()


class TemplateDict:
    """`dict` without its attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """See `dict.fromkeys`."""
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(Namespace):
    """`namespace` without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"A namespace cannot have the attribute {name!r}.")


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _concatenate(parts: Sequence[Any]) -> str:
    texts = list(map(str, parts))
    _budget.get().check_size(sum(map(len, texts)))
    return "".join(texts)


def _finalize(value: Any) -> Any:
    """Every value on its way into the result."""
    if isinstance(value, list | tuple | Mapping):
        _budget.get().check_structure(value)
    return value


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that counts and stays within the limits."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        budget = _budget.get()
        budget.spend()
        _check_numbers(budget, [*args, *kwargs.values()])
        if name in _STRINGIFIERS:
            for value in args:
                if isinstance(value, list | tuple | Mapping):
                    budget.check_structure(value)
        if name in ("replace", "join", "format"):
            _check_text_method(budget, name, args[1] if _takes_environment(function) else args[0], args)
        result = function(*args, **kwargs)
        _check_result(budget, result)
        return result

    return checked


def _takes_environment(function: Callable[..., Any]) -> bool:
    return hasattr(function, "jinja_pass_arg")


def _check_numbers(budget: Budget, values: Iterable[Any]) -> None:
    """Numbers are widths, indents and counts, so a great one would make a great text."""
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool):
            budget.check_size(abs(value))


def _check_call(budget: Budget, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    function = getattr(function, "__wrapped__", function)  # jinja2 wraps `str.format` in its own sandbox
    text = getattr(function, "__self__", None)
    if isinstance(text, str):
        _check_numbers(budget, [*args, *kwargs.values()])
        _check_text_method(budget, getattr(function, "__name__", ""), text, [*args, *kwargs.values()])


def _check_text_method(budget: Budget, name: str, text: Any, args: Sequence[Any]) -> None:
    if not isinstance(text, str):
        return
    longest = max((len(arg) for arg in args if isinstance(arg, str)), default=0)
    if name == "replace":
        old = next((arg for arg in args if isinstance(arg, str) and arg is not text), "")
        budget.check_size(len(text) + (text.count(old) + 1) * longest)
    elif name == "join":
        for arg in args:
            if isinstance(arg, list | tuple):
                budget.check_structure(arg)
                budget.check_size(len(text) * len(arg))
    elif name in ("format", "format_map"):
        _check_pattern(budget, text, args)
    elif name == "expandtabs":
        budget.check_size(len(text) + text.count("\t") * max([8, *(a for a in args if isinstance(a, int))]))
    elif name == "translate":
        budget.check_size(
            len(text) * max((len(str(v)) for a in args if isinstance(a, dict) for v in a.values()), default=1)
        )


def _check_pattern(budget: Budget, pattern: str, args: Sequence[Any]) -> None:
    """A format pattern: its widths, and each argument as often as there are fields."""
    fields = pattern.count("%") + pattern.count("{")
    for arg in args:
        budget.check_structure(arg)
    longest = max((len(str(arg)) for arg in args), default=0)
    widths = sum(int(number[:12]) for number in _NUMBER.findall(pattern)) + (fields * longest)
    if "*" in pattern:
        widths += fields * max((abs(arg) for arg in args if isinstance(arg, int)), default=0)
    budget.check_size(len(pattern) + widths)


def _check_operator(budget: Budget, operator: str, left: Any, right: Any) -> None:
    if operator == "%" and isinstance(left, str):
        _check_pattern(budget, left, right if isinstance(right, tuple) else (right,))
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        budget.check_size(left.bit_length() * abs(right))
    elif operator == "*":
        for value, count in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple) and isinstance(count, int):
                budget.check_size(len(value) * max(count, 0))
            elif isinstance(value, int) and isinstance(count, int):
                budget.check_size(value.bit_length() + count.bit_length())
    elif operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        budget.check_size(len(left) + len(right))


def _check_result(budget: Budget, result: Any) -> None:
    if isinstance(result, str | list | tuple | dict):
        budget.check_size(len(result))
