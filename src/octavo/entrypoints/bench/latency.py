"""`octavo bench latency`: how long one batch takes from prompt to last token."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.engine.args import EngineArgs
from octavo.engine.flags import values_from
from octavo.entrypoints.bench.arguments import check_at_least, make_parser, refuse
from octavo.entrypoints.bench.offline import check_answered, check_length, load_engine, write_json
from octavo.entrypoints.bench.report import percentile
from octavo.entrypoints.cli.main import parse_words

if TYPE_CHECKING:
    from octavo import LLM

PERCENTILES = (10, 25, 50, 75, 90, 99)


@dataclass(kw_only=True)
class LatencyArgs:
    """The batch, and how often it runs."""

    input_len: int = 32
    """Tokens of each prompt, random ones."""
    output_len: int = 128
    """Tokens of each answer."""
    batch_size: int = 8
    """Prompts in the batch."""
    n: int = 1
    """Answers to each prompt; several are drawn at temperature 1, one is greedy."""
    num_iters_warmup: int = 10
    """Runs that are not counted."""
    num_iters: int = 30
    """Runs that are."""
    disable_detokenize: bool = False
    """Make no text of the answers."""
    output_json: str | None = None
    """File to write the result to."""
    profile: bool = False
    """Instead: the time of each kind of op in prefill and decode."""


def run(words: list[str]) -> int:
    """Measure and print."""
    parser = make_parser("latency", "How long one batch takes, from prompt to last token.", LatencyArgs)
    EngineArgs.add_cli_args(parser)
    parser.set_defaults(enable_prefix_caching=False)
    parsed = parse_words(parser, words)
    args = LatencyArgs(**values_from(parsed, LatencyArgs))
    check_at_least(args, input_len=1, output_len=1, batch_size=1, n=1, num_iters_warmup=0, num_iters=1)
    if args.profile and parsed.enforce_eager:
        raise refuse("profile", "and --enforce-eager contradict each other: ops are timed in step programs")
    with load_engine(parsed) as llm:
        check_length(llm, args.input_len + args.output_len, "--input-len and --output-len")
        batch = Batch(llm, args, parsed.seed)
        for _ in range(args.num_iters_warmup):
            batch.seconds()
        if args.profile:
            return _profile(batch, args)
        return _report([batch.seconds() for _ in range(args.num_iters)], args)


class Batch:
    """The same random prompts again and again."""

    def __init__(self, llm: LLM, args: LatencyArgs, seed: int) -> None:
        from octavo import SamplingParams

        self.llm = llm
        rng = random.Random(seed)
        vocabulary = llm.llm_engine.config.model.vocab_size
        self.prompts = [
            {"prompt_token_ids": [rng.randrange(vocabulary) for _ in range(args.input_len)]}
            for _ in range(args.batch_size)
        ]
        self.sampling = SamplingParams(
            n=args.n,
            temperature=1.0 if args.n > 1 else 0.0,
            ignore_eos=True,
            max_tokens=args.output_len,
            detokenize=not args.disable_detokenize,
        )

    def seconds(self) -> float:
        """How long one run takes.

        Raises:
            OctavoError: the engine refused or lost a request.
        """
        begin = time.perf_counter()
        outputs = self.llm.generate(self.prompts, self.sampling, use_tqdm=False)
        seconds = time.perf_counter() - begin
        check_answered(outputs)
        return seconds


def _report(latencies: list[float], args: LatencyArgs) -> int:
    average = sum(latencies) / len(latencies)
    percentiles = {percent: percentile(latencies, percent) for percent in PERCENTILES}
    print(f"Avg latency: {average:.4f} seconds")
    for percent, value in percentiles.items():
        print(f"{percent}% percentile latency: {value:.4f} seconds")
    named = {str(percent): value for percent, value in percentiles.items()}
    write_json(args.output_json, {"avg_latency": average, "latencies": latencies, "percentiles": named})
    return 0


def _profile(batch: Batch, args: LatencyArgs) -> int:
    from octavo.entrypoints.bench.profile import profile_batch

    phases = profile_batch(batch.llm.llm_engine, batch.prompts, batch.sampling, args.num_iters)
    for phase in phases:
        print("\n".join(phase.lines()), end="\n\n")
    write_json(args.output_json, {phase.name: phase.to_json() for phase in phases})
    return 0
