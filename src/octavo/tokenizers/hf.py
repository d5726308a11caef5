"""Tokenizers from a Hugging Face checkpoint: `tokenizer.json` and the files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

from octavo.lib.errors import CheckpointError, UnsupportedModelError
from octavo.tokenizers.base import Tokenizer, TokenizerInfo
from octavo.tokenizers.decoders import read_decoder
from octavo.tokenizers.rust import rust_ids, rust_tokenizer

TOKENIZER = "tokenizer.json"
_SPECIAL_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_TEMPLATE_FOLDERS = ("additional_chat_templates", "chat_templates")
Json = dict[str, Any]


class RustEncoder:
    """The Rust library's tokenizer.

    Args:
        rust: A tokenizer that nobody else changes.
    """

    def __init__(self, rust: RustTokenizer) -> None:
        rust.no_truncation()
        rust.no_padding()
        self._parsing = rust

    @cached_property
    def _literal(self) -> RustTokenizer:
        # Whether control tokens are read is a setting of the whole object, so the rare other case has its own.
        rust = RustTokenizer.from_str(self._parsing.to_str())
        rust.encode_special_tokens = True
        return rust

    def encode(self, text: str, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """Ids of `text`; see `Encoder.encode`."""
        rust = self._parsing if parse_special else self._literal
        return rust_ids(rust, text, add_special_tokens=add_special_tokens)


def load_hf_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder.

    What is put around a text is what `tokenizer.json` says; `add_bos_token` in the configuration, which is for
    building that file, does not count (as in transformers 5).

    Raises:
        UnsupportedModelError: There is no `tokenizer.json`, or its decoder is of an unknown kind.
        CheckpointError: A file is damaged.
    """
    path = folder / TOKENIZER
    if not path.is_file():
        raise _missing(folder)
    text = _read(path)
    description = _parse(text, path)
    config = _optional(folder / "tokenizer_config.json")
    special_tokens = _special_tokens(folder, config)
    rust = rust_tokenizer(text, str(path))
    encoder = RustEncoder(rust)
    info = _info(rust, encoder, description, special_tokens, _chat_templates(folder, config))
    return Tokenizer(info, encoder, read_decoder(description, str(path)))


def _missing(folder: Path) -> CheckpointError:
    for name in ("tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "tiktoken.model"):
        if (folder / name).is_file():
            return UnsupportedModelError(
                f"The checkpoint has {name} but no {TOKENIZER}. Convert it once with transformers: "
                f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r}).",
                file=str(folder / name),
            )
    return UnsupportedModelError(f"The checkpoint has no {TOKENIZER}.", file=str(folder))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise CheckpointError(f"cannot be read: {e}", file=str(path)) from e


def _parse(text: str, path: Path) -> Json:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise CheckpointError(f"is not JSON: {e}", file=str(path)) from e
    if not isinstance(value, dict):
        raise CheckpointError("must hold a JSON object", file=str(path))
    return value


def _optional(path: Path) -> Json:
    return _parse(_read(path), path) if path.is_file() else {}


def _special_tokens(folder: Path, config: Json) -> dict[str, str]:
    """Role ("bos_token", ...) to spelling; `tokenizer_config.json` goes before `special_tokens_map.json`."""
    older = _optional(folder / "special_tokens_map.json")
    found = {}
    for role in (f"{name}_token" for name in _SPECIAL_ROLES):
        value = config.get(role, older.get(role))
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[role] = text
    return found


def _info(
    rust: RustTokenizer,
    encoder: RustEncoder,
    description: Json,
    special_tokens: Mapping[str, str],
    chat_templates: Mapping[str, str],
) -> TokenizerInfo:
    ids = {role: rust.token_to_id(text) for role, text in special_tokens.items()}
    around = encoder.encode("", add_special_tokens=True, parse_special=True)
    bos, eos = ids.get("bos_token"), ids.get("eos_token")
    added = description.get("added_tokens") or []
    special = {token["id"] for token in added if token.get("special")}
    special |= {token_id for token_id in ids.values() if token_id is not None}
    return TokenizerInfo(
        vocab_size=max(rust.get_vocab(with_added_tokens=True).values(), default=-1) + 1,
        bos_token_id=bos,
        eos_token_id=eos,
        eos_token_ids=() if eos is None else (eos,),
        pad_token_id=ids.get("pad_token"),
        special_ids=frozenset(special),
        add_bos=bool(around) and around[0] == bos,
        add_eos=bool(around) and around[-1] == eos and (len(around) > 1 or eos != bos),
        special_tokens=dict(special_tokens),
        chat_templates=dict(chat_templates),
    )


def _chat_templates(folder: Path, config: Json) -> dict[str, str]:
    """Templates by name: files go before `tokenizer_config.json`, as in transformers."""
    templates = _configured_templates(config.get("chat_template"))
    legacy = folder / "chat_template.json"
    if legacy.is_file():
        templates |= _configured_templates(_optional(legacy).get("chat_template"))
    single = folder / "chat_template.jinja"
    named = [path for name in _TEMPLATE_FOLDERS for path in sorted((folder / name).glob("*.jinja"))]
    if single.is_file() or named:
        templates = {path.stem: _read(path) for path in named}
        if single.is_file():
            templates["default"] = _read(single)
    return templates


def _configured_templates(value: object) -> dict[str, str]:
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, dict):
        return {name: text for name, text in value.items() if isinstance(text, str)}
    if isinstance(value, list):
        named = [(item.get("name"), item.get("template")) for item in value if isinstance(item, dict)]
        return {name: text for name, text in named if isinstance(name, str) and isinstance(text, str)}
    return {}
