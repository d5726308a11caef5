"""`GET /v1/models` and `GET /v1/models/{name}`."""

from __future__ import annotations

from fastapi import Request

from octavo.entrypoints.openai.protocol.models import ModelCard, ModelList
from octavo.entrypoints.openai.state import ServerState, server_state


async def list_models(request: Request) -> ModelList:
    """Every name under which a model is served."""
    states = server_state(request).all
    return ModelList(data=[_card(state, name) for state in states for name in state.model_names])


async def retrieve_model(name: str, request: Request) -> ModelCard:
    """One of them."""
    state = server_state(request, name)
    return _card(state, state.check_model(name))


def _card(state: ServerState, name: str) -> ModelCard:
    model = state.engine.config.model
    return ModelCard(
        id=name, created=state.created, root=model.served_model_names[0], max_model_len=model.max_model_len
    )
