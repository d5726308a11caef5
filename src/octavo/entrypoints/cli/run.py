"""`octavo run [MODEL] [PROMPT]`: one answer, or a conversation, without a server."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.engine.args import EngineArgs
from octavo.lib.errors import InvalidRequestError

if TYPE_CHECKING:
    from octavo.engine.llm_engine import LLMEngine
    from octavo.types.sampling_params import SamplingParams


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[MODEL] [PROMPT]",
        help="model (a folder or .gguf file), then the prompt; - reads it from standard input",
    )
    group = parser.add_argument_group("answer")
    group.add_argument("--system-prompt", help="first message of the conversation")
    group.add_argument(
        "--raw", action="store_true", help="continue the prompt as it is, without a chat template"
    )
    group.add_argument("--max-tokens", type=int, help="most tokens of an answer")
    group.add_argument("--temperature", type=float, help="0 is greedy")
    group.add_argument("--top-p", type=float, help="share of probability to draw from")
    group.add_argument("--top-k", type=int, help="number of tokens to draw from")
    EngineArgs.add_cli_args(parser)


def run(args: argparse.Namespace) -> int:
    """Answer the prompt, or talk if there is none."""
    from octavo.config.env import set_default
    from octavo.config.logging import configure_logging
    from octavo.engine.llm_engine import LLMEngine
    from octavo.engine.model_facts import require_text
    from octavo.entrypoints.cli.terminal import converse, print_pieces

    prompt = _split_words(args)
    set_default("logging_level", "WARNING")
    configure_logging("run")
    args.disable_log_stats = True
    # A process of its own loads torch and weights while this one reads settings and tokenizer: a second less to wait.
    engine_args = EngineArgs.from_cli_args(args)
    require_text(engine_args, "run")
    engine = LLMEngine.from_engine_args(engine_args, own_process=True)
    try:
        talk = _Talk(engine, args)
        if prompt is None:
            return converse(talk.answer, args.system_prompt)
        print_pieces(talk.complete(prompt) if args.raw else talk.answer(_opening(args.system_prompt, prompt)))
        return 0
    finally:
        engine.shutdown()


def _split_words(args: argparse.Namespace) -> str | None:
    """Find model and prompt among the words: the first one is a model if it is, or is spelled like, a file or folder."""
    words = list(args.words)
    if words and args.model is None and _is_model(words[0]):
        args.model = words.pop(0)
    if words == ["-"] or (not words and not sys.stdin.isatty() and args.raw):
        return sys.stdin.read()
    return " ".join(words) if words else None


def _is_model(word: str) -> bool:
    """Whether a word names a model, be it missing: a prompt of that shape is rarer than a slip in a path."""
    if not word or len(word) >= 4096:
        return False
    spelled_like_a_path = word.startswith(("/", "./", "../", "~/")) and not any(map(str.isspace, word))
    return word.endswith(".gguf") or spelled_like_a_path or Path(word).is_dir()


def _opening(system_prompt: str | None, prompt: str) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": prompt}]


class _Talk:
    """Streams answers from the engine."""

    def __init__(self, engine: LLMEngine, args: argparse.Namespace) -> None:
        self._engine = engine
        self._params = _sampling(engine, args)
        self._serials = itertools.count()

    def answer(self, history: list[dict[str, Any]]) -> Iterator[str]:
        """The pieces of the next turn of a conversation."""
        from octavo.tokenizers.chat import choose_template, render_chat

        tokenizer = self._engine.tokenizer
        assert tokenizer is not None
        if not tokenizer.chat_templates:
            raise InvalidRequestError(
                "The model has no chat template. --raw continues a prompt as it is.", param="chat_template"
            )
        template = choose_template(tokenizer.chat_templates)
        text = render_chat(
            template, history, add_generation_prompt=True, special_tokens=tokenizer.special_tokens
        )
        ids = tokenizer.encode(text, add_special_tokens=False)
        return self._stream({"prompt_token_ids": ids})

    def complete(self, prompt: str) -> Iterator[str]:
        """The pieces of a plain continuation."""
        return self._stream({"prompt": prompt})

    def _stream(self, prompt: dict[str, Any]) -> Iterator[str]:
        from octavo.types.pooling_outputs import PoolingRequestOutput

        request_id = f"run-{next(self._serials)}"
        self._engine.add_request(request_id, prompt, self._params)
        try:
            while self._engine.has_unfinished_requests():
                for output in self._engine.step():
                    assert not isinstance(output, PoolingRequestOutput)
                    yield output.outputs[0].text if output.request_id == request_id else ""
        finally:
            self._engine.abort_request(request_id)


def _sampling(engine: LLMEngine, args: argparse.Namespace) -> SamplingParams:
    from octavo.engine.input import default_sampling_params
    from octavo.types.sampling_params import RequestOutputKind

    asked = {name: getattr(args, name) for name in ("max_tokens", "temperature", "top_p", "top_k")}
    given = {name: value for name, value in asked.items() if value is not None}
    return default_sampling_params(engine.config.model, output_kind=RequestOutputKind.DELTA, **given)
