"""How to ask: the API that each backend speaks, and the server behind a URL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from octavo.entrypoints.bench.datasets import Sample
from octavo.entrypoints.bench.outcome import Outcome
from octavo.lib.errors import OctavoError

RETRY_SECONDS = 0.2


@dataclass(frozen=True)
class Backend:
    """One way to ask."""

    endpoint: str
    chat: bool = False
    as_text: bool = True
    """Whether prompts go out as text; else as token ids, so that their length is exact."""

    def body(self, model: str, sample: Sample, extra: Mapping[str, Any]) -> dict[str, Any]:
        """A streamed request for `sample`."""
        body: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
        if self.chat:
            body["messages"] = [{"role": "user", "content": sample.text}]
            body["max_completion_tokens"] = sample.output_len
        else:
            body["prompt"] = sample.text if self.as_text or not sample.token_ids else sample.token_ids
            body["max_tokens"] = sample.output_len
        return body | dict(extra)


BACKENDS = {
    "openai": Backend("/v1/completions"),
    "openai-chat": Backend("/v1/chat/completions", chat=True),
    "vllm": Backend("/v1/completions"),
    "octavo": Backend("/v1/completions", as_text=False),
}


def served_model(base_url: str, headers: Mapping[str, str]) -> str:
    """The name that `GET /v1/models` lists first.

    Raises:
        OctavoError: the server does not answer, or lists nothing.
    """
    try:
        answer = httpx.get(f"{base_url}/v1/models", headers=dict(headers), timeout=10)
        answer.raise_for_status()
        return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        raise OctavoError(f"{base_url} names no model ({error}); name it with --model.") from error


async def wait_until_it_answers(
    ask: Callable[[], Awaitable[Outcome]], timeout: float, clock: Callable[[], float]
) -> None:
    """Ask until an answer comes.

    Raises:
        OctavoError: none came within `timeout` seconds; the message holds the last failure.
    """
    deadline = clock() + timeout
    while (outcome := await ask()).error:
        if clock() >= deadline:
            raise OctavoError(
                f"The server gave no answer within {timeout:g} s (--ready-check-timeout-sec): {outcome.error}"
            )
        await asyncio.sleep(RETRY_SECONDS)
