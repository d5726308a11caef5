"""clang-format over csrc: check, or rewrite with --fix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    sources = sorted(str(path) for pattern in ("*.h", "*.cpp") for path in Path("csrc").rglob(pattern))
    if not sources:
        return 0
    mode = ["-i"] if "--fix" in sys.argv else ["--dry-run", "--Werror"]
    binary = Path(sys.executable).with_name("clang-format")
    return subprocess.run([str(binary), "--style=file", *mode, *sources]).returncode


if __name__ == "__main__":
    sys.exit(main())
