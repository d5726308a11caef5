"""`benchmarks.memory` runs, and sorts mappings by what they are."""

from __future__ import annotations

import sys

import pytest
from benchmarks import memory
from tests.assets import smollm2_gguf

SMAPS = """\
55d0c0a00000-55d0c0a01000 r--p 00000000 08:01 1048 /usr/bin/python3.11
Rss:                1024 kB
Pss:                1000 kB
7f0000000000-7f0000400000 r-xp 00000000 08:01 77   /venv/torch/lib/libtorch_cpu.so
Rss:                4096 kB
7f1000000000-7f1000100000 r--s 00000000 08:01 78   /models/a b.gguf
Rss:                2048 kB
7f2000000000-7f2000100000 rw-s 00000000 00:01 79   /dev/zero (deleted)
Rss:                 512 kB
7f3000000000-7f3000100000 rw-p 00000000 00:00 0
Rss:                 256 kB
7f4000000000-7f4000100000 rw-p 00000000 00:00 0    [heap]
Rss:                 256 kB
7f5000000000-7f5000100000 rw-p 00000000 00:00 0    [stack]
Rss:                 128 kB
"""


def test_mappings_by_kind() -> None:
    assert memory.resident_mib(SMAPS) == {
        "other libraries": 1.0, "torch's libraries": 4.0, "the model's file": 2.0, "KV pages": 0.5, "heap": 0.5,
        "others": 0.125,
    }  # fmt: skip


def test_it_prints_front_and_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["memory", "--model", str(smollm2_gguf()), "--clients", "2"])
    monkeypatch.setattr(memory, "PROMPT", 8)
    monkeypatch.setattr(memory, "ANSWER", 4)
    memory.main()
    *table, summary = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[:2] for row in table[2:]] == [
        ["| ready", "front"], ["| ready", "engine"], ["| 24 tokens", "front"], ["| 24 tokens", "engine"],
    ]  # fmt: skip
    assert summary.startswith("peak ")
