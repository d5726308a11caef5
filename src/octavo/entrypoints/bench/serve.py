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

from octavo.engine.flags import values_from
from octavo.entrypoints.bench.arguments import make_parser
from octavo.entrypoints.bench.datasets import DatasetArgs, Sample, load_samples
from octavo.entrypoints.bench.endpoints import served_model, wait_until_it_answers
from octavo.entrypoints.bench.load import LoadArgs, Send, arrival_times, run_load
from octavo.entrypoints.bench.outcome import Outcome
from octavo.entrypoints.bench.report import LoadReport
from octavo.entrypoints.bench.serve_args import ServeArgs
from octavo.entrypoints.bench.stream import Target, ask
from octavo.entrypoints.bench.vocabulary import load_model_tokenizer
from octavo.entrypoints.cli.main import parse_words
from octavo.lib.errors import OctavoError

SHOWN_ERRORS = 3


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
    target = Target.of(args.url + args.way.endpoint, args.headers)
    if args.ready_check_timeout_sec:
        wait_for_server(args.url, args.ready_check_timeout_sec)
    name = args.served_model_name or args.model or served_model(args.url, args.headers)
    model = args.model or name
    tokenizer = load_model_tokenizer(args.tokenizer, model)
    samples = load_samples(test.dataset, tokenizer, args.seed, as_text=args.way.as_text)
    # Others than those that are measured, which must not lie in the server's prefix cache.
    fewer = dataclasses.replace(test.dataset, num_prompts=args.num_warmups + 1)
    warmups = load_samples(fewer, tokenizer, args.seed + 1, as_text=args.way.as_text)

    async def send(sample: Sample) -> Outcome:
        body = args.way.body(name, sample, args.extra)
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
    told = False
    while True:
        try:
            httpx.get(f"{url}/v1/models", timeout=10)
            return
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if not told:
                print(f"Waiting for {url}, up to {timeout:g} s (--ready-check-timeout-sec).", file=sys.stderr)
                told = True
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
    result |= args.notes | report.to_json(args.metrics)
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
