"""`octavo bench serve`: load a running server and report what its clients saw."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from octavo.config.env import environment
from octavo.engine.flags import flag, values_from
from octavo.entrypoints.bench.arguments import check_at_least, make_parser, refuse
from octavo.entrypoints.bench.datasets import DatasetArgs, Sample, load_samples
from octavo.entrypoints.bench.endpoints import BACKENDS, Backend, served_model, wait_until_it_answers
from octavo.entrypoints.bench.load import LoadArgs, Send, arrival_times, run_load
from octavo.entrypoints.bench.outcome import Outcome
from octavo.entrypoints.bench.report import METRICS, OBJECTIVES, LoadReport
from octavo.entrypoints.bench.stream import Target, ask
from octavo.entrypoints.bench.vocabulary import load_model_tokenizer
from octavo.entrypoints.cli.main import parse_words
from octavo.lib.errors import OctavoError

SHOWN_ERRORS = 3


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
    disable_tqdm: bool = False
    """No progress bar."""

    def check(self) -> None:
        """Refuse values out of range and flags that contradict each other.

        Raises:
            ConfigError: names the flag.
        """
        check_at_least(self, num_warmups=0, ready_check_timeout_sec=0, temperature=0)
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
            for field in ("save_detailed", "result_dir", "result_filename"):
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
    def extra(self) -> dict[str, Any]:
        """What every request says beside its prompt."""
        fields = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}
        body = {name: value for name, value in fields.items() if value is not None}
        return body | ({"ignore_eos": True} if self.ignore_eos else {}) | (self.extra_body or {})


@dataclass(frozen=True)
class LoadTest:
    """All that one run needs."""

    serve: ServeArgs
    dataset: DatasetArgs
    load: LoadArgs

    def check(self) -> None:
        """See each part's `check`."""
        self.serve.check()
        self.dataset.check()
        self.load.check()


def run(words: list[str]) -> int:
    """Measure, print the table, write the file. Exit code 1 if a request failed."""
    parser = make_parser(
        "serve", "Load a running server and report what its clients saw.", ServeArgs, DatasetArgs, LoadArgs
    )
    parsed = parse_words(parser, words)
    test = LoadTest(
        ServeArgs(**values_from(parsed, ServeArgs)),
        DatasetArgs(**values_from(parsed, DatasetArgs)),
        LoadArgs(**values_from(parsed, LoadArgs)),
    )
    test.check()
    report, result = measure(test)
    print("\n".join(report.lines(test.serve.metrics, _settings(test.load))))
    if test.serve.save_result:
        print(f"Written to {_write(test, result)}")
    return 1 if report.failed else 0


def measure(test: LoadTest) -> tuple[LoadReport, dict[str, Any]]:
    """Run the load; the report, and what goes into the file.

    Raises:
        OctavoError: the server does not answer, or prompts cannot be made.
    """
    args = test.serve
    key = environment().api_key
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    target = Target.of(args.url + args.way.endpoint, headers)
    if args.ready_check_timeout_sec:
        wait_for_server(args.url, args.ready_check_timeout_sec)
    model = args.model or served_model(args.url, headers)
    tokenizer = load_model_tokenizer(args.tokenizer, model)
    samples = load_samples(test.dataset, tokenizer, args.seed, as_text=args.way.as_text)
    # Others than those that are measured, which must not lie in the server's prefix cache.
    fewer = dataclasses.replace(test.dataset, num_prompts=args.num_warmups + 1)
    warmups = load_samples(fewer, tokenizer, args.seed + 1, as_text=args.way.as_text)

    async def send(sample: Sample) -> Outcome:
        body = args.way.body(model, sample, args.extra)
        return await ask(target, body, len(sample.token_ids), time.perf_counter)

    outcomes, duration = event_loop_run()(partial(_run, test, warmups, samples, send))
    _show_errors(outcomes)
    report = LoadReport.of(outcomes, duration, args.percents, args.objectives)
    return report, result_file(test, model, report, outcomes)


class AnyRun(Protocol):
    """`asyncio.run`, of a function that gives the coroutine."""

    def __call__(self, main: Callable[[], Any]) -> Any: ...


def event_loop_run() -> AnyRun:
    """Runs on uvloop where there is one: half the client's cost a token."""
    try:
        import uvloop
    except ImportError:
        return lambda main: asyncio.run(main())
    return lambda main: uvloop.run(main())


