"""A virtual environment for each client package, so that what one pulls in never meets the others or Octavo's own."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import venv
from pathlib import Path

from tests.assets import cache_dir, lock

PACKAGES = Path(__file__).parent / "packages"
REQUIREMENTS = PACKAGES / "requirements"


def environment(requirements: Path) -> Path:
    """The Python of the environment with what that file pins; made once for each content of it."""
    version = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = cache_dir() / "clients" / f"{requirements.stem}-{version}"
    folder.parent.mkdir(exist_ok=True)
    with lock(folder.with_suffix(".lock")):
        if not (folder / "whole").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            install = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check", "-r", requirements]
            subprocess.run(install, check=True, timeout=1800)
            (folder / "whole").touch()
    return folder / "bin/python"
