"""`truncation: auto`: a conversation that is too long loses its oldest turns."""

from __future__ import annotations

from octavo.entrypoints.openai.handlers.turns import Turn, open_turn
from octavo.entrypoints.openai.protocol.chat import ChatCompletionRequest
from octavo.entrypoints.openai.state import ServerState
from octavo.lib.errors import InvalidRequestError


async def fitting_turn(state: ServerState, chat: ChatCompletionRequest, request_id: str) -> Turn:
    """The turn with as few of the oldest messages left out as the context needs.

    The system message stays, and what is left begins with a user's message, so that no answer of a tool is without its
    call. Found by bisection, as rendering a long conversation takes time.

    Raises:
        InvalidRequestError: not even the last user's message fits.
    """
    system = chat.messages[:1] if chat.messages[0]["role"] == "system" else []
    rest = chat.messages[len(system) :]
    starts = [0, *(at for at, message in enumerate(rest) if at and message["role"] == "user")]

    async def turn_from(start: int) -> Turn:
        shorter = chat.model_copy(update={"messages": system + rest[start:]})
        turn = await open_turn(state, shorter, request_id)
        _check_room(state, turn, chat.token_limit)
        return turn

    async def attempt(start: int) -> Turn | None:
        try:
            return await turn_from(start)
        except InvalidRequestError as error:
            if error.param != "prompt":
                raise
            return None

    whole = await attempt(starts[0])
    if whole is not None:
        return whole
    low, high, found = 1, len(starts) - 1, None
    while low <= high:
        middle = (low + high) // 2
        turn = await attempt(starts[middle])
        if turn is None:
            low = middle + 1
        else:
            found, high = turn, middle - 1
    return found if found is not None else await turn_from(starts[-1])


def _check_room(state: ServerState, turn: Turn, asked: int | None) -> None:
    limit, wanted = state.engine.config.model.max_model_len, max(1, asked or 1)
    if turn.num_prompt_tokens + wanted > limit:
        raise InvalidRequestError(
            f"The prompt has {turn.num_prompt_tokens} tokens and the answer may have {wanted}: more than the context "
            f"length of {limit} tokens. Shorten the prompt or ask for less.",
            param="prompt",
        )
