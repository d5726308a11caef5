"""The application: an explicit list of routes, the error handlers and the middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware

from octavo.entrypoints.anthropic import handlers as anthropic
from octavo.entrypoints.anthropic.errors import AnthropicFace
from octavo.entrypoints.openai.door.calls import Calls
from octavo.entrypoints.openai.door.custom import add_custom_middleware
from octavo.entrypoints.openai.door.deadlines import Deadlines, EndCall
from octavo.entrypoints.openai.door.guard import Guard
from octavo.entrypoints.openai.door.hosts import AllowedHosts
from octavo.entrypoints.openai.door.keys import KeyRing, plain_keys, read_key_file
from octavo.entrypoints.openai.door.rates import RateLimits
from octavo.entrypoints.openai.door.sizes import BodyLimit, HeadLimit
from octavo.entrypoints.openai.errors import install_error_handlers
from octavo.entrypoints.openai.handlers import (
    chat,
    completions,
    control,
    models,
    operations,
    responses,
    tokens,
)
from octavo.entrypoints.openai.pooling_routes import add_pooling_routes
from octavo.entrypoints.openai.protocol.chat import ChatCompletion
from octavo.entrypoints.openai.protocol.completion import Completion
from octavo.entrypoints.openai.state import ServerState
from octavo.entrypoints.openai.traces import traces_to
from octavo.entrypoints.web import site
from octavo.version import __version__


def routes() -> APIRouter:
    """Everything that this server answers."""
    router = APIRouter()
    post, get = router.post, router.get
    post("/v1/chat/completions", response_model=ChatCompletion)(chat.create_chat_completion)
    post("/v1/completions", response_model=Completion)(completions.create_completion)
    post("/v1/responses")(responses.create_response)
    get("/v1/responses/{response_id}")(responses.retrieve_response)
    get("/v1/responses/{response_id}/input_items")(responses.list_input_items)
    router.delete("/v1/responses/{response_id}")(responses.delete_response)
    post("/v1/responses/{response_id}/cancel")(responses.cancel_response)
    post("/v1/messages")(anthropic.create_message)
    post("/v1/messages/count_tokens")(anthropic.count_tokens)
    get("/v1/models")(models.list_models)
    get("/v1/models/{name:path}")(models.retrieve_model)
    post("/tokenize")(tokens.tokenize)
    post("/detokenize")(tokens.detokenize)
    get("/health")(operations.health)
    get("/ready")(operations.ready)
    get("/ping")(operations.health)
    post("/ping", include_in_schema=False)(operations.health)
    get("/version")(operations.version)
    get("/metrics")(operations.metrics)
    get("/load")(operations.load)
    add_pooling_routes(router)
    return router


def control_routes() -> APIRouter:
    """What changes the server for everybody: only there when its operator asked for it."""
    router = APIRouter()
    router.post("/sleep")(control.sleep)
    router.post("/wake_up")(control.wake_up)
    router.get("/is_sleeping")(control.is_sleeping)
    router.post("/reset_prefix_cache")(control.reset_prefix_cache)
    return router


def page_routes() -> APIRouter:
    """The page at `/` and its files."""
    router = APIRouter(include_in_schema=False)
    router.api_route("/", methods=["GET", "HEAD"])(site.index)
    router.api_route("/web/{name}", methods=["GET", "HEAD"])(site.asset)
    return router


def build_app(state: ServerState, api_keys: tuple[str, ...] = ()) -> FastAPI:
    """The ASGI application over a running engine.

    Args:
        api_keys: Keys that clients must send, beside those of `--api-key-file`; none at all: anyone may call.

    Raises:
        ConfigError: the key file or a middleware cannot be had, or a setting needs a package that is not there.
    """
    args = state.args
    hidden = args.disable_fastapi_docs
    app = FastAPI(
        title="Octavo",
        version=__version__,
        lifespan=_lifespan(state),
        docs_url=None if hidden else "/docs",
        redoc_url=None if hidden else "/redoc",
        openapi_url=None if hidden else "/openapi.json",
    )
    app.state.server = state
    app.include_router(routes())
    if args.enable_tokenizer_info_endpoint:
        app.add_api_route("/tokenizer_info", tokens.tokenizer_info, methods=["GET"])
    if args.enable_sleep_mode:
        app.include_router(control_routes())
    if not args.disable_web:
        app.include_router(page_routes())
    if args.enable_server_info:
        app.get("/server_info")(operations.server_info)
    install_error_handlers(app)
    _add_middleware(app, state, api_keys)
    if args.otlp_traces_endpoint:
        traces = traces_to(args.otlp_traces_endpoint)
        for each in state.all:
            each.engine.add_listener(traces)
    return app


def _add_middleware(app: FastAPI, state: ServerState, api_keys: tuple[str, ...]) -> None:
    """Added last runs first: every answer is named and counted, keys are checked before a body is read."""
    args = state.args
    app.add_middleware(BodyLimit, limit=args.max_request_bytes, uploads=state.uploads)
    for path in args.middleware:
        add_custom_middleware(app, path)
    app.add_middleware(Deadlines, limit=args.request_timeout, end=_end_call(state))
    keys = plain_keys(api_keys) + (read_key_file(args.api_key_file) if args.api_key_file else [])
    rates = _rate_limits(state)
    if keys or rates:
        app.add_middleware(Guard, ring=KeyRing(keys) if keys else None, rates=rates)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=list(args.allowed_origins),
        allow_credentials=args.allow_credentials,
        allow_methods=list(args.allowed_methods),
        allow_headers=list(args.allowed_headers),
    )
    if "*" not in args.allowed_hosts:
        app.add_middleware(AllowedHosts, hosts=args.allowed_hosts)
    app.add_middleware(HeadLimit, max_bytes=args.max_header_bytes, max_count=args.max_header_count)
    app.add_middleware(AnthropicFace)
    app.add_middleware(
        Calls,
        metrics=state.http,
        answer_ids=args.enable_request_id_headers,
        line_format=args.access_log,
        quiet_paths=args.disable_access_log_for_endpoints,
    )


def _rate_limits(state: ServerState) -> RateLimits | None:
    args = state.args
    if not args.rate_limit_requests and not args.rate_limit_tokens:
        return None
    rates = RateLimits(args.rate_limit_requests, args.rate_limit_tokens)
    for each in state.all:
        each.engine.add_listener(rates)
    return rates


def _end_call(state: ServerState) -> EndCall:
    """Ends what a call has running in the engine of whichever model it named."""
    return lambda origin, error: sum(each.engine.fail_call(origin, error) for each in state.all)


def _lifespan(state: ServerState) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await state.responses.close()
            for each in state.all:
                each.renderer.close()

    return lifespan
