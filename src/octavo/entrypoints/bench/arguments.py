"""Flags of the bench commands, from dataclasses as everywhere else, and the checks that many of them share."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from octavo.engine.flags import add_flags
from octavo.lib.errors import ConfigError


def flag_name(field: str) -> str:
    """`num_prompts` -> `--num-prompts`."""
    return f"--{field.replace('_', '-')}"


def make_parser(command: str, description: str, *groups: type) -> argparse.ArgumentParser:
    """A parser for `octavo bench COMMAND` with one flag for each field of the dataclasses. No abbreviations."""
    parser = argparse.ArgumentParser(
        prog=f"octavo bench {command}",
        usage=f"octavo bench {command} [OPTIONS]",
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for group in groups:
        add_flags(parser, group, group=_title(group))
    return parser


def refuse(field: str, why: str) -> ConfigError:
    """The error for a flag: `refuse("num_iters", "must be at least 1")`."""
    return ConfigError(f"{flag_name(field)} {why}.", param=field)


def check_at_least(args: Any, **lowest: float) -> None:
    """Refuse the first field that is set and below its bound.

    Raises:
        ConfigError: names the flag and the bound.
    """
    for field, bound in lowest.items():
        value = getattr(args, field)
        if value is not None and not value >= bound:
            raise refuse(field, f"must be at least {bound}, got {value}")


def given(args: Any) -> set[str]:
    """Fields of a dataclass of flags that differ from their defaults."""
    return {field.name for field in dataclasses.fields(args) if getattr(args, field.name) != field.default}


def _title(group: type) -> str:
    return group.__name__.removesuffix("Args").lower()
