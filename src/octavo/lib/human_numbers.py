"""Numbers as people write them: `8k`, `1.5G`, `2Ki`."""

from __future__ import annotations

import re

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
# A capital letter alone is binary, as vLLM reads it: 1k = 1000, 1K = 1024.
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]{0,3})\Z")


def parse_human_int(text: str) -> int:
    """Read a whole number with an optional unit: small letter decimal (8k = 8000), capital or `Ki` binary (8K = 8192).

    Raises:
        ValueError: the text is no such number, or not whole.
    """
    match = _NUMBER.match(text.strip().replace("_", ""))
    if not match:
        raise ValueError(f"{text!r} is not a number such as 4096, 8k, 8K or 2Gi")
    digits, unit = match.groups()
    unit = unit.removesuffix("B") if len(unit) > 1 else unit
    factor = _BINARY.get(unit) or _UNITS.get(unit.lower())
    if factor is None:
        raise ValueError(
            f"{unit!r} in {text!r} is no unit; use k, m, g, t (decimal) or K, M, G, T, Ki, Mi, Gi (binary)"
        )
    value = float(digits) * factor if "." in digits else int(digits) * factor
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number")
    return int(value)


def format_bytes(count: int) -> str:
    """`1536` -> `1.5 KiB`: three significant digits at most."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
