"""`docs/dependencies.md` has a reason for each package that an installation brings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def rows(heading: str) -> list[list[str]]:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found[0]


def test_every_package_has_its_reason_and_no_other_is_listed() -> None:
    listed = rows("Always")
    assert sorted(row[0].strip("`") for row in listed) == sorted(map(name_of, PROJECT["dependencies"]))
    assert all(len(row) == 2 and row[1] for row in listed)


def test_extras_are_those_of_the_project() -> None:
    listed = {row[0].strip("`"): [one.strip("` ") for one in row[1].split(",")] for row in rows("Extras")}
    extras = PROJECT["optional-dependencies"]
    assert listed == {extra: [name_of(one) for one in needs] for extra, needs in extras.items()}
