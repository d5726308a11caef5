"""The engine in this process, as `latency` and `throughput` use it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.engine.args import EngineArgs
from octavo.engine.flags import values_from
from octavo.lib.errors import ConfigError, OctavoError

if TYPE_CHECKING:
    from octavo import LLM
    from octavo.types.outputs import RequestOutput
    from octavo.types.pooling_outputs import PoolingRequestOutput


def load_engine(parsed: argparse.Namespace) -> LLM:
    """Load what the engine's flags say, without log lines."""
    from octavo import LLM
    from octavo.config.env import set_default
    from octavo.config.logging import configure_logging

    set_default("logging_level", "WARNING")
    configure_logging("bench")
    settings = values_from(parsed, EngineArgs)
    return LLM(**settings | {"disable_log_stats": True})


def check_length(llm: LLM, tokens: int, flags: str) -> None:
    """Refuse requests that do not fit into the model.

    Raises:
        ConfigError: names the flags and the limit.
    """
    limit = llm.llm_engine.config.model.max_model_len
    if tokens > limit:
        raise ConfigError(f"{flags} ask for {tokens} tokens, the model takes {limit} (--max-model-len).")


def check_answered(outputs: Iterable[RequestOutput | PoolingRequestOutput]) -> None:
    """Refuse to measure requests that the engine did not answer: nothing is as fast as an error.

    Raises:
        OctavoError: says what the first one died of.
    """
    failed = [output for output in outputs if output.error is not None]
    if failed:
        raise OctavoError(f"{len(failed)} requests failed, which is nothing to measure: {failed[0].error}")


def write_json(path: str | None, result: Mapping[str, Any]) -> None:
    """Write a result, if a file was named; its folder is made, or the measurement would have been for nothing."""
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(result, indent=2), encoding="utf-8")
