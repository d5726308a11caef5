"""Servers that many tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.harness import Server, running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The fake model; answers are letters that follow from the prompt."""
    with running() as running_server:
        yield running_server
