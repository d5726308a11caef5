"""The page at / in Chromium: the script of `browser/`, in Playwright's own environment, against a real server."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.clients.environments import environment
from tests.clients.server import serving

BROWSER = Path(__file__).parent / "browser"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    CHROMIUM is None,
    reason="the page is NOT tested in a browser: needs Debian's `chromium`, or google-chrome",
)
def test_the_page_in_chromium() -> None:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    command = [environment(BROWSER / "playwright.txt"), "-m", "pytest", "-c", BROWSER / "pytest.ini"]
    with serving("--api-key", "key") as url:
        settings = {"OCTAVO_TEST_URL": url, "OCTAVO_TEST_CHROMIUM": str(CHROMIUM)}
        run = subprocess.run(
            [*command, "--confcutdir", BROWSER, BROWSER / "check_page.py"],
            env=kept | settings,
            cwd=BROWSER,
            capture_output=True,
            text=True,
            timeout=1200,
        )
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
