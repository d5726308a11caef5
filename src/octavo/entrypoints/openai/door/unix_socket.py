"""Listening on a unix socket."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

from octavo.lib.errors import ConfigError

BACKLOG = 2048


def claim_unix_socket(path: str) -> socket.socket:
    """Bind and listen; a socket that nobody listens on any more is replaced.

    Raises:
        ConfigError: the path is taken or cannot be used.
    """
    _remove_orphan(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"Cannot listen on the unix socket {path}: {error}.", param="uds") from error
    listener.setblocking(False)
    return listener


def _remove_orphan(path: str) -> None:
    with contextlib.suppress(OSError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
