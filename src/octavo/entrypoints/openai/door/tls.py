"""TLS: settings for uvicorn, and certificates that are read again when their files change."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from typing import TYPE_CHECKING, Any

from octavo.lib.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn

    from octavo.entrypoints.openai.args import ServerArgs

logger = logging.getLogger(__name__)

RELOAD_SECONDS = 5.0


def tls_settings(args: ServerArgs) -> dict[str, Any]:
    """Keyword arguments of `uvicorn.Config`; none without a certificate.

    Raises:
        ConfigError: the files are no key and certificate that fit each other.
    """
    if args.ssl_certfile is None:
        return {}
    _check_files(args)
    return {
        "ssl_keyfile": args.ssl_keyfile,
        "ssl_certfile": args.ssl_certfile,
        "ssl_ca_certs": args.ssl_ca_certs,
        "ssl_cert_reqs": args.ssl_cert_reqs,
        "ssl_ciphers": args.ssl_ciphers,
    }


def _check_files(args: ServerArgs) -> None:
    assert args.ssl_certfile is not None
    context, at_fault = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "ssl_certfile"
    try:
        context.load_cert_chain(args.ssl_certfile, args.ssl_keyfile)
        if args.ssl_ca_certs:
            at_fault = "ssl_ca_certs"
            context.load_verify_locations(args.ssl_ca_certs)
        at_fault = "ssl_ciphers"
        context.set_ciphers(args.ssl_ciphers)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"--{at_fault.replace('_', '-')} cannot be used: {error}.", param=at_fault
        ) from error


async def reload_certificates(config: uvicorn.Config) -> None:
    """Watch the files of a TLS server for ever; new connections get the newest pair. Without TLS, return."""
    if not config.ssl_certfile:
        return
    known = _stamps(config)
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        now = _stamps(config)
        if now != known and _reload(config):
            known = now


def _stamps(config: uvicorn.Config) -> tuple[int, ...]:
    """When the files changed last; 0 for one that is being replaced just now."""
    found = []
    for path in (config.ssl_certfile, config.ssl_keyfile):
        try:
            found.append(os.stat(path).st_mtime_ns if path else 0)
        except OSError:
            found.append(0)
    return tuple(found)


def _reload(config: uvicorn.Config) -> bool:
    """False while the files do not fit each other: one of the two may not be written yet."""
    context = config.ssl
    if context is None or config.ssl_certfile is None:
        return False
    try:
        # A context that a wrong pair was loaded into is spoilt, so the pair is tried on another one first.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
    except (OSError, ssl.SSLError) as error:
        logger.warning("The new TLS certificate cannot be used yet: %s.", error)
        return False
    logger.info("TLS certificate read again.")
    return True
