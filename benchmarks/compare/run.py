"""Rounds of turns, and the table."""

from __future__ import annotations

import json
import platform
import random
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.compare.figures import MODELS, Settings
from benchmarks.compare.peers import START, Job, PeerFailed, installed
from benchmarks.compare.sampling import FIGURES, Peer, Samples, take

T = TypeVar("T")
Row = dict[tuple[str, str], Samples]
"""Samples by peer and setting."""


@dataclass(frozen=True)
class Plan:
    models: list[str]
    figures: list[str]
    peers: list[str] | None
    runs: int
    threads: int
    reload: bool = False
    settings: list[str] | None = None

    def check(self) -> None:
        """Refuse names that nobody knows before anything is measured."""
        known: list[tuple[str, list[str], list[str]]] = [
            ("model", self.models, list(MODELS)),
            ("figure", self.figures, list(FIGURES)),
            ("peer", self.peers or [], list(START)),
            ("setting", self.settings or [], self._known_settings()),
        ]
        for kind, names, allowed in known:
            for name in names:
                if name not in allowed:
                    raise SystemExit(f"Unknown {kind} {name!r}; there are {', '.join(allowed)}")

    def _known_settings(self) -> list[str]:
        of_models = (model.peers.values() for model in MODELS.values())
        return sorted({name for peers in of_models for settings in peers for name in settings if name})


def run(plan: Plan, folder: Path, target: Path | None) -> None:
    plan.check()
    table: dict[str, dict[str, Row]] = {}
    for model in plan.models:
        rows = table[model] = {figure: {} for figure in plan.figures}
        for _ in _turns(model, plan, folder, rows):
            # After each turn: who ends a long run early keeps what there is.
            if target:
                target.write_text(json.dumps(_document(table, plan), indent=2) + "\n")
        print("\n".join(_lines(model, rows)), flush=True)


def _turns(name: str, plan: Plan, folder: Path, rows: dict[str, Row]) -> Iterator[int]:
    """Add a sample of each peer to `rows` in every turn; yields after each."""
    jobs = list(_jobs(name, plan, folder))
    rng = random.Random(0)
    with _started([] if plan.reload else jobs) as loaded:
        for turn in range(plan.runs):
            if plan.reload:
                for job in _in_turn(jobs, turn):
                    with _started([job]) as peers:
                        _sample(peers, rng, rows)
            else:
                _sample(_in_turn(loaded, turn), rng, rows)
            yield turn


def _in_turn(of: list[T], turn: int) -> list[T]:
    """Every second turn goes backwards, so that a drift of the machine is nobody's gain."""
    return of if turn % 2 == 0 else of[::-1]


def _sample(peers: list[Peer], rng: random.Random, rows: dict[str, Row]) -> None:
    """One sample of each figure of each peer; one that fails gets none."""
    for figure, row in rows.items():
        for peer in peers:
            samples = row.setdefault((peer.name, peer.setting), Samples())
            try:
                take(peer, figure, rng, samples)
            except PeerFailed as failure:
                print(failure, file=sys.stderr)


@contextmanager
def _started(jobs: list[Job]) -> Iterator[list[Peer]]:
    """Peers that have loaded; one that cannot is left out."""
    peers: list[Peer] = []
    try:
        for job in jobs:
            try:
                peers.append(START[job.peer](job))
            except PeerFailed as failure:
                print(failure, file=sys.stderr)
        yield peers
    finally:
        for started in peers:
            started.close()


def _jobs(name: str, plan: Plan, folder: Path) -> Iterator[Job]:
    model = MODELS[name]
    for peer, settings in model.peers.items():
        if (plan.peers is None or peer in plan.peers) and installed(peer, folder):
            path = model.other_paths.get(peer, model.path)(folder / "models")
            for setting, options in _chosen(settings, plan.settings).items():
                yield Job(peer, setting, path, plan.threads, model.vocabulary, folder, options)


def _chosen(settings: Settings, names: list[str] | None) -> Settings:
    """Those named; all of a peer of which none is."""
    return {name: options for name, options in settings.items() if name in (names or ())} or settings


def _lines(model: str, rows: dict[str, Row]) -> Iterator[str]:
    """A table of Markdown: Octavo, and each peer's best setting with how many times faster Octavo is."""
    names = list(dict.fromkeys(peer for row in rows.values() for peer, _ in row if peer != "octavo"))
    yield f"| {model} | octavo |" + "".join(f" {name} | ratio |" for name in names)
    yield "|---|---|" + "---|---|" * len(names)
    for figure, row in rows.items():
        own = _best(row, "octavo")
        cells = [_cell(_best(row, name), own) for name in names]
        yield f"| {figure} | {_speed(own)} |" + "".join(cells)


@dataclass(frozen=True)
class _Best:
    speed: float
    setting: str
    disturbed: bool


def _best(row: Row, name: str) -> _Best | None:
    found = [
        _Best(statistics.median(samples.values), setting, samples.disturbed > 0)
        for (peer, setting), samples in row.items()
        if peer == name and samples.values
    ]
    return max(found, key=lambda best: best.speed, default=None)


def _cell(peer: _Best | None, own: _Best | None) -> str:
    if peer is None:
        return " | |"
    return f" {_speed(peer)} | {own.speed / peer.speed:.2f} |" if own else f" {_speed(peer)} | |"


def _speed(best: _Best | None) -> str:
    """Tokens a second; `~` where a sample had to be taken on a busy machine."""
    if best is None:
        return ""
    setting = f" ({best.setting})" if best.setting else ""
    return f"{'~' if best.disturbed else ''}{best.speed:.4g}{setting}"


def _document(table: dict[str, dict[str, Row]], plan: Plan) -> dict[str, object]:
    measured = {
        model: {
            figure: [
                {"peer": peer, "setting": setting, **asdict(samples)}
                for (peer, setting), samples in row.items()
            ]
            for figure, row in rows.items()
        }
        for model, rows in table.items()
    }
    return {
        "machine": platform.processor() or platform.machine(),
        "threads": plan.threads,
        "models": measured,
    }
