"""`ServerArgs`: what a user may set on the HTTP server itself."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from octavo.engine.flags import add_flags, check_choices, flag, values_from
from octavo.entrypoints.openai.responses.store import StoreLimits
from octavo.lib.errors import ConfigError
from octavo.lib.human_numbers import parse_human_int

MAX_SHUTDOWN_SECONDS = 86_400
_LOWEST = {
    "max_request_bytes": 1,
    "max_header_bytes": 256,
    "max_header_count": 1,
    "rate_limit_requests": 0,
    "rate_limit_tokens": 0,
}


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
    api_key_file: str | None = None
    """File with further keys, a line `label:key` or `label:sha256:HEX` for each. The label stands in logs and metrics."""
    rate_limit_requests: int = flag(0, parse=parse_human_int)
    """Requests a minute that each key may send; 0: no limit. Needs the extra `limits`."""
    rate_limit_tokens: int = flag(0, parse=parse_human_int)
    """Tokens a minute, of prompts and answers, that each key may use; 0: no limit. Needs the extra `limits`."""
    allowed_origins: tuple[str, ...] | list[str] = flag(("*",))
    """Origins that browsers may call from (CORS)."""
    allow_credentials: bool = False
    """Let browsers send credentials (CORS)."""
    allowed_methods: tuple[str, ...] | list[str] = flag(("*",))
    """Methods that browsers may use from other origins (CORS)."""
    allowed_headers: tuple[str, ...] | list[str] = flag(("*",))
    """Headers that browsers may send from other origins (CORS)."""
    allowed_hosts: tuple[str, ...] | list[str] = flag(("*",))
    """Values of the Host header that are answered, such as example.com or *.example.com."""
    forwarded_allow_ips: str | None = None
    """Addresses (with commas between them, or *) of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed."""
    uds: str | None = None
    """Unix socket to listen on in place of host and port."""
    ssl_keyfile: str | None = None
    """File of the TLS key; with it the server speaks HTTPS."""
    ssl_certfile: str | None = None
    """File of the TLS certificate with its chain."""
    ssl_ca_certs: str | None = None
    """File of the authorities whose client certificates are accepted."""
    ssl_cert_reqs: int = 0
    """Client certificates: 0 none, 1 optional, 2 required."""
    ssl_ciphers: str = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM"
    """Ciphers of TLS 1.2 in OpenSSL's notation."""
    enable_ssl_refresh: bool = True
    """Read key and certificate again when their files change."""
    middleware: tuple[str, ...] | list[str] = flag(())
    """Import paths of further middleware: an ASGI class, or an async function of (request, call_next)."""
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
    max_header_bytes: int = flag(
        32 * 1024, parse=parse_human_int, aliases=("--h11-max-incomplete-event-size",)
    )
    """Largest request line and headers together, in bytes."""
    max_header_count: int = flag(100, aliases=("--h11-max-header-count",))
    """Most headers of a request."""
    request_timeout: float = 0.0
    """Seconds after which a request that is not answered is ended with status 504; 0: none. A client's X-Request-Timeout
    may say less."""
    access_log: str = flag("none", choices=("none", "text", "json"))
    """A line for each request (no bodies, no keys), as text or as JSON."""
    otlp_traces_endpoint: str | None = None
    """URL of an OpenTelemetry collector (OTLP over HTTP, `http://HOST:4318/v1/traces`) that gets a span a request."""
    disable_access_log_for_endpoints: tuple[str, ...] | list[str] = flag(())
    """Paths that are not logged, such as /health and /metrics."""
    enable_server_info: bool = False
    """Offer /server_info, which shows the settings."""
    uvicorn_log_level: str = flag("warning", choices=("debug", "info", "warning", "error", "critical"))
    """Level of the HTTP server's own log."""

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 <= self.shutdown_timeout <= MAX_SHUTDOWN_SECONDS:
            raise ConfigError(
                f"--shutdown-timeout must be between 0 and {MAX_SHUTDOWN_SECONDS} seconds, "
                f"got {self.shutdown_timeout}.",
                param="shutdown_timeout",
            )
        for name, lowest in _LOWEST.items():
            # `not >=` refuses what is no number, too.
            if not getattr(self, name) >= lowest:
                raise ConfigError(
                    f"--{name.replace('_', '-')} must be at least {lowest}, got {getattr(self, name)}.",
                    param=name,
                )
        if not 0 <= self.request_timeout <= MAX_SHUTDOWN_SECONDS:
            raise ConfigError(
                f"--request-timeout must be between 0 and {MAX_SHUTDOWN_SECONDS} seconds, got {self.request_timeout}.",
                param="request_timeout",
            )
        if self.root_path and not self.root_path.startswith("/"):
            raise ConfigError(
                f"--root-path must begin with a slash, got {self.root_path!r}.", param="root_path"
            )
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            raise ConfigError("--ssl-keyfile and --ssl-certfile need each other.", param="ssl_certfile")
        if self.ssl_cert_reqs not in (0, 1, 2):
            raise ConfigError(
                f"--ssl-cert-reqs must be 0, 1 or 2, got {self.ssl_cert_reqs}.", param="ssl_cert_reqs"
            )
        if self.ssl_cert_reqs and not self.ssl_ca_certs:
            raise ConfigError(
                "--ssl-cert-reqs needs the authorities whose certificates are accepted (--ssl-ca-certs).",
                param="ssl_ca_certs",
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
