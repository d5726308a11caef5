"""Calls of the Rust `tokenizers` library: other threads run meanwhile, and whatever it raises is an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tokenizers import Tokenizer as RustTokenizer

from octavo.lib.errors import CheckpointError, InvalidRequestError

# Letters from which on the interpreter's lock is given up; below, taking it back would cost more than it gives.
_LONG = 2048


def rust_ids(rust: RustTokenizer, text: str, *, add_special_tokens: bool = False) -> list[int]:
    """Ids of `text`.

    Raises:
        InvalidRequestError: The tokenizer cannot read this text (say, a letter is unknown and there is no token for such).
    """
    with _as_errors() as failed:
        if len(text) < _LONG:
            return list(rust.encode(text, add_special_tokens=add_special_tokens).ids)
        # `encode` keeps the lock, so that every other stream would stand still; a batch gives it up.
        return list(rust.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids)
    raise InvalidRequestError(f"The tokenizer cannot read this text: {failed[0]}", param="prompt")


def rust_tokenizer(description: str, file: str) -> RustTokenizer:
    """A tokenizer from the text of a `tokenizer.json`, tried once.

    Raises:
        CheckpointError: It is not valid.
    """
    with _as_errors() as failed:
        rust = RustTokenizer.from_str(description)
        rust.encode("")
        return rust
    raise CheckpointError(f"is not a tokenizer: {failed[0]}", file=file)


@contextmanager
def _as_errors() -> Iterator[list[BaseException]]:
    """Keep what the library raises: bare exceptions, and for a panic one that is not even an `Exception`."""
    failed: list[BaseException] = []
    try:
        yield failed
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        failed.append(error)