async def _run(
    test: LoadTest, warmups: list[Sample], samples: list[Sample], send: Send
) -> tuple[list[Outcome], float]:
    args = test.serve
    if args.ready_check_timeout_sec:
        await wait_until_it_answers(
            lambda: send(warmups[-1]), args.ready_check_timeout_sec, time.perf_counter
        )
    warmups = warmups[: args.num_warmups]
    limit = test.load.max_concurrency
    await run_load(warmups, [0.0] * len(warmups), send, clock=time.perf_counter, max_concurrency=limit)
    times = arrival_times(test.load, len(samples), args.seed)
    bar = _bar(len(samples), args)
    start = time.perf_counter()
    outcomes = await run_load(
        samples, times, send, clock=time.perf_counter, max_concurrency=limit, on_done=lambda _: bar.update()
    )
    duration = time.perf_counter() - start
    bar.close()
    return outcomes, duration


def wait_for_server(url: str, timeout: float) -> None:
    """Wait until something listens and lists its models.

    Raises:
        OctavoError: not within `timeout` seconds.
    """
    import httpx

    deadline = time.monotonic() + timeout
    while True:
        try:
            httpx.get(f"{url}/v1/models", timeout=10)
            return
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if time.monotonic() >= deadline:
                message = f"No answer from {url} within {timeout:g} s ({error}). Is a server running (`octavo serve`)?"
                raise OctavoError(message) from error
        time.sleep(0.1)


def _bar(total: int, args: ServeArgs) -> Any:
    from tqdm import tqdm

    shown = sys.stderr.isatty() and not args.disable_tqdm
    return tqdm(total=total, desc="Requests", unit="req", dynamic_ncols=True, disable=not shown)


def _settings(load: LoadArgs) -> dict[str, float | int | None]:
    rate = None if load.ramp_up_strategy else load.request_rate
    return {"Maximum request concurrency:": load.max_concurrency, "Request rate configured (RPS):": rate}


def _show_errors(outcomes: Sequence[Outcome]) -> None:
    failures = [outcome.error for outcome in outcomes if outcome.error]
    for error in failures[:SHOWN_ERRORS]:
        print(f"A request failed: {error}", file=sys.stderr)
    if len(failures) > SHOWN_ERRORS:
        print(f"... and {len(failures) - SHOWN_ERRORS} more.", file=sys.stderr)


def result_file(
    test: LoadTest, model: str, report: LoadReport, outcomes: Sequence[Outcome]
) -> dict[str, Any]:
    """What `vllm bench serve --save-result` writes, under its keys; an infinite rate is the text `inf`."""
    args, load = test.serve, test.load
    rate = load.request_rate
    result: dict[str, Any] = {
        "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
        "backend": args.backend,
        "endpoint_type": args.backend,
        "label": args.label,
        "model_id": model,
        "tokenizer_id": args.tokenizer or model,
        "num_prompts": len(outcomes),
        "request_rate": rate if rate < float("inf") else "inf",
        "burstiness": load.burstiness,
        "max_concurrency": load.max_concurrency,
    }
    ramp = ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")
    result |= {name: getattr(load, name) for name in ramp if load.ramp_up_strategy}
    result |= report.to_json(args.metrics)
    return result | (_details(outcomes) if args.save_detailed else {})


def _details(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "input_lens": [outcome.prompt_len for outcome in outcomes],
        "output_lens": [outcome.output_len for outcome in outcomes],
        "ttfts": [outcome.ttft if outcome.piece_times else 0.0 for outcome in outcomes],
        "itls": [outcome.itls for outcome in outcomes],
        "start_times": [outcome.started for outcome in outcomes],
        "generated_texts": [outcome.text for outcome in outcomes],
        "errors": [outcome.error for outcome in outcomes],
    }


def _write(test: LoadTest, result: dict[str, Any]) -> Path:
    args = test.serve
    model = str(result["model_id"]).rpartition("/")[2]
    concurrency = f"-concurrency{test.load.max_concurrency}" if test.load.max_concurrency else ""
    rate = f"{test.load.request_rate:g}qps{concurrency}"
    name = args.result_filename or f"{args.label or args.backend}-{rate}-{model}-{result['date']}.json"
    path = Path(args.result_dir or ".") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2), encoding="utf-8")
    return path
