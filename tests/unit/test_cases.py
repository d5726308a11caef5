"""`tests/CASES.md` and the tests speak of the same cases."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROW = re.compile(r"\| (A\d+) \| (\S*) ?\| `([^`:]+)::(\w+)` \| (.+) \|")


def rows() -> list[tuple[str, str, str, str, str]]:
    """Id, report, file, test and phrase of every row."""
    lines = (TESTS / "CASES.md").read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("| A")]
    found = [ROW.fullmatch(line) for line in table]
    assert all(found), "a row is not: | id | report | `file::test` | what it shows |"
    return [match.groups() for match in found if match]  # type: ignore[misc]


@functools.cache
def defined_tests(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_in_the_table_exists() -> None:
    missing = [
        f"{case}: {file}::{test}" for case, _, file, test, _ in rows() if test not in defined_tests(file)
    ]
    assert not missing


def test_every_case_has_one_report_and_comes_in_order() -> None:
    ids = [case for case, *_ in rows()]
    assert len(set(ids)) >= 36
    assert ids == sorted(ids, key=lambda case: int(case[1:]))
    reports = {case: [report for other, report, *_ in rows() if other == case and report] for case in ids}
    assert not {case: named for case, named in reports.items() if len(named) != 1}
    assert len({(case, file, test) for case, _, file, test, _ in rows()}) == len(ids)


def test_every_case_that_a_test_names_is_in_the_table() -> None:
    listed = {case for case, *_ in rows()}
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        named = {f"A{number}" for number in re.findall(r"(?:\bA|_a)(\d{2,3})(?=_|\b)", text)}
        assert named <= listed, path.name
