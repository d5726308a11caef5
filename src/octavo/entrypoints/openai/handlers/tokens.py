"""`POST /tokenize` and `POST /detokenize`."""

from __future__ import annotations

import asyncio

from fastapi import Request

from octavo.entrypoints.openai.protocol.tokens import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from octavo.entrypoints.openai.state import server_state
from octavo.lib.errors import InvalidRequestError


async def tokenize(body: TokenizeRequest, request: Request) -> TokenizeResponse:
    """Text or conversation to token ids, as a completion or chat request would see them."""
    state = server_state(request, body.model)
    state.check_model(body.model)
    ids = await state.renderer.tokenize(body)
    tokenizer = state.renderer.tokenizer
    return TokenizeResponse(
        count=len(ids),
        max_model_len=state.engine.config.model.max_model_len,
        tokens=ids,
        token_strs=[tokenizer.token_text(token) for token in ids] if body.return_token_strs else None,
    )


async def detokenize(body: DetokenizeRequest, request: Request) -> DetokenizeResponse:
    """Token ids to text, special tokens included."""
    state = server_state(request, body.model)
    state.check_model(body.model)
    size = state.engine.config.model.vocab_size
    for token in (min(body.tokens, default=0), max(body.tokens, default=0)):
        if not 0 <= token < size:
            raise InvalidRequestError(
                f"token id {token} is outside the vocabulary (size {size})", param="tokens"
            )
    decode = state.renderer.tokenizer.decode
    return DetokenizeResponse(prompt=await asyncio.to_thread(decode, body.tokens, skip_special_tokens=False))
