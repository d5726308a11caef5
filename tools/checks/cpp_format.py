"""clang-format over csrc and tests: check, or rewrite with --fix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    sources = sorted(
        str(path)
        for tree in ("csrc", "tests")
        for path in Path(tree).rglob("*")
        if path.suffix in (".h", ".cpp")
    )
    if not sources:
        return 0
    mode = ["-i"] if "--fix" in sys.argv else ["--dry-run", "--Werror"]
    binary = Path(sys.executable).with_name("clang-format")
    return subprocess.run([str(binary), "--style=file", *mode, *sources]).returncode


if __name__ == "__main__":
    sys.exit(main())
