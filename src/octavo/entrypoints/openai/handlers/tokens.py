"""`POST /tokenize`, `POST /detokenize` and `GET /tokenizer_info`."""

from __future__ import annotations

import asyncio

from fastapi import Request

from octavo.entrypoints.openai.protocol.tokens import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
    TokenizerInfoResponse,
)
from octavo.entrypoints.openai.state import server_state
from octavo.lib.errors import InvalidRequestError

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


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


async def tokenizer_info(request: Request, model: str | None = None) -> TokenizerInfoResponse:
    """What clients need that tokenize by themselves, by the names of Hugging Face's `tokenizer_config.json`."""
    state = server_state(request, model)
    info, templates = state.renderer.tokenizer.info, dict(state.renderer.templates)
    shown = [{"name": name, "template": text} for name, text in templates.items()]
    return TokenizerInfoResponse(
        model_max_length=state.engine.config.model.max_model_len,
        vocab_size=info.vocab_size,
        bos_token_id=info.bos_token_id,
        eos_token_id=info.eos_token_id,
        pad_token_id=info.pad_token_id,
        add_bos_token=info.add_bos,
        add_eos_token=info.add_eos,
        chat_template=templates.get("default") if len(templates) < 2 else shown,
        **{name: info.special_tokens.get(name) for name in SPECIAL_NAMES},
    )
