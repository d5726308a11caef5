"""`octavo bench throughput`: all requests handed to the engine at once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.engine.args import EngineArgs
from octavo.engine.flags import values_from
from octavo.engine.model_facts import require_text
from octavo.entrypoints.bench.arguments import check_at_least, make_parser
from octavo.entrypoints.bench.datasets import DatasetArgs, Sample, load_samples
from octavo.entrypoints.bench.offline import check_answered, check_length, load_engine, write_json
from octavo.entrypoints.cli.main import parse_words

if TYPE_CHECKING:
    from octavo import LLM


@dataclass(kw_only=True)
class ThroughputArgs:
    """How the requests are answered."""

    n: int = 1
    """Answers to each prompt."""
    num_warmups: int = 1
    """Requests to answer before the measurement."""
    output_json: str | None = None
    """File to write the result to."""
    disable_detokenize: bool = False
    """Make no text of the answers."""
    disable_tqdm: bool = False
    """No progress bar."""


def run(words: list[str]) -> int:
    """Measure and print."""
    description = "How many requests and tokens a second the engine gives when it has them all at once."
    parser = make_parser("throughput", description, ThroughputArgs, DatasetArgs)
    EngineArgs.add_cli_args(parser)
    parser.set_defaults(enable_prefix_caching=False)
    parsed = parse_words(parser, words)
    args = ThroughputArgs(**values_from(parsed, ThroughputArgs))
    dataset = DatasetArgs(**values_from(parsed, DatasetArgs))
    check_at_least(args, n=1, num_warmups=0)
    dataset.check()
    require_text(EngineArgs.from_cli_args(parsed), "bench throughput")
    with load_engine(parsed) as llm:
        samples = load_samples(dataset, llm.llm_engine.tokenizer, parsed.seed, as_text=False)
        longest = max(len(sample.token_ids) + sample.output_len for sample in samples)
        check_length(llm, longest, "Prompts and answers")
        _answer(llm, samples[: args.num_warmups], args, shown=False)
        begin = time.perf_counter()
        tokens = _answer(llm, samples, args, shown=not args.disable_tqdm)
        seconds = time.perf_counter() - begin
    _report(len(samples), tokens, seconds, args)
    return 0


def _answer(llm: LLM, samples: list[Sample], args: ThroughputArgs, *, shown: bool) -> tuple[int, int]:
    """Tokens of the prompts, and of the answers."""
    from octavo import SamplingParams

    if not samples:
        return 0, 0
    sampling = [
        SamplingParams(
            n=args.n,
            temperature=1.0,
            ignore_eos=True,
            max_tokens=sample.output_len,
            detokenize=not args.disable_detokenize,
        )
        for sample in samples
    ]
    prompts: list[Any] = [{"prompt_token_ids": sample.token_ids} for sample in samples]
    outputs = llm.generate(prompts, sampling, use_tqdm=shown)
    check_answered(outputs)
    generated = sum(len(answer.token_ids) for output in outputs for answer in output.outputs)
    return sum(len(sample.token_ids) for sample in samples), generated


def _report(requests: int, tokens: tuple[int, int], seconds: float, args: ThroughputArgs) -> None:
    total, output = sum(tokens), tokens[1]
    print(
        f"Throughput: {requests / seconds:.2f} requests/s, {total / seconds:.2f} total tokens/s, "
        f"{output / seconds:.2f} output tokens/s"
    )
    print(f"Total num prompt tokens:  {tokens[0]}")
    print(f"Total num output tokens:  {output}")
    result = {
        "elapsed_time": seconds,
        "num_requests": requests,
        "total_num_tokens": total,
        "requests_per_second": requests / seconds,
        "tokens_per_second": total / seconds,
        "output_tokens_per_second": output / seconds,
    }
    write_json(args.output_json, result)
