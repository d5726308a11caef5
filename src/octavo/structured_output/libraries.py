"""The libraries that can hold answers to grammars: which there are, and what each can be asked. Loads none of them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from octavo.lib.errors import ConfigError

# In the order in which `auto` asks them, with the module that each needs.
MODULES: Mapping[str, str] = {"guidance": "llguidance", "xgrammar": "xgrammar", "outlines": "outlines_core"}
# What each can be asked. The others know no free text with tags in it, and outlines no context-free grammar.
KINDS: Mapping[str, frozenset[str]] = {
    "guidance": frozenset({"json", "regex", "choice", "grammar", "json_object", "structural_tag"}),
    "xgrammar": frozenset({"json", "regex", "choice", "grammar", "json_object"}),
    "outlines": frozenset({"json", "regex", "choice"}),
}


def is_installed(name: str) -> bool:
    """Whether the library behind a backend can be imported."""
    return find_spec(MODULES[name]) is not None


def check_backend(name: str) -> None:
    """Refuse a backend that cannot work here.

    Raises:
        ConfigError: it is not known, or its library is not installed.
    """
    if name == "auto":
        return
    if name not in MODULES:
        known = ", ".join(["auto", *MODULES])
        raise ConfigError(
            f"--structured-outputs-config: backend must be one of {known}, got {name!r}.",
            param="structured_outputs_config",
        )
    if not is_installed(name):
        module = MODULES[name].replace("_", "-")
        raise ConfigError(
            f"--structured-outputs-config: the backend {name} needs the package {module}; install octavo[{name}].",
            param="structured_outputs_config",
        )
