"""Turns of the peers and the table of ratios, with peers that measure nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.compare import run, sampling
from benchmarks.compare.figures import Model
from benchmarks.compare.peers import Job, PeerFailed
from benchmarks.compare.run import Plan
from benchmarks.compare.sampling import Samples


class FakePeer:
    """Answers with a speed, or fails; writes down what happens."""

    def __init__(self, job: Job, log: list[str]) -> None:
        self.name, self.setting, self._log = job.peer, job.setting, log
        self._speeds: list[float] = list(job.options["speeds"])
        self._log.append(f"start {self.name}{self.setting}")
        if not self._speeds:
            raise PeerFailed(f"{self.name} cannot load it")

    def speed(self, figure: str, rng: random.Random) -> float:
        self._log.append(f"{figure} {self.name}{self.setting}")
        if self._speeds[0] < 0:
            raise PeerFailed(f"{self.name} died")
        self._speeds.append(self._speeds.pop(0))
        return self._speeds[-1]

    def close(self) -> None:
        self._log.append(f"close {self.name}{self.setting}")


Install = Callable[..., list[str]]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make the model `m` known, whose peers' settings give these speeds; the log comes back."""
    monkeypatch.setattr(sampling.ForeignLoad, "cores", lambda self: 0.0)

    def known(**peers: dict[str, list[float]]) -> list[str]:
        log: list[str] = []
        settings = {
            name: {setting: {"speeds": speeds} for setting, speeds in of.items()}
            for name, of in peers.items()
        }
        monkeypatch.setattr(run, "MODELS", {"m": Model(100, lambda folder: folder / "m", settings, {})})
        monkeypatch.setattr(run, "START", {name: lambda job: FakePeer(job, log) for name in peers})
        monkeypatch.setattr(run, "installed", lambda name, folder: True)
        return log

    return known


def plan(**changes: object) -> Plan:
    fields: dict[str, object] = {
        "models": ["m"],
        "figures": ["decode"],
        "peers": None,
        "runs": 1,
        "threads": 1,
    }
    return Plan(**(fields | changes))  # type: ignore[arg-type]


def table(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_medians_and_ratios_of_the_best_settings(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The median decides which setting is best: one lucky sample does not."""
    install(
        octavo={"": [100.0, 130.0, 120.0]},
        other={"slow": [1.0, 2.0, 900.0], "fast": [50.0, 60.0, 70.0]},
        third={"": [240.0, 240.0, 240.0]},
    )
    run.run(plan(runs=3), tmp_path, tmp_path / "samples.json")
    assert table(capsys) == [
        "| m | octavo | other | ratio | third | ratio |",
        "|---|---|---|---|---|---|",
        "| decode | 120 | 60 (fast) | 2.00 | 240 | 0.50 |",
    ]
    document = json.loads((tmp_path / "samples.json").read_text())
    assert document["models"]["m"]["decode"][1] == {
        "peer": "other", "setting": "slow", "values": [1.0, 2.0, 900.0], "disturbed": 0,
    }  # fmt: skip


def test_every_second_turn_goes_backwards(install: Install, tmp_path: Path) -> None:
    log = install(octavo={"": [1.0]}, other={"1": [1.0], "2": [1.0]})
    run.run(plan(runs=3, figures=["prefill", "decode"]), tmp_path, None)
    assert log[:3] == ["start octavo", "start other1", "start other2"]
    assert log[-3:] == ["close octavo", "close other1", "close other2"]
    there, back = ["octavo", "other1", "other2"], ["other2", "other1", "octavo"]
    turns = (there, there, back, back, there, there)
    figures = ("prefill", "decode") * 3
    assert log[3:-3] == [
        f"{figure} {peer}" for figure, turn in zip(figures, turns, strict=True) for peer in turn
    ]


def test_reload_has_one_peer_in_memory(install: Install, tmp_path: Path) -> None:
    log = install(octavo={"": [1.0]}, other={"": [1.0]})
    run.run(plan(runs=2, figures=["prefill", "decode"], reload=True), tmp_path, None)
    turns = ("octavo", "other", "other", "octavo")
    assert log == [f"{what} {peer}" for peer in turns for what in ("start", "prefill", "decode", "close")]


def test_a_peer_that_cannot_load_is_left_out(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = install(octavo={"": [10.0]}, other={"": []}, third={"": [5.0]})
    run.run(plan(), tmp_path, None)
    output = capsys.readouterr()
    assert "other cannot load it" in output.err
    assert output.out.splitlines()[0] == "| m | octavo | third | ratio |"
    assert "close other" not in log


def test_a_peer_that_dies_has_an_empty_cell(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(octavo={"": [10.0]}, other={"": [-1.0]}, third={"": [5.0]})
    run.run(plan(), tmp_path, None)
    output = capsys.readouterr()
    assert "other died" in output.err
    assert output.out.splitlines()[2] == "| decode | 10 | | | 5 | 2.00 |"


def test_without_octavo_there_is_no_ratio() -> None:
    row = {("other", ""): Samples([5.0])}
    assert list(run._lines("m", {"decode": row}))[2] == "| decode |  | 5 | |"


def test_a_disturbed_sample_shows(capsys: pytest.CaptureFixture[str]) -> None:
    row = {("octavo", ""): Samples([10.0, 12.0], 1), ("other", ""): Samples([8.0, 3.0])}
    assert list(run._lines("m", {"decode": row}))[2] == "| decode | ~11 | 5.5 | 2.00 |"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ["m", "n"]}, "Unknown model 'n'; there are m"),
        ({"figures": ["speed"]}, "Unknown figure 'speed'; there are prefill, decode, clients"),
        ({"settings": ["slow"]}, "Unknown setting 'slow'; there are fast"),
        ({"peers": ["octavo", "ours"]}, "Unknown peer 'ours'; there are octavo"),
    ],
)
def test_unknown_names_are_refused_before_anything_starts(
    install: Install, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    log = install(octavo={"": [1.0], "fast": [1.0]})
    with pytest.raises(SystemExit, match=message):
        run.run(plan(**changes), tmp_path, None)
    assert log == []


def test_only_installed_peers_that_were_asked_for(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = install(octavo={"": [1.0]}, other={"": [1.0]}, third={"": [1.0]})
    monkeypatch.setattr(run, "installed", lambda name, folder: name != "third")
    run.run(plan(peers=["other", "third"]), tmp_path, None)
    assert log == ["start other", "decode other", "close other"]


def test_only_the_settings_that_were_asked_for(install: Install, tmp_path: Path) -> None:
    """A peer that has none of them keeps all of its own."""
    log = install(octavo={"": [1.0]}, other={"fast": [1.0], "slow": [1.0]})
    run.run(plan(settings=["slow"]), tmp_path, None)
    assert [line for line in log if line.startswith("decode")] == ["decode octavo", "decode otherslow"]


def test_a_run_that_is_ended_keeps_what_it_measured(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(octavo={"": [1.0]})
    taken: list[str] = []

    def take(peer: sampling.Peer, figure: str, rng: random.Random, samples: Samples) -> None:
        if len(taken) == 2:
            raise KeyboardInterrupt
        taken.append(figure)
        samples.values.append(7.0)

    monkeypatch.setattr(run, "take", take)
    with pytest.raises(KeyboardInterrupt):
        run.run(plan(runs=3), tmp_path, tmp_path / "samples.json")
    (kept,) = json.loads((tmp_path / "samples.json").read_text())["models"]["m"]["decode"]
    assert kept["values"] == [7.0, 7.0]
