"""Pictures of a sweep, through matplotlib, which is asked for only when a picture is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.entrypoints.bench.arguments import refuse
from octavo.entrypoints.bench.grid import name_of
from octavo.lib.errors import ConfigError

UNITS = {
    "output_throughput": "output tokens/s",
    "total_token_throughput": "tokens/s, prompts included",
    "request_throughput": "requests/s",
    "request_goodput": "requests/s that met the objectives",
    "request_rate": "requests/s asked for",
    "max_concurrency": "requests open at a time, at most",
}
MARKERS = "os^Dv<>P"


def require_matplotlib() -> None:
    """
    Raises:
        ConfigError: matplotlib is not installed; the message says what to do.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "A plot needs matplotlib, which is not installed: `pip install matplotlib`, or leave it out with --no-plot.",
            param="plot",
        ) from error


def plot_sweep(records: Sequence[Mapping[str, Any]], x: str, y: str, path: Path) -> int:
    """One line for each server setting, over the loads. Returns how many records are points of it.

    Args:
        records: Of the summary.
        x: Key of the horizontal axis; looked for in the load, the server's setting, the figures.
        y: Key of the vertical axis.
        path: File to write; its ending says the format.

    Raises:
        ConfigError: no record has the key, or matplotlib is missing.
    """
    require_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    lines = lines_of(records, x, y)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for index, (name, points) in enumerate(lines.items()):
        marker = MARKERS[index % len(MARKERS)]
        axes.plot(*zip(*points, strict=True), marker=marker, label=name)
    axes.set_xlabel(_label(x))
    axes.set_ylabel(_label(y))
    axes.set_ylim(bottom=0)
    if all(value.is_integer() for points in lines.values() for value, _ in points):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend(title="server")
    figure.savefig(path, dpi=150)
    return sum(map(len, lines.values()))


def varying(records: Sequence[Mapping[str, Any]]) -> str | None:
    """The first setting that takes several numbers, of the loads, then of the servers."""
    for part in ("bench", "serve"):
        values: dict[str, set[float]] = {}
        for record in records:
            for key, value in record[part].items():
                values.setdefault(key, set()).update([value] if _is_number(value) else [])
        for key, numbers in values.items():
            if len(numbers) > 1:
                return key
    return None


def lines_of(records: Sequence[Mapping[str, Any]], x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    """Points in order of x, by server setting; a server's setting on an axis is no part of a line's name.

    Raises:
        ConfigError: no record has both keys.
    """
    lines: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        point = tuple(_value(record, key) for key in (x, y))
        if point[0] is not None and point[1] is not None:
            name = name_of({key: value for key, value in record["serve"].items() if key not in (x, y)})
            lines.setdefault(name, []).append((point[0], point[1]))
    if not lines:
        missing = x if all(_value(record, x) is None for record in records) else y
        raise refuse("plot_x" if missing == x else "plot_y", f"{missing!r} is no number in any result")
    return {name: sorted(points) for name, points in lines.items()}


def _value(record: Mapping[str, Any], key: str) -> float | None:
    for place in (record["bench"], record["serve"], record):
        if _is_number(place.get(key)):
            return float(place[key])
    return None


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _label(key: str) -> str:
    if key in UNITS:
        return UNITS[key]
    if key.endswith("_ms"):
        return f"{key.removesuffix('_ms').replace('_', ' ')} (ms)"
    return key.replace("_", " ")
