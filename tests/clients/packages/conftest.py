"""What every client is told of the server that it talks to."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def base_url() -> str:
    """The address that OpenAI's clients take."""
    return os.environ["OPENAI_BASE_URL"]


@pytest.fixture(scope="session")
def api_key() -> str:
    return os.environ["OPENAI_API_KEY"]


@pytest.fixture(scope="session")
def model() -> str:
    return os.environ["OCTAVO_TEST_MODEL"]
