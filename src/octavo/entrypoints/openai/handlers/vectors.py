"""From texts to vectors and into bodies: shared by embeddings, pooling, classes and scores."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
import uuid
from array import array
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import msgspec
from fastapi import Request
from fastapi.responses import Response

from octavo.engine.pooling_input import fitted
from octavo.entrypoints.openai.handlers.generation import unless_disconnected
from octavo.entrypoints.openai.protocol.pooling import MAX_TOTAL_TOKENS
from octavo.entrypoints.openai.protocol.usage import Usage
from octavo.entrypoints.openai.state import ServerState
from octavo.lib.errors import InvalidRequestError, OctavoError
from octavo.types.pooling_outputs import PoolingRequestOutput
from octavo.types.pooling_params import PoolingParams


async def vectors(
    state: ServerState,
    request: Request,
    prompts: Sequence[list[int]],
    params: PoolingParams,
    *,
    field: str,
    numbered: bool = True,
    priority: int = 0,
    cache_salt: str | None = None,
) -> list[PoolingRequestOutput]:
    """The vector of each prompt, in order.

    No more of them wait in the engine than run at a time, so that a long list neither fills its queue nor is refused.

    Args:
        field: The body's field that the prompts came in.
        numbered: Whether a prompt's place among them is its place in that field, for errors.

    Raises:
        InvalidRequestError: names the field, the input and the limit, before anything is computed.
        ClientDisconnect: the client has gone; what it asked for is aborted.
    """
    names = [f"{field}[{index}]" if numbered and len(prompts) > 1 else field for index in range(len(prompts))]
    _check(prompts, params, state.engine.config.model.max_model_len, names)
    _check_total(sum(map(len, prompts)), field)
    waiting = iter(enumerate(prompts))
    found: dict[int, PoolingRequestOutput] = {}

    async def run() -> None:
        for index, ids in waiting:
            try:
                found[index] = await _only_output(
                    state.engine.encode(
                        {"prompt_token_ids": ids},
                        params,
                        f"pool-{uuid.uuid4().hex}",
                        priority=priority,
                        cache_salt=cache_salt,
                    )
                )
            except InvalidRequestError as error:
                raise _at(error, names[index]) from error

    lanes = min(len(prompts), state.engine.config.scheduler.max_num_seqs)
    await unless_disconnected(request, _together([asyncio.ensure_future(run()) for _ in range(lanes)]))
    return [found[index] for index in range(len(prompts))]


async def _together(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for all; the first error ends them all."""
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _only_output(outputs: AsyncGenerator[PoolingRequestOutput, None]) -> PoolingRequestOutput:
    async with contextlib.aclosing(outputs):
        output = await anext(outputs)
    if output.error is not None:
        raise OctavoError(output.error)
    return output


def _check(
    prompts: Sequence[list[int]], params: PoolingParams, max_model_len: int, names: Sequence[str]
) -> None:
    """Refuse lengths that cannot be before any of the prompts is computed."""
    for name, ids in zip(names, prompts, strict=True):
        try:
            if not ids:
                raise InvalidRequestError(
                    "The text is empty: it must have at least one token.", param="prompt"
                )
            fitted(ids, params, max_model_len)
        except InvalidRequestError as error:
            raise _at(error, name) from error


def _check_total(total: int, field: str) -> None:
    if total > MAX_TOTAL_TOKENS:
        raise InvalidRequestError(
            f"{field} has {total} tokens in all; at most {MAX_TOTAL_TOKENS} are taken in one request.",
            param=field,
        )


@contextlib.contextmanager
def naming(field: str) -> Iterator[None]:
    """Errors of reading a text name the body's `field`."""
    try:
        yield
    except InvalidRequestError as error:
        raise _at(error, field) from error


def _at(error: InvalidRequestError, name: str) -> InvalidRequestError:
    """The same error with the name that the prompt has in the body."""
    if error.param != "prompt":
        return error
    return InvalidRequestError(f"{name}: {error.message}", param=name.partition("[")[0])


def usage_of(outputs: Sequence[PoolingRequestOutput]) -> Usage:
    """Tokens of all prompts."""
    return Usage.of(
        sum(len(output.prompt_token_ids) for output in outputs),
        0,
        sum(output.num_cached_tokens for output in outputs),
    )


def written(data: array[float], encoding: str) -> list[float] | str:
    """A vector as numbers, or as the base64 of its little-endian float32."""
    return data.tolist() if encoding == "float" else base64.b64encode(little_endian(data)).decode()


def little_endian(data: array[float]) -> bytes:
    """The bytes of a vector in float32."""
    if sys.byteorder == "big":
        data = data[:]
        data.byteswap()
    return data.tobytes()


def json_response(body: dict[str, Any]) -> Response:
    """Many numbers as JSON; msgspec writes them ten times as fast as the standard library."""
    return Response(msgspec.json.encode(body), media_type="application/json")


def bytes_response(
    head: dict[str, Any], outputs: Sequence[PoolingRequestOutput], *, metadata: bool
) -> Response:
    """All vectors one after the other in little-endian float32; where each lies, the header `metadata` says."""
    parts = [little_endian(output.outputs.data) for output in outputs]
    headers = {}
    if metadata:
        entries, start = [], 0
        for index, part in enumerate(parts):
            entries.append(
                {"index": index, "start": start, "end": start + len(part), "shape": [len(part) // 4]}
            )
            start += len(part)
        facts = {"embed_dtype": "float32", "endianness": "little", "data": entries}
        headers["metadata"] = json.dumps(head | facts, separators=(",", ":"))
    return Response(b"".join(parts), media_type="application/octet-stream", headers=headers)
