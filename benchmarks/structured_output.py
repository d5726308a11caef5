"""What a schema costs: tokens a second of a full batch with and without one, and the time of a first token once it is compiled.

    python -m benchmarks.structured_output [--model MODEL] [--batch 32] [--tokens 96] [--rounds 3] [--regex PATTERN]

Both sides draw with the same seeds and end by `max_tokens`: the schema is a list that is longer than that. Rounds alternate, and
the middle one of each side counts. A schema has tokens without a choice, which cost no run of the model of their own; with `--regex`
there is a choice everywhere, so that what masks cost is seen alone.
"""

from __future__ import annotations

import argparse
import statistics
import time

from octavo import LLM, SamplingParams
from octavo.types.structured_outputs import StructuredOutputsParams

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": PERSON, "minItems": 500}
PROMPT = "A list of people as JSON, one after the other:"


def params(shape: StructuredOutputsParams | None, tokens: int, seed: int) -> SamplingParams:
    """What one request asks for."""
    return SamplingParams(
        temperature=0.8, seed=seed, max_tokens=tokens, ignore_eos=True, structured_outputs=shape
    )


def tokens_per_second(llm: LLM, shape: StructuredOutputsParams | None, batch: int, tokens: int) -> float:
    """Of one full batch, prompts included in the time."""
    prompts = [f"{PROMPT} {index}" for index in range(batch)]
    begin = time.perf_counter()
    done = llm.generate(prompts, [params(shape, tokens, seed) for seed in range(batch)], use_tqdm=False)
    seconds = time.perf_counter() - begin
    return sum(len(answer.outputs[0].token_ids) for answer in done) / seconds


def first_token_ms(llm: LLM, shape: StructuredOutputsParams | None) -> float:
    """Of one request alone."""
    begin = time.perf_counter()
    llm.generate([PROMPT], params(shape, 1, 0), use_tqdm=False)
    return 1000 * (time.perf_counter() - begin)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=None)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--regex", default=None)
    args = parser.parse_args()
    llm = LLM(args.model)
    shape = StructuredOutputsParams(regex=args.regex, json=None if args.regex else SCHEMA)
    for each in (None, shape):
        tokens_per_second(llm, each, 2, 8)
    plain, held = [], []
    for _ in range(args.rounds):
        plain.append(tokens_per_second(llm, None, args.batch, args.tokens))
        held.append(tokens_per_second(llm, shape, args.batch, args.tokens))
    free, shaped = statistics.median(plain), statistics.median(held)
    print(
        f"batch {args.batch}: {free:.0f} tok/s without, {shaped:.0f} with a schema ({shaped / free - 1:+.1%})"
    )
    firsts = [(first_token_ms(llm, None), first_token_ms(llm, shape)) for _ in range(20)]
    before, after = (statistics.median(side) for side in zip(*firsts, strict=True))
    print(f"first token: {before:.1f} ms without, {after:.1f} with a schema that is compiled")


if __name__ == "__main__":
    main()
