"""Names and constructs that have no place in the tree (see AGENTS.md, «Bans»)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src/octavo")
ENVIRONMENT_READER = SOURCE / "config/env.py"
BANNED_FILE_STEMS = {"utils", "util", "common", "helpers", "helper", "misc"}
BANNED_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve"}
ARCHITECTURE = re.compile(r"\w+For(CausalLM|ConditionalGeneration|SequenceClassification|MaskedLM)\b")
# A registry is asked for by its client, never by its address. Spelled apart so that this file passes itself.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("debian", "org"))
]
TEXT_SUFFIXES = {
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".h",
    ".cpp",
    ".c",
    ".yml",
    ".yaml",
    ".sh",
    ".json",
    ".html",
    ".js",
    "",
}


def tracked_files() -> list[Path]:
    """Files that git tracks or would track."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted({Path(line) for line in listing.stdout.splitlines() if Path(line).is_file()})


def banned_name(path: Path) -> Iterator[str]:
    if path.suffix == ".py" and path.stem in BANNED_FILE_STEMS:
        yield f"{path}: a module named {path.stem!r} says nothing; name it after what it does"


def banned_hosts(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if any(host in line for host in REGISTRY_HOSTS):
            yield f"{path}:{number}: names a registry's host"


def banned_syntax(path: Path, tree: ast.AST) -> Iterator[str]:
    """Bare excepts, pickle, environment reads and architecture strings."""
    in_source = SOURCE in path.parents
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{path}:{line}: bare except"
        if in_source and imported_modules(node) & BANNED_IMPORTS:
            yield f"{path}:{line}: pickle and its kin are not for data that crosses a border"
        if in_source and path != ENVIRONMENT_READER and reads_environment(node):
            yield f"{path}:{line}: the environment is read in {ENVIRONMENT_READER} only"
        if in_source and "ops" not in path.parts and touches_native(node):
            yield f"{path}:{line}: only ops touches the native module"
        if in_source and "models" not in path.parts and is_architecture(node):
            yield f"{path}:{line}: an architecture's name outside models/"


def imported_modules(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module.split(".")[0]}
    return set()


def touches_native(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").endswith("_native") or any(alias.name == "_native" for alias in node.names)
    return isinstance(node, ast.Import) and any(alias.name.endswith("_native") for alias in node.names)


def reads_environment(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr in {"environ", "getenv", "environb"}
    )


def is_architecture(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and len(node.value) < 80
        and bool(ARCHITECTURE.search(node.value))
    )


def findings(path: Path) -> Iterator[str]:
    yield from banned_name(path)
    if path.suffix not in TEXT_SUFFIXES:
        return
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    yield from banned_hosts(path, text)
    if path.suffix == ".py":
        yield from banned_syntax(path, ast.parse(text, str(path)))


def main() -> int:
    found = [line for path in tracked_files() for line in findings(path)]
    print("\n".join(found) if found else "bans: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
