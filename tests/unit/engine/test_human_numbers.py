"""Numbers as people write them."""

from __future__ import annotations

import pytest

from octavo.lib.human_numbers import format_bytes, parse_human_int


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4096", 4096),
        ("8k", 8000),
        ("8K", 8192),
        ("8Ki", 8192),
        ("1.5g", 1_500_000_000),
        ("2G", 2 << 30),
        ("2GB", 2 << 30),
        ("512Mi", 512 << 20),
        ("1_000", 1000),
    ],
)
def test_parse(text: str, value: int) -> None:
    assert parse_human_int(text) == value


@pytest.mark.parametrize("text", ["", "k", "-1", "1.2345", "1x", "1kk", "0x10", "nan"])
def test_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_human_int(text)


def test_format_bytes() -> None:
    shown = [format_bytes(n) for n in (0, 1023, 1536, 300 << 20, 5 << 40)]
    assert shown == ["0 B", "1023 B", "1.5 KiB", "300 MiB", "5.0 TiB"]
