"""The scripts of `packages/`, each in an environment of its client's own, against one real server."""

from __future__ import annotations

import os
import subprocess

import pytest
from tests.clients.environments import PACKAGES, REQUIREMENTS, environment
from tests.clients.server import MODEL

CLIENTS = sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def test_every_client_has_a_script_and_pins() -> None:
    assert [path.stem.removeprefix("check_") for path in sorted(PACKAGES.glob("check_*.py"))] == CLIENTS
    for path in REQUIREMENTS.glob("*.txt"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert all(line.count("==") == 1 for line in lines), path.name


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("client", CLIENTS)
def test_client(client: str, url: str) -> None:
    settings = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "key",
        "OCTAVO_TEST_MODEL": MODEL,
        # Nobody else is asked: no price list is fetched, no trace sent.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LANGSMITH_TRACING": "false",
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    command = [
        environment(REQUIREMENTS / f"{client}.txt"),
        "-m",
        "pytest",
        "-c",
        PACKAGES / "pytest.ini",
        "--confcutdir",
        PACKAGES,
    ]
    run = subprocess.run(
        [*command, PACKAGES / f"check_{client}.py"],
        env=kept | settings,
        cwd=PACKAGES,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
