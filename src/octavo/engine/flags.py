"""A dataclass field is a command-line flag: its type, default and docstring say all; nothing is typed twice."""

from __future__ import annotations

import argparse
import dataclasses
import types
from collections.abc import Callable, Collection, Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

from octavo.lib.errors import ConfigError
from octavo.lib.field_docs import field_docs

_METADATA = "octavo.flag"


@dataclasses.dataclass(frozen=True)
class Flag:
    """What a field cannot say by itself about its flag."""

    aliases: tuple[str, ...] = ()
    """Further spellings, such as vLLM's, with their dashes."""
    choices: tuple[str, ...] = ()
    parse: Callable[[str], object] | None = None
    """Text to value; None: the field's type."""
    positional: bool = False
    """Also taken as the first argument without a dash."""


def flag(default: Any, **extras: Any) -> Any:
    """A dataclass field with `default` and the `Flag` facts in `extras`."""
    return dataclasses.field(default=default, metadata={_METADATA: Flag(**extras)})


def add_flags(
    parser: argparse.ArgumentParser,
    cls: type,
    *,
    group: str | None = None,
    only: Collection[str] | None = None,
) -> None:
    """Give `parser` one flag for each field of the dataclass `cls` (or those in `only`), in the order of the class."""
    target = parser.add_argument_group(group) if group else parser
    hints, docs = get_type_hints(cls), field_docs(cls)
    for field in dataclasses.fields(cls):
        if only is None or field.name in only:
            _add_flag(target, field, hints[field.name], docs.get(field.name, ""))


def values_from(
    namespace: argparse.Namespace, cls: type, *, only: Collection[str] | None = None
) -> dict[str, Any]:
    """The parsed values that belong to fields of `cls` (or those in `only`), ready for its constructor."""
    names = [field.name for field in dataclasses.fields(cls) if only is None or field.name in only]
    return {name: getattr(namespace, name) for name in names if hasattr(namespace, name)}


def check_choices(args: Any) -> None:
    """Hold the fields of a dataclass instance to the choices of their flags, for values that came without a parser.

    Raises:
        ConfigError: names the field and what it takes.
    """
    for field in dataclasses.fields(args):
        choices, value = field.metadata.get(_METADATA, Flag()).choices, getattr(args, field.name)
        if choices and value not in choices and value != field.default:
            raise ConfigError(
                f"--{field.name.replace('_', '-')} must be one of {', '.join(choices)}, got {value!r}.",
                param=field.name,
            )


def synonyms(cls: type) -> dict[str, str]:
    """Further names of fields (`gpu_memory_utilization`) and the fields that they mean, from the flags' aliases."""
    return {
        alias.removeprefix("--").replace("-", "_"): field.name
        for field in dataclasses.fields(cls)
        for alias in field.metadata.get(_METADATA, Flag()).aliases
        if alias.startswith("--")
    }


def _add_flag(target: Any, field: dataclasses.Field[Any], hint: Any, doc: str) -> None:
    facts: Flag = field.metadata.get(_METADATA, Flag())
    names = [f"--{field.name.replace('_', '-')}", *facts.aliases]
    inner, optional, is_list = _unwrap(hint)
    text = doc.replace("%", "%%") + _default_text(field.default, optional)
    if inner is bool:
        target.add_argument(
            *names, dest=field.name, default=field.default, help=text, action=argparse.BooleanOptionalAction
        )
        return
    options: dict[str, Any] = {"default": field.default, "help": text, "dest": field.name}
    options |= {"choices": facts.choices} if facts.choices else {"type": _parser(facts.parse or inner)}
    options |= {"nargs": "+"} if is_list else {}
    if not facts.choices:
        options["metavar"] = field.name.rsplit("_", 1)[-1].upper()
    target.add_argument(*names, **options)


def _unwrap(hint: Any) -> tuple[Any, bool, bool]:
    """(bare type, may be None, is a sequence) of a field's annotation."""
    optional = False
    if get_origin(hint) in (Union, types.UnionType):
        optional = type(None) in get_args(hint)
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    if get_origin(hint) in (tuple, list, Sequence):
        return get_args(hint)[0], optional, True
    return hint, optional, False


def _default_text(default: object, optional: bool) -> str:
    if default is None or default == () or (optional and not default):
        return ""
    if isinstance(default, bool):
        return f" Default: {'on' if default else 'off'}."
    if default == "":
        return " Default: none."
    return f" Default: {' '.join(map(str, default)) if isinstance(default, (tuple, list)) else default}."


def _parser(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Let argparse show the reason of a ValueError instead of `invalid value`."""

    def checked(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked
