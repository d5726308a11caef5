"""`python -m octavo.entrypoints.openai.api_server --model MODEL`: as `octavo openai`, for scripts that start vLLM so."""

from __future__ import annotations

import sys

from octavo.entrypoints.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["openai", *sys.argv[1:]]))
