"""`ServerArgs`: what a user may set on the HTTP server itself."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from octavo.engine.flags import add_flags, flag, values_from
from octavo.entrypoints.openai.responses.store import StoreLimits
from octavo.lib.errors import ConfigError

MAX_SHUTDOWN_SECONDS = 86_400


@dataclass(kw_only=True)
class ServerArgs:
    """Settings of the HTTP face."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 serves the whole network."""
    port: int = 8000
    """Port to listen on; 0 takes a free one and prints it."""
    api_key: tuple[str, ...] | list[str] | None = None
    """Keys of which a client must send one as `Authorization: Bearer KEY`, on every route but /health, /ready and
    /ping. Default: OCTAVO_API_KEY, else none."""
    allowed_origins: tuple[str, ...] | list[str] = flag(("*",))
    """Origins that browsers may call from (CORS)."""
    allow_credentials: bool = False
    """Let browsers send credentials (CORS)."""
    root_path: str = ""
    """Path prefix that a reverse proxy strips."""
    chat_template: str | None = None
    """Jinja file, or the template itself, in place of the model's own."""
    trust_request_chat_template: bool = False
    """Let requests bring a chat template of their own."""
    response_role: str = "assistant"
    """Role of answers."""
    enable_auto_tool_choice: bool = True
    """Let the model call tools of its own accord (`tool_choice` auto), if the format of its calls is known."""
    tool_call_parser: str = "auto"
    """Format of the model's tool calls: a name (docs/tools-and-reasoning.md lists them), `auto` (what the chat template
    gives away) or `none`."""
    reasoning_parser: str = "auto"
    """Format of the model's reasoning: a name, `auto` or `none` (reasoning stays in the content)."""
    tool_parser_plugin: str = ""
    """Python file or module whose FORMAT is one more for --tool-call-parser and --reasoning-parser."""
    reasoning_parser_plugin: str = ""
    """The same, for --reasoning-parser."""
    exclude_tools_when_tool_choice_none: bool = False
    """Do not show tools to the model in requests with `tool_choice` none."""
    enable_request_id_headers: bool = True
    """Answer with the X-Request-Id of the request, or a fresh one."""
    shutdown_timeout: float = 30.0
    """Seconds that running requests get to finish after SIGTERM; a second signal ends them at once."""
    disable_fastapi_docs: bool = False
    """No /docs, /redoc and /openapi.json."""
    enable_tokenizer_info_endpoint: bool = False
    """Answer /tokenizer_info, which shows the chat template."""
    enable_sleep_mode: bool = flag(False, aliases=("--server-dev-mode",))
    """Answer /sleep, /wake_up, /is_sleeping and /reset_prefix_cache, which act on everybody's requests."""
    disable_web: bool = False
    """No page at /."""
    max_request_bytes: int = 32 * 1024 * 1024
    """Largest request body in bytes."""
    responses_store: str = "memory"
    """Where responses of /v1/responses are kept: `memory`, or the path of an SQLite file that outlives the server."""
    responses_max_count: int = 10_000
    """Most responses that are kept; what was used longest ago goes first."""
    responses_max_bytes: int = 128 * 1024 * 1024
    """Most bytes of responses that are kept."""
    responses_max_age: float = 30 * 86_400.0
    """Seconds that a response is kept after its last use."""
    uvicorn_log_level: str = flag("warning", choices=("debug", "info", "warning", "error", "critical"))
    """Level of the HTTP server's own log."""

    def __post_init__(self) -> None:
        if not 0 <= self.shutdown_timeout <= MAX_SHUTDOWN_SECONDS:
            raise ConfigError(
                f"--shutdown-timeout must be between 0 and {MAX_SHUTDOWN_SECONDS} seconds, "
                f"got {self.shutdown_timeout}.",
                param="shutdown_timeout",
            )
        if self.max_request_bytes < 1:
            raise ConfigError(
                f"--max-request-bytes must be at least 1, got {self.max_request_bytes}.",
                param="max_request_bytes",
            )

        for name in ("responses_max_count", "responses_max_bytes", "responses_max_age"):
            if not getattr(self, name) > 0:
                shown = name.replace("_", "-")
                raise ConfigError(f"--{shown} must be above 0, got {getattr(self, name)}.", param=name)

    @property
    def store_limits(self) -> StoreLimits:
        """Bounds of the response store."""
        return StoreLimits(self.responses_max_count, self.responses_max_bytes, self.responses_max_age)

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Add one flag per field."""
        add_flags(parser, ServerArgs, group="server")
        return parser

    @classmethod
    def from_cli_args(cls, namespace: argparse.Namespace) -> ServerArgs:
        """The arguments that `parser.parse_args()` found."""
        return cls(**values_from(namespace, cls))
