"""The process behind `GrammarTrial`: a JSON string with a grammar a line in, a JSON string with what is wrong with it out."""

from __future__ import annotations

import json
import resource
import signal
import sys

import llguidance

from octavo.structured_output.guidance import limits, shown

_MEMORY = 2 << 30


def main() -> None:
    """Try grammars until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(""), flush=True)
    for line in sys.stdin:
        error = llguidance.LLMatcher.validate_grammar(json.loads(line), limits=limits())
        wrong = error and not error.startswith("WARNING")
        print(json.dumps(shown("the grammar", error) if wrong else ""), flush=True)


if __name__ == "__main__":
    main()
