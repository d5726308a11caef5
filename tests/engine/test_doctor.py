"""`octavo doctor` says what an engine started here would compute with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from octavo import ops
from octavo.config.env import environment
from octavo.entrypoints.cli.main import main


@pytest.fixture(autouse=True)
def _own_isa() -> Iterator[None]:
    before = ops.isa()
    environment.cache_clear()
    yield
    ops.set_isa(before)
    environment.cache_clear()


def kernels(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["kernels"]
    return found


@pytest.mark.parametrize("isa", ["scalar", ops.available_isas()[-1]])
def test_the_instruction_set_that_was_asked_for(
    isa: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OCTAVO_ISA", isa)
    main(["doctor", "--json"])
    found = kernels(capsys)
    assert found["ok"]
    assert found["value"].startswith(f"{isa} (")


def test_an_instruction_set_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OCTAVO_ISA", "mmx")
    assert main(["doctor", "--json"]) == 1
    found = kernels(capsys)
    assert not found["ok"]
    assert "(OCTAVO_ISA) must be one of scalar" in found["value"]
