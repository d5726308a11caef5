"""API keys: digests only, each with a label for logs and metrics."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers

from octavo.lib.errors import ConfigError

_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})\Z")


@dataclass(frozen=True)
class ApiKey:
    """One key that clients may send."""

    label: str
    digest: bytes
    """sha256 of the key."""

    @property
    def owner(self) -> str:
        """What belongs to this key is kept under this name, which tells neither the key nor its digest."""
        return hashlib.sha256(b"owner" + self.digest).hexdigest()[:32]


def digest_of(key: str) -> bytes:
    """What is kept of a key. Header bytes that are no UTF-8 come as latin-1 from the server, hence surrogates."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def plain_keys(keys: Iterable[str]) -> list[ApiKey]:
    """Keys from the command line, labelled `key1`, `key2`, ... in their order."""
    return [ApiKey(f"key{number}", digest_of(key)) for number, key in enumerate(keys, 1)]


def read_key_file(path: str) -> list[ApiKey]:
    """Keys from a file with a line `label:key` or `label:sha256:HEX` for each; `#` starts a comment line.

    Raises:
        ConfigError: the file cannot be read, or a line is not of that form; names the line, never its content.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file {path!r} cannot be read.", param="api_key_file") from error
    found = [
        _key_of_line(path, number, line.strip())
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    labels = [key.label for key in found]
    if not found or len(set(labels)) < len(labels):
        reason = "holds no key" if not found else "has a label twice"
        raise ConfigError(f"--api-key-file {path!r} {reason}.", param="api_key_file")
    return found


def _key_of_line(path: str, number: int, line: str) -> ApiKey:
    label, colon, key = line.partition(":")
    if not colon or not key or not _LABEL.match(label):
        raise ConfigError(
            f"--api-key-file {path!r}, line {number}: write `label:key` or `label:sha256:HEX`; a label has 1 to 64 "
            "letters, digits, dots, dashes or underscores.",
            param="api_key_file",
        )
    digest = _DIGEST.match(key)
    return ApiKey(label, bytes.fromhex(digest[1]) if digest else digest_of(key))


class KeyRing:
    """Knows which caller a request comes from."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._keys = list(keys)

    def key_of(self, headers: Headers) -> ApiKey | None:
        """The key that a request brings (`Authorization: Bearer`, or Anthropic's `x-api-key`); None: no known one."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not given:
            return None
        digest = digest_of(given)
        found: ApiKey | None = None
        for known in self._keys:  # all of them, so that the time taken tells nothing
            if hmac.compare_digest(digest, known.digest):
                found = known
        return found
