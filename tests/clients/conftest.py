"""One server for all clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.server import serving


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of a server with the default model and the key `key`."""
    with serving("--api-key", "key") as address:
        yield address
