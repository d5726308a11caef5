"""What the handlers share: the engine, the renderer, the metrics and the server's own settings."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from fastapi import Request

from octavo.engine.pooling_input import check_generates
from octavo.entrypoints.openai.uploads import Uploads
from octavo.lib.errors import DrainingError, EngineDeadError, NotFoundError

if TYPE_CHECKING:
    from octavo.engine.async_llm import AsyncLLM
    from octavo.entrypoints.openai.args import ServerArgs
    from octavo.entrypoints.openai.renderer import Renderer
    from octavo.entrypoints.openai.responses.archive import ResponseArchive
    from octavo.metrics import EngineMetrics
    from octavo.metrics.http_metrics import HttpMetrics


@dataclass
class ServerState:
    """One server's parts. `draining` is set by the first SIGTERM."""

    engine: AsyncLLM
    renderer: Renderer
    metrics: EngineMetrics
    args: ServerArgs
    responses: ResponseArchive
    http: HttpMetrics
    created: int = field(default_factory=lambda: int(time.time()))
    uploads: Uploads = field(default_factory=Uploads)
    draining: bool = False
    others: tuple[ServerState, ...] = ()
    """Of the server's first model: the states of the others, which share all but engine, renderer and metrics."""

    @property
    def all(self) -> tuple[ServerState, ...]:
        """One for each model of the server."""
        return (self, *self.others)

    def of_model(self, name: str | None) -> ServerState:
        """The state of one model; None: the first one.

        Raises:
            NotFoundError: no model of that name is served; names those that are.
        """
        for state in self.all:
            if name is None or name in state.model_names:
                return state
        raise self._unknown(name)

    @property
    def model_names(self) -> tuple[str, ...]:
        return self.engine.config.model.served_model_names

    @property
    def sampling_defaults(self) -> dict[str, float | int]:
        """Sampling defaults that the checkpoint brought along."""
        return dict(self.engine.config.model.default_sampling)

    def now(self) -> int:
        """Unix seconds, for `created`."""
        return int(time.time())

    def check_model(self, name: str | None) -> str:
        """The name to answer under.

        Raises:
            NotFoundError: no model of that name is served.
        """
        if name is None or name in self.model_names:
            return name or self.model_names[0]
        raise self._unknown(name)

    def _unknown(self, name: str | None) -> NotFoundError:
        served = ", ".join(known for state in self.all for known in state.model_names)
        return NotFoundError(f"The model {name!r} does not exist; this server has: {served}.", param="model")

    def check_generates(self) -> None:
        """Refuse to generate with a model that is only pooled.

        Raises:
            InvalidRequestError: says what it is for.
        """
        check_generates(self.engine.config.model)

    def check_open(self) -> None:
        """Refuse new work while the server shuts down or the engine is away.

        Raises:
            DrainingError, EngineDeadError, AsleepError: with status 503.
        """
        if self.draining:
            raise DrainingError("The server is shutting down and takes no new requests.")
        if not self.engine.is_ready:
            raise EngineDeadError("The engine is starting; try again in a moment.")
        self.engine.check_awake()


def server_state(request: Request, model: str | None = None) -> ServerState:
    """The state of the app that serves `request`, for the model that it names; None: the first one.

    Raises:
        NotFoundError: no model of that name is served.
    """
    return cast(ServerState, request.app.state.server).of_model(model)


def new_request_id(prefix: str, request: Request, asked: str | None) -> str:
    """`chatcmpl-...`: with the client's id if it gave one, and always unique inside the engine."""
    own = asked or getattr(request.state, "request_id", None) or uuid.uuid4().hex
    return f"{prefix}-{own}"
