"""JSON-Schema-Test-Suite against the grammars: every instance is fed through a matcher and compared with what the suite says.

    pip download --no-deps --no-binary :all: jsonschema==4.26.0 && tar -xzf jsonschema-4.26.0.tar.gz
    python -m tools.json_schema_suite jsonschema-4.26.0/json/tests/draft2020-12

Prints how many instances were passed, refused with their schema, wrongly refused and wrongly accepted: for our door, and for
llguidance asked directly. What is wrongly accepted is a fault: the status is 1 then.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llguidance
import numpy as np
from llguidance import LLMatcher

from octavo.lib.errors import InvalidRequestError
from octavo.structured_output.guidance import GuidanceBackend
from octavo.structured_output.vocabulary import Vocabulary
from octavo.tokenizers.base import Tokenizer, TokenizerInfo
from octavo.tokenizers.pieces import Pieces
from octavo.types.structured_outputs import StructuredOutputsParams

EOS = 256
Accepts = Callable[[bytes], bool]


class _Bytes:
    def encode(self, text: str, add_special_tokens: bool, parse_special: bool) -> list[int]:
        return list(text.encode())


def byte_vocabulary() -> Vocabulary:
    """One token a byte, and one that ends."""
    info = TokenizerInfo(257, eos_token_id=EOS, eos_token_ids=(EOS,), special_ids=frozenset({EOS}))
    pieces = Pieces(lambda token: bytes([token]) if token < EOS else b"<eos>")
    return Vocabulary(Tokenizer(info, _Bytes(), pieces), 257, (EOS,))


@dataclass
class Tally:
    """What became of the instances."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        names = ("passed", "refused", "wrongly refused", "wrongly accepted")
        return ", ".join(f"{name} {self.counts[name]}" for name in names)


class Ours:
    """The schema as a request would bring it."""

    def __init__(self) -> None:
        self._backend = GuidanceBackend(byte_vocabulary())

    def __call__(self, schema: Any) -> Accepts | None:
        try:
            new = self._backend.compile(StructuredOutputsParams(json=json.dumps(schema)))
        except InvalidRequestError:
            return None

        def accepts(text: bytes) -> bool:
            matcher = new()
            if not matcher.accept(list(text)):
                return False
            bits = np.zeros(9, np.int32)
            matcher.fill_bitmask(bits)
            return bool(bits[EOS // 32] & 1)

        return accepts


class Theirs:
    """llguidance with its defaults."""

    def __init__(self) -> None:
        self._tokenizer = GuidanceBackend(byte_vocabulary())._tokenizer

    def __call__(self, schema: Any) -> Accepts | None:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
        if LLMatcher(self._tokenizer, grammar, log_level=0).is_error():
            return None

        def accepts(text: bytes) -> bool:
            matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
            return bool(matcher.consume_tokens(list(text)) and matcher.is_accepting())

        return accepts


def cases(folder: Path) -> Iterator[tuple[str, Any, list[dict[str, Any]]]]:
    """(name, schema, instances) of every group; optional ones are left out."""
    for path in sorted(folder.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            yield f"{path.stem}: {group['description']}", group["schema"], group["tests"]


def run(folder: Path, compile_schema: Callable[[Any], Accepts | None]) -> Tally:
    """Feed everything through."""
    tally = Tally()
    for name, schema, tests in cases(folder):
        accepts = compile_schema(schema)
        for test in tests:
            outcome = _outcome(accepts, test)
            tally.counts[outcome] += 1
            if outcome.startswith("wrongly"):
                tally.wrong.append(f"{outcome}: {name}: {test['description']}")
    return tally


def _outcome(accepts: Accepts | None, test: dict[str, Any]) -> str:
    if accepts is None:
        return "refused"
    accepted = any(accepts(text.encode()) for text in _spellings(test["data"]))
    if accepted == test["valid"]:
        return "passed"
    return "wrongly accepted" if accepted else "wrongly refused"


def _spellings(data: Any) -> tuple[str, str]:
    return json.dumps(data, ensure_ascii=False), json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def main() -> int:
    """Run both and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    ours, theirs = run(folder, Ours()), run(folder, Theirs())
    print(f"ours: {ours}\nllguidance: {theirs}")
    for line in sorted(set(ours.wrong) - set(theirs.wrong)):
        print(line)
    return bool(ours.counts["wrongly accepted"])


if __name__ == "__main__":
    sys.exit(main())
