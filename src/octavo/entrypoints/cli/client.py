"""What `chat` and `complete` share: finding the server and reading its stream. Plain HTTP, no SDK."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from octavo.config.env import environment
from octavo.lib.errors import OctavoError


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the server is and which model to ask."""
    parser.add_argument(
        "--url", default="http://127.0.0.1:8000/v1", help="base URL of the API. Default: %(default)s"
    )
    parser.add_argument("--model-name", help="model to ask; default: the first one that the server lists")
    parser.add_argument("--api-key", help="key to send; default: OCTAVO_API_KEY")
    parser.add_argument("--max-tokens", type=int, help="most tokens of an answer")
    parser.add_argument("--temperature", type=float, help="0 is greedy")


def base_url(given: str) -> str:
    """The API's base from what a user types: `host:port` means http, and without a path the API lies under /v1."""
    url = given.rstrip("/")
    if "://" not in url:
        url = f"http://{url}"
    return url if "/" in url.split("://", 1)[1] else f"{url}/v1"


@dataclass(frozen=True)
class Server:
    """A server that speaks OpenAI's API.

    Raises:
        OctavoError: from every method, when the server cannot be reached or refuses; the message says which.
    """

    url: str
    api_key: str | None
    model: str | None

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Server:
        server = cls(base_url(args.url), args.api_key or environment().api_key or None, args.model_name)
        return server if server.model else cls(server.url, server.api_key, server.first_model())

    def first_model(self) -> str:
        """The name that `GET /models` lists first."""
        try:
            answer = httpx.get(f"{self.url}/models", headers=self._headers(), timeout=10)
        except httpx.HTTPError as error:
            raise OctavoError(self._unreachable(error)) from error
        self._check(answer)
        return str(answer.json()["data"][0]["id"])

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a streamed request."""
        body = body | {"model": self.model, "stream": True}
        timeout = httpx.Timeout(10, read=None)
        try:
            with httpx.stream(
                "POST", f"{self.url}{path}", json=body, headers=self._headers(), timeout=timeout
            ) as answer:
                if answer.is_error:
                    answer.read()
                self._check(answer)
                yield from _events(answer)
        except httpx.HTTPError as error:
            raise OctavoError(self._unreachable(error)) from error

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def _unreachable(self, error: httpx.HTTPError) -> str:
        return f"No answer from {self.url} ({error}). Is a server running (`octavo serve`)? Else name it with --url."

    def _check(self, answer: httpx.Response) -> None:
        if answer.is_error:
            raise OctavoError(f"The server refused ({answer.status_code}): {_message(answer)}")


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:500]


def _events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        data = line.removeprefix("data: ")
        if not line.startswith("data: ") or data == "[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            raise OctavoError(f"The stream broke: {event['error']['message']}")
        yield event
