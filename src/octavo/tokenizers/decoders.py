"""The decoders of `tokenizer.json`, each as what a token adds to a text (see `pieces`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.lib.errors import CheckpointError, UnsupportedModelError
from octavo.tokenizers.pieces import SPACE_MARK, Pieces, byte_fallback, byte_level

Json = Mapping[str, Any]
Spell = Callable[[str], bytes]

# WordPiece's clean-up, as the Rust library applies it to each token by itself.
_CLEAN_UP = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How a decoder writes a token.

    Attributes:
        rest: In a text that has begun.
        first: As the first of a text.
        added: An added token, if it is not written as the others are.
    """

    rest: Spell
    first: Spell
    added: Spell | None = None


def read_decoder(description: Json, file: str) -> Pieces:
    """The pieces of the tokenizer that a parsed `tokenizer.json` describes.

    Raises:
        UnsupportedModelError: The decoder is of a kind, or has a setting, that is not known.
        CheckpointError: The vocabulary is damaged.
    """
    texts = _texts(description, file)
    added = frozenset(token["id"] for token in description.get("added_tokens") or [])
    spelling = _spelling(description.get("decoder"), file)

    def spell(token_id: int, way: Spell) -> bytes:
        text = texts.get(token_id)
        if text is None:
            return b""
        return spelling.added(text) if spelling.added and token_id in added else way(text)

    return Pieces(lambda i: spell(i, spelling.rest), lambda i: spell(i, spelling.first))


def _texts(description: Json, file: str) -> dict[int, str]:
    """Text of each id, of the vocabulary and of the added tokens."""
    try:
        vocabulary = description["model"]["vocab"]
        entries = vocabulary.items() if isinstance(vocabulary, dict) else _numbered(vocabulary)
        texts = {token_id: text for text, token_id in entries}
        texts.update({token["id"]: token["content"] for token in description.get("added_tokens") or []})
    except (KeyError, TypeError, ValueError) as e:
        raise CheckpointError(f"the vocabulary is damaged: {e!r}", file=file) from e
    return texts


def _numbered(vocabulary: Sequence[tuple[str, float]]) -> Iterable[tuple[str, int]]:
    return ((text, token_id) for token_id, (text, _) in enumerate(vocabulary))


def _spelling(decoder: Json | None, file: str) -> _Spelling:
    if decoder is None:
        return _Spelling(rest=lambda text: b" " + text.encode("utf-8"), first=_literal)
    kind = decoder.get("type")
    if kind == "ByteLevel":
        return _Spelling(rest=byte_level, first=byte_level, added=_literal)
    if kind == "WordPiece":
        return _wordpiece(decoder.get("prefix", "##"), decoder.get("cleanup", True))
    if kind == "Metaspace":
        return _metaspace(decoder)
    if kind == "Sequence":
        return _sequence(decoder.get("decoders", []), file)
    if kind in ("Replace", "ByteFallback", "Fuse"):
        return _sequence([decoder], file)
    raise UnsupportedModelError(f"The decoder {kind!r} is not supported.", file=file)


def _literal(text: str) -> bytes:
    return text.encode("utf-8")


def _wordpiece(prefix: str, cleanup: bool) -> _Spelling:
    def clean(text: str) -> bytes:
        for old, new in _CLEAN_UP if cleanup else ():
            text = text.replace(old, new)
        return text.encode("utf-8")

    def rest(text: str) -> bytes:
        return clean(text.removeprefix(prefix) if text.startswith(prefix) else " " + text)

    return _Spelling(rest=rest, first=clean)


def _metaspace(decoder: Json) -> _Spelling:
    mark = decoder.get("replacement", SPACE_MARK)
    scheme = decoder.get("prepend_scheme", "always" if decoder.get("add_prefix_space", True) else "never")

    def rest(text: str) -> bytes:
        return text.replace(mark, " ").encode("utf-8")

    def first(text: str) -> bytes:
        return text.replace(mark, "").encode("utf-8")

    return _Spelling(rest=rest, first=rest if scheme == "never" else first)


def _sequence(decoders: Sequence[Json], file: str) -> _Spelling:
    """A chain of replacements, byte tokens and a strip of the joined text, as SentencePiece models have it."""
    if len(decoders) == 1 and decoders[0].get("type") not in ("Replace", "ByteFallback", "Fuse", "Strip"):
        return _spelling(decoders[0], file)
    steps = [_step(decoder, file) for decoder in decoders if decoder.get("type") != "Strip"]
    leading = _stripped(decoders, file)

    def rest(text: str) -> bytes:
        for old, new in filter(None, steps):
            text = text.replace(old, new)
        return (byte_fallback(text) if fallback else None) or text.encode("utf-8")

    fallback = any(decoder.get("type") == "ByteFallback" for decoder in decoders)
    return _Spelling(rest=rest, first=lambda text: rest(text).removeprefix(leading))


def _step(decoder: Json, file: str) -> tuple[str, str] | None:
    """What a step of a chain replaces in a token, if it is a replacement."""
    kind = decoder.get("type")
    if kind in ("ByteFallback", "Fuse"):
        return None
    pattern = decoder.get("pattern")
    if kind == "Replace" and isinstance(pattern, dict) and isinstance(pattern.get("String"), str):
        return pattern["String"], str(decoder.get("content", ""))
    raise UnsupportedModelError(f"The decoder step {kind!r} {pattern or ''} is not supported.", file=file)


def _stripped(decoders: Sequence[Json], file: str) -> bytes:
    """What the chain strips from the start of the joined text."""
    strips = [(at, decoder) for at, decoder in enumerate(decoders) if decoder.get("type") == "Strip"]
    if not strips:
        return b""
    at, strip = strips[0]
    joined = any(decoder.get("type") == "Fuse" for decoder in decoders[:at])
    if len(strips) > 1 or not joined or strip.get("stop") or strip.get("start") not in (0, 1):
        raise UnsupportedModelError("The decoder strips more than one leading letter.", file=file)
    return str(strip.get("content", " ")).encode("utf-8") * int(strip["start"])
