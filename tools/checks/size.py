"""How large the functions and files are, against the aims of AGENTS.md, with the trend since an older commit.

Fails only on what nobody would defend: a function over 120 lines or a file over 900 (data tables aside).
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import PurePosixPath

FUNCTION_LIMIT = 120
FILE_LIMIT = 900
TREES = ("src", "csrc")
TREND_COMMITS = 20
CPP_SUFFIXES = {".h", ".cpp"}
# A block that only groups declarations; a function is the first brace inside that is none of these.
CPP_SCOPE = re.compile(
    r"^\s*(template\b.*)?(namespace|struct|class|enum|union|extern)\b[^;()]*\{|^\s*extern\s+\"C\""
)


@dataclass(frozen=True)
class Function:
    file: str
    name: str
    lines: int


def python_functions(file: str, text: str) -> list[Function]:
    nodes = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return [Function(file, node.name, code_lines(node)) for node in nodes]


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        doc = node.body[0]
        total -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
    return total


def cpp_functions(file: str, text: str) -> list[Function]:
    """Outermost brace blocks that are not namespaces, types or the like. A heuristic: clang-format keeps it honest."""
    found: list[Function] = []
    scopes = 0
    depth = 0
    start = 0
    for number, line in enumerate(re.sub(r"//[^\n]*", "", text).splitlines(), 1):
        opens, closes = line.count("{"), line.count("}")
        if depth == 0 and opens > closes and CPP_SCOPE.search(line):
            scopes += 1
            continue
        if depth == 0 and opens > closes:
            start = number
        if depth == 0 and closes > opens:
            scopes = max(0, scopes - 1)
            continue
        depth += opens - closes
        if depth == 0 and opens + closes and start:
            found.append(Function(file, f"line {start}", number - start + 1))
            start = 0
    return found


def functions_of(files: dict[str, str]) -> list[Function]:
    found: list[Function] = []
    for file, text in files.items():
        found += python_functions(file, text) if file.endswith(".py") else cpp_functions(file, text)
    return found


def working_tree() -> dict[str, str]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *TREES],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    kept = (name for name in sorted(set(names)) if counted(name))
    files = {}
    for name in kept:
        try:
            with open(name, encoding="utf-8") as stream:
                files[name] = stream.read()
        except FileNotFoundError:
            continue
    return files


def counted(name: str) -> bool:
    return PurePosixPath(name).suffix in {".py", *CPP_SUFFIXES}


def tree_at(revision: str) -> dict[str, str] | None:
    """The same files some commits ago, or None in a shallow or young history."""
    archive = subprocess.run(["git", "archive", revision, *TREES], capture_output=True)
    if archive.returncode != 0:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        members = [member for member in tar.getmembers() if member.isfile() and counted(member.name)]
        return {member.name: tar.extractfile(member).read().decode() for member in members}  # type: ignore[union-attr]


def summary(files: dict[str, str]) -> dict[str, float]:
    lengths = sorted(function.lines for function in functions_of(files)) or [0]
    lines = [text.count("\n") for text in files.values()] or [0]
    return {
        "files": len(files),
        "lines": sum(lines),
        "largest file": max(lines),
        "functions": len(lengths),
        "median": statistics.median(lengths),
        "p95": lengths[int(0.95 * (len(lengths) - 1))],
        "longest": lengths[-1],
    }


def report(now: dict[str, float], before: dict[str, float] | None) -> str:
    rows = []
    for key, value in now.items():
        trend = "" if before is None else f"  ({value - before[key]:+.0f} in {TREND_COMMITS} commits)"
        rows.append(f"  {key:13}{value:8.0f}{trend}")
    return "size\n" + "\n".join(rows)


def is_table(text: str) -> bool:
    """A file of data says so in its first lines."""
    return "size: table" in text[:600]


def main() -> int:
    files = working_tree()
    older = tree_at(f"HEAD~{TREND_COMMITS}")
    print(report(summary(files), summary(older) if older else None))
    offences = [
        f"{function.file}: {function.name} has {function.lines} lines (limit {FUNCTION_LIMIT})"
        for function in functions_of(files)
        if function.lines > FUNCTION_LIMIT
    ]
    offences += [
        f"{file}: {text.count(chr(10))} lines (limit {FILE_LIMIT})"
        for file, text in files.items()
        if text.count("\n") > FILE_LIMIT and not is_table(text)
    ]
    print("\n".join(offences))
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
