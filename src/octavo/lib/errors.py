"""The one hierarchy of errors. Each class knows the HTTP status and the OpenAI error type that it becomes at the door."""

from __future__ import annotations


class OctavoError(Exception):
    """Root of every error that Octavo raises on purpose.

    Args:
        message: A full sentence that says what is wrong and, where possible, the fix. Safe to show to a client.
        param: The request field, flag or configuration key at fault.
    """

    status: int = 500
    error_type: str = "internal_server_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequestError(OctavoError):
    """A request that can never succeed as it stands; names the field and the limit."""

    status = 400
    error_type = "invalid_request_error"


class AuthenticationError(OctavoError):
    """No API key, or one that is not known."""

    status = 401
    error_type = "authentication_error"


class NotFoundError(OctavoError):
    """A model, route or object that does not exist."""

    status = 404
    error_type = "not_found_error"


class ConflictError(OctavoError):
    """Not possible in the state that the server is in now; it may be later."""

    status = 409
    error_type = "conflict_error"


class OverloadedError(OctavoError):
    """The waiting queue is full. `retry_after` is in seconds."""

    status = 429
    error_type = "overloaded_error"

    def __init__(self, message: str, *, retry_after: float = 1.0, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.retry_after = retry_after


class RateLimitError(OverloadedError):
    """An API key has used up its requests or tokens of this minute."""

    error_type = "rate_limit_error"


class RequestTimeoutError(OctavoError):
    """The request's deadline passed before it was answered."""

    status = 504
    error_type = "timeout_error"


class NotSupportedError(OctavoError):
    """A feature that Octavo knows but this model, platform or build cannot serve."""

    status = 501
    error_type = "not_supported_error"


class EngineDeadError(OctavoError):
    """The engine process died; the request did not finish."""

    status = 503
    error_type = "engine_dead_error"


class DrainingError(OctavoError):
    """The server is shutting down and takes no new requests."""

    status = 503
    error_type = "unavailable_error"


class AsleepError(OctavoError):
    """The model was sent to sleep and takes no requests until it is woken up."""

    status = 503
    error_type = "model_asleep_error"


class ConfigError(OctavoError):
    """A flag, environment variable or combination of settings that cannot work; raised before anything starts."""

    error_type = "config_error"


class CheckpointError(OctavoError):
    """A model file that is damaged, incomplete or not what its metadata says. Names the file and the tensor or key."""

    error_type = "checkpoint_error"

    def __init__(
        self, message: str, *, file: str | None = None, tensor: str | None = None, param: str | None = None
    ) -> None:
        where = " ".join(part for part in (file and f"{file}:", tensor and f"tensor {tensor!r}:") if part)
        super().__init__(f"{where} {message}" if where else message, param=param)
        self.file = file
        self.tensor = tensor


class UnsupportedModelError(CheckpointError):
    """An architecture, tokenizer, quantisation or setting that this build does not know. Never guessed around."""

    error_type = "unsupported_model_error"


def error_from_wire(error_type: str | None, message: str, param: str | None = None) -> OctavoError:
    """Rebuild an error that crossed a process: the class whose `error_type` that is, or the root."""
    for cls in _subclasses(OctavoError):
        if cls.error_type == error_type and cls is not OctavoError:
            return cls(message, param=param)
    return OctavoError(message, param=param)


def _subclasses(cls: type[OctavoError]) -> list[type[OctavoError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _subclasses(child))]
