"""`octavo models`: the embedded model and the architectures that are supported."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the lists."""
    import json

    from octavo.engine.default_model import SERVED_NAME
    from octavo.models.registry import discover

    path = _default_path()
    listing = {
        "default": {"name": SERVED_NAME, "path": path},
        "architectures": sorted(discover("ARCHITECTURES")),
        "gguf": sorted(discover("GGUF")),
    }
    if args.json:
        print(json.dumps(listing, indent=2))
        return 0
    print(f"Default model: {SERVED_NAME} ({path or 'not installed; run `make setup`'})")
    for title, key in (("Architectures (config.json)", "architectures"), ("GGUF architectures", "gguf")):
        print(f"\n{title}:")
        print("\n".join(f"  {name}" for name in listing[key]))
    return 0


def _default_path() -> str | None:
    from octavo.engine.default_model import default_model_path
    from octavo.lib.errors import ConfigError

    try:
        return default_model_path()
    except ConfigError:
        return None
