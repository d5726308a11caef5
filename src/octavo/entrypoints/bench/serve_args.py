"""Flags of `octavo bench serve` that say which server, how it is asked, and what is written."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from octavo.config.env import environment
from octavo.engine.flags import flag
from octavo.entrypoints.bench.arguments import check_at_least, refuse
from octavo.entrypoints.bench.endpoints import BACKENDS, Backend
from octavo.entrypoints.bench.report import METRICS, OBJECTIVES

# Fields of a request that are flags of their own.
SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty",
)  # fmt: skip


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


@dataclass(kw_only=True)
class ServeArgs:
    """Which server, what is measured, where it is written."""

    backend: str = flag("octavo", choices=tuple(BACKENDS))
    """API to speak. `octavo` sends prompts as token ids, so that their length is exact; the others as text."""
    base_url: str | None = None
    """Server, in place of --host and --port: http://127.0.0.1:8000."""
    host: str = "127.0.0.1"
    """Address of the server."""
    port: int = 8000
    """Port of the server."""
    endpoint: str | None = None
    """Path to post to. Default: /v1/completions, for openai-chat /v1/chat/completions."""
    model: str | None = flag(None, aliases=("-m",))
    """Model to ask for. Default: the first one that the server lists."""
    served_model_name: str | None = None
    """Model to ask for where the server's name for it differs from --model, which then names the tokenizer."""
    tokenizer: str | None = None
    """Folder or .gguf file with the model's tokenizer. Default: --model, or the embedded model's file for its name."""
    seed: int = 0
    """Of prompts and arrivals."""
    num_warmups: int = 0
    """Requests to make before the measurement."""
    ready_check_timeout_sec: float = 600.0
    """Seconds to wait until a first request is answered; 0: do not ask one."""
    ignore_eos: bool = False
    """Let every answer have its full length."""
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float | None = None
    """Share of probability to draw from."""
    top_k: int | None = None
    """Number of tokens to draw from."""
    min_p: float | None = None
    """Least probability, as a share of the best token's."""
    frequency_penalty: float | None = None
    """Off the logits, for each time that a token was generated."""
    presence_penalty: float | None = None
    """Off the logits of tokens that were generated."""
    repetition_penalty: float | None = None
    """Factor on the logits of tokens of prompt and answer."""
    logprobs: int | None = None
    """Ask for the log probabilities of so many tokens at each place."""
    header: tuple[str, ...] | list[str] | None = None
    """Further headers of each request, as NAME=VALUE."""
    extra_body: dict[str, Any] | None = flag(None, parse=_json_object)
    """Further fields of each request, as a JSON object."""
    goodput: tuple[str, ...] | list[str] | None = None
    """Objectives in milliseconds, such as ttft:200 tpot:50 e2el:3000; requests that meet all are counted."""
    percentile_metrics: str = ",".join(METRICS)
    """Metrics to report, with commas between."""
    metric_percentiles: str = "99"
    """Percentiles to report, with commas between: 50,90,99."""
    save_result: bool = False
    """Write the result to a JSON file."""
    save_detailed: bool = False
    """Write each request's lengths, times and text into the file too."""
    result_dir: str | None = None
    """Folder of the file. Default: the current one."""
    result_filename: str | None = None
    """Name of the file. Default: from backend, rate, model and time."""
    label: str | None = None
    """A name for this run, kept in the file."""
    metadata: tuple[str, ...] | list[str] | None = None
    """Further entries of the file, as NAME=VALUE: version=1 machine=a."""
    disable_tqdm: bool = False
    """No progress bar."""

    def check(self) -> None:
        """Refuse values out of range and flags that contradict each other.

        Raises:
            ConfigError: names the flag.
        """
        check_at_least(self, num_warmups=0, ready_check_timeout_sec=0, temperature=0, logprobs=0)
        _pairs(self, "header")
        _pairs(self, "metadata")
        if self.base_url is not None and (self.host, self.port) != ("127.0.0.1", 8000):
            raise refuse("base_url", "and --host or --port contradict each other; give one")
        if not 1 <= self.port <= 65535:
            raise refuse("port", f"must be between 1 and 65535, got {self.port}")
        chat = self.endpoint is not None and self.endpoint.endswith("/chat/completions")
        if self.endpoint is not None and chat != BACKENDS[self.backend].chat:
            raise refuse("endpoint", f"{self.endpoint} is not what --backend {self.backend} speaks")
        self._check_report()
        self._check_files()

    def _check_report(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                raise refuse("percentile_metrics", f"knows {', '.join(METRICS)}, got {name!r}")
        try:
            good = all(0 <= percent <= 100 for percent in self.percents)
        except ValueError:
            good = False
        if not good:
            raise refuse(
                "metric_percentiles",
                f"takes numbers between 0 and 100 with commas between, got {self.metric_percentiles!r}",
            )
        _ = self.objectives

    def _check_files(self) -> None:
        if not self.save_result:
            for field in ("save_detailed", "result_dir", "result_filename", "metadata"):
                if getattr(self, field):
                    raise refuse(field, "needs --save-result")

    @property
    def metrics(self) -> list[str]:
        """Keys of `METRICS`."""
        return [name.strip() for name in self.percentile_metrics.split(",") if name.strip()]

    @property
    def percents(self) -> list[float]:
        """Raises: ValueError."""
        return [float(part) for part in self.metric_percentiles.split(",")]

    @property
    def objectives(self) -> dict[str, float]:
        """Milliseconds by metric. Raises: ConfigError."""
        found: dict[str, float] = {}
        for entry in self.goodput or ():
            name, _, limit = entry.partition(":")
            try:
                found[name] = float(limit)
            except ValueError:
                raise refuse("goodput", f"takes METRIC:MILLISECONDS, got {entry!r}") from None
            if name not in OBJECTIVES or not found[name] >= 0:
                raise refuse(
                    "goodput", f"knows {', '.join(OBJECTIVES)} and limits of 0 or more, got {entry!r}"
                )
        return found

    @property
    def url(self) -> str:
        """Of the server, without a path."""
        return (self.base_url or f"http://{self.host}:{self.port}").rstrip("/")

    @property
    def way(self) -> Backend:
        """How to ask."""
        backend = BACKENDS[self.backend]
        return dataclasses.replace(backend, endpoint=self.endpoint or backend.endpoint)

    @property
    def headers(self) -> dict[str, str]:
        """Of each request; the key of the environment unless --header names another."""
        key = environment().api_key
        return ({"Authorization": f"Bearer {key}"} if key else {}) | _pairs(self, "header")

    @property
    def notes(self) -> dict[str, str]:
        """What --metadata adds to the file."""
        return _pairs(self, "metadata")

    @property
    def extra(self) -> dict[str, Any]:
        """What every request says beside its prompt."""
        body = {name: value for name in SAMPLING if (value := getattr(self, name)) is not None}
        if self.logprobs is not None:
            chat = {"logprobs": True, "top_logprobs": self.logprobs}
            body |= chat if self.way.chat else {"logprobs": self.logprobs}
        return body | ({"ignore_eos": True} if self.ignore_eos else {}) | (self.extra_body or {})


def _pairs(args: ServeArgs, field: str) -> dict[str, str]:
    pairs = [entry.partition("=") for entry in getattr(args, field) or ()]
    for name, equals, value in pairs:
        if not name or not equals:
            raise refuse(field, f"takes NAME=VALUE, got {name + equals + value!r}")
    return {name: value for name, _, value in pairs}
