"""From the metadata of a GGUF file to a tokenizer.

The format has no place for a normaliser (Qwen 2's `tokenizer.json`, say, composes letters and accents first), so a
text is read as it is, as in llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo.lib.errors import UnsupportedModelError
from octavo.lib.gguf import GGUFFile
from octavo.tokenizers.base import Tokenizer, TokenizerInfo
from octavo.tokenizers.gguf.byte_pairs import BytePairs, MarkedBytePairs
from octavo.tokenizers.gguf.encoder import FragmentEncoder, GGUFEncoder
from octavo.tokenizers.gguf.greedy import LongestMatch, unescape
from octavo.tokenizers.gguf.partition import Partition, SpecialToken
from octavo.tokenizers.gguf.plamo import CheapestSplit
from octavo.tokenizers.gguf.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from octavo.tokenizers.gguf.sentencepiece import ScoredMerges
from octavo.tokenizers.gguf.unigram import Charsmap, Normalizer, Unigram
from octavo.tokenizers.gguf.vocabulary import PREFIX, Kind, Vocabulary, read_vocabulary
from octavo.tokenizers.gguf.wordpiece import CONTINUATION, WordPiece, wordpiece_texts
from octavo.tokenizers.pieces import (
    Pieces,
    byte_fallback,
    byte_level,
    space_marked,
    without_leading_space,
)

_LITERAL = frozenset({Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED})


@dataclass(frozen=True, slots=True)
class _Parts:
    """What one kind of vocabulary contributes to a tokenizer."""

    fragments: FragmentEncoder
    pieces: Pieces
    add_bos: bool = False
    add_eos: bool = False


def build_tokenizer(gguf: GGUFFile) -> Tokenizer:
    """The tokenizer that a GGUF file describes.

    Raises:
        UnsupportedModelError: The kind of vocabulary or the pre-tokenizer is not known; names it.
        CheckpointError: The metadata is damaged or contradicts itself.
    """
    kind = gguf.get_str(PREFIX + "model")
    builder = _BUILDERS.get(kind)
    if builder is None:
        raise UnsupportedModelError(
            f"The tokenizer {kind!r} (metadata key {PREFIX}model) is not supported; known: {', '.join(_BUILDERS)}.",
            file=str(gguf.path),
        )
    vocabulary = read_vocabulary(gguf)
    parts = builder(vocabulary, gguf)
    info = _info(vocabulary, gguf, parts)
    return Tokenizer(info, _encoder(vocabulary, gguf, parts, info), parts.pieces)


def _byte_pairs(vocabulary: Vocabulary, gguf: GGUFFile) -> _Parts:
    rule = _pre_tokenizer(vocabulary, gguf)
    merges = gguf.get_list(PREFIX + "merges", str)
    add_bos = rule.force_bos or gguf.get_bool(PREFIX + "add_bos_token", rule.add_bos)
    add_eos = gguf.get_bool(PREFIX + "add_eos_token", False)
    if rule.byte_level:
        pieces = Pieces(_spell(vocabulary, byte_level))
        return _Parts(BytePairs(vocabulary, merges, rule), pieces, add_bos, add_eos)
    pieces = Pieces(_spell(vocabulary, space_marked))
    return _Parts(MarkedBytePairs(vocabulary, merges, rule), pieces, add_bos, add_eos)


def _pre_tokenizer(vocabulary: Vocabulary, gguf: GGUFFile) -> PreTokenizer:
    name = "gemma4" if vocabulary.model == "gemma4" else gguf.get_str(PREFIX + "pre", "")
    rule = PRE_TOKENIZERS.get(name)
    if rule is None:
        what = f"names the pre-tokenizer {name!r}, which is not known" if name else "names no pre-tokenizer"
        raise UnsupportedModelError(
            f"The file {what} (metadata key {PREFIX}pre). Text would be split otherwise than the model was trained "
            "to read it; convert the model again with a converter that knows it.",
            file=vocabulary.file,
        )
    return rule


def _sentencepiece(vocabulary: Vocabulary, gguf: GGUFFile) -> _Parts:
    if not vocabulary.scores:
        raise vocabulary.error(f"metadata key {PREFIX + 'scores'!r} is missing")
    add_space = gguf.get_bool(PREFIX + "add_space_prefix", True)
    fragments = ScoredMerges(
        _mergeable(vocabulary),
        vocabulary.scores,
        _byte_ids(vocabulary),
        vocabulary.special.get("unk"),
        add_space,
    )
    return _Parts(
        fragments,
        _marked_pieces(vocabulary, add_space),
        gguf.get_bool(PREFIX + "add_bos_token", True),
        gguf.get_bool(PREFIX + "add_eos_token", False),
    )


def _mergeable(vocabulary: Vocabulary) -> dict[str, int]:
    """The tokens that text may become: letters never make a control token or a byte token."""
    ids = vocabulary.ids.copy()
    for token_id in vocabulary.of_kind(Kind.CONTROL, Kind.UNKNOWN, Kind.BYTE):
        del ids[vocabulary.tokens[token_id]]
    return ids


def _unigram(vocabulary: Vocabulary, gguf: GGUFFile) -> _Parts:
    if not vocabulary.scores:
        raise vocabulary.error(f"metadata key {PREFIX + 'scores'!r} is missing")
    if "unk" not in vocabulary.special:
        raise vocabulary.error(f"metadata key {PREFIX + 'unknown_token_id'!r} is missing")
    usable = vocabulary.of_kind(Kind.NORMAL, Kind.USER_DEFINED, Kind.UNUSED)
    user_defined = vocabulary.of_kind(Kind.USER_DEFINED)
    scores = list(vocabulary.scores)
    least = min((scores[i] for i in vocabulary.of_kind(Kind.NORMAL)), default=0.0)
    for token_id in user_defined:
        scores[token_id] = 0.0
    add_space = gguf.get_bool(PREFIX + "add_space_prefix", False)
    normalizer = Normalizer(
        _charsmap(vocabulary, gguf),
        [vocabulary.tokens[i] for i in user_defined],
        add_space,
        gguf.get_bool(PREFIX + "remove_extra_whitespaces", False),
    )
    ids = {vocabulary.tokens[i]: i for i in usable}
    fragments = Unigram(ids, scores, least, vocabulary.special["unk"], normalizer)
    return _Parts(
        fragments,
        _marked_pieces(vocabulary, add_space),
        gguf.get_bool(PREFIX + "add_bos_token", False),
        gguf.get_bool(PREFIX + "add_eos_token", True),
    )


def _charsmap(vocabulary: Vocabulary, gguf: GGUFFile) -> Charsmap:
    key = PREFIX + "precompiled_charsmap"
    values = gguf.get_list(key, int, [])
    try:
        return Charsmap(bytes(value & 0xFF for value in values))
    except ValueError as e:
        raise vocabulary.error(f"metadata key {key!r}: {e}") from e


def _wordpiece(vocabulary: Vocabulary, gguf: GGUFFile) -> _Parts:
    lowercase = gguf.get_bool(PREFIX + "normalizer.lowercase", True)
    strip_accents = gguf.get_bool(PREFIX + "normalizer.strip_accents", lowercase)
    texts = wordpiece_texts(vocabulary)

    def spell(token_id: int) -> bytes:
        if not 0 <= token_id < len(texts):
            return b""
        text = texts[token_id]
        return (text[2:] if text.startswith(CONTINUATION) else " " + text).encode("utf-8")

    pieces = Pieces(spell, without_leading_space(spell))
    return _Parts(WordPiece(vocabulary, lowercase, strip_accents), pieces, add_bos=True, add_eos=True)


def _rwkv(vocabulary: Vocabulary, gguf: GGUFFile) -> _Parts:
    texts = [unescape(text) for text in vocabulary.tokens]
    ids = {text: token_id for token_id, text in enumerate(texts) if text}
    pieces = Pieces(lambda token_id: texts[token_id] if 0 <= token_id < len(texts) else b"")
    return _Parts(LongestMatch(ids, vocabulary.special.get("unk")), pieces)


def _plamo(vocabulary: Vocabulary, gguf: GGUFFile) -> _Parts:
    byte_ids = _byte_ids(vocabulary)
    if len(byte_ids) < 256:
        raise vocabulary.error(f"{PREFIX}tokens holds only {len(byte_ids)} of the 256 byte tokens")
    hidden = frozenset(byte_ids.values())
    scores = vocabulary.scores or [0.0] * len(vocabulary.tokens)
    usable = {
        text: (token_id, scores[token_id])
        for text, token_id in vocabulary.ids.items()
        if token_id not in hidden
    }
    pieces = Pieces(_spell(vocabulary, lambda text: text.encode("utf-8")))
    return _Parts(
        CheapestSplit(usable, byte_ids),
        pieces,
        gguf.get_bool(PREFIX + "add_bos_token", False),
        gguf.get_bool(PREFIX + "add_eos_token", False),
    )


def _byte_ids(vocabulary: Vocabulary) -> dict[int, int]:
    """Byte to the id of its token."""
    found = {}
    for token_id in vocabulary.of_kind(Kind.BYTE):
        byte = byte_fallback(vocabulary.tokens[token_id])
        if byte is not None:
            found[byte[0]] = token_id
    return found


def _spell(vocabulary: Vocabulary, spell: Callable[[str], bytes]) -> Callable[[int], bytes]:
    """The bytes of each token by its kind; `spell` is for normal ones. Unused ones add nothing."""
    kinds = vocabulary.kinds

    def spelled(token_id: int) -> bytes:
        if not 0 <= token_id < len(kinds):
            return b""
        text, kind = vocabulary.tokens[token_id], kinds[token_id]
        if kind in _LITERAL:
            return text.encode("utf-8")
        if kind == Kind.BYTE:
            return byte_fallback(text) or b""
        return spell(text) if kind == Kind.NORMAL else b""

    return spelled


def _marked_pieces(vocabulary: Vocabulary, add_space_prefix: bool) -> Pieces:
    spell = _spell(vocabulary, space_marked)
    return Pieces(spell, without_leading_space(spell) if add_space_prefix else None)


def _info(vocabulary: Vocabulary, gguf: GGUFFile, parts: _Parts) -> TokenizerInfo:
    special = vocabulary.special
    return TokenizerInfo(
        vocab_size=len(vocabulary.tokens),
        bos_token_id=special.get("bos"),
        eos_token_id=special.get("eos"),
        eos_token_ids=tuple(sorted(vocabulary.end_ids)),
        pad_token_id=special.get("pad"),
        special_ids=frozenset(vocabulary.of_kind(Kind.CONTROL, Kind.UNKNOWN)),
        add_bos=parts.add_bos,
        add_eos=parts.add_eos,
        special_tokens={
            f"{role}_token": vocabulary.tokens[special[role]] for role in _TEMPLATE_ROLES if role in special
        },
        chat_templates=_chat_templates(gguf),
    )


def _chat_templates(gguf: GGUFFile) -> dict[str, str]:
    templates: dict[str, str] = {}
    if "tokenizer.chat_template" in gguf.metadata:
        templates["default"] = gguf.get_str("tokenizer.chat_template")
    for name in gguf.get_list("tokenizer.chat_templates", str, []):
        templates[name] = gguf.get_str(f"tokenizer.chat_template.{name}")
    return templates


def _encoder(vocabulary: Vocabulary, gguf: GGUFFile, parts: _Parts, info: TokenizerInfo) -> GGUFEncoder:
    special = [
        SpecialToken(token_id, vocabulary.tokens[token_id], *strips)
        for token_id, strips in _strips(vocabulary, gguf).items()
    ]
    user_defined = [token for token in special if vocabulary.kinds[token.token_id] == Kind.USER_DEFINED]
    closing = vocabulary.special.get("sep" if vocabulary.model == "bert" else "eos")
    return GGUFEncoder(
        parts.fragments,
        Partition(special),
        Partition(user_defined),
        _around(vocabulary, "bos", info.bos_token_id, parts.add_bos),
        _around(vocabulary, "eos", closing, parts.add_eos),
    )


def _around(vocabulary: Vocabulary, role: str, token_id: int | None, wanted: bool) -> tuple[int, ...]:
    if not wanted:
        return ()
    if token_id is None:
        raise vocabulary.error(
            f"the tokenizer adds {role.upper()} to texts, but {PREFIX}{role}_token_id is missing"
        )
    return (token_id,)


def _strips(vocabulary: Vocabulary, gguf: GGUFFile) -> dict[int, tuple[bool, bool]]:
    """Special tokens, and whether each takes the white space on its left and right (llama.cpp's list of models)."""
    strips = dict.fromkeys(vocabulary.of_kind(*_LITERAL), (False, False))
    name = gguf.get_str("general.name", "").lower()
    pre = gguf.get_str(PREFIX + "pre", "")
    architecture = gguf.get_str("general.architecture", "")
    masks = {"modern-bert": "[MASK]"} if "modern-bert" in name else {}
    if any(part in pre for part in _LEFT_STRIPPED_PRE) or architecture in _LEFT_STRIPPED_MODELS:
        masks = {"": "<mask>"}
    for text in masks.values():
        if text in vocabulary.ids:
            strips[vocabulary.ids[text]] = (True, False)
    if not masks and ("phi-3" in name or "phi3" in name):
        kept = {vocabulary.ids.get(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
        strips = {token_id: (False, token_id not in kept) for token_id in strips}
    return strips


_LEFT_STRIPPED_PRE = ("jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert")
_LEFT_STRIPPED_MODELS = ("nomic-bert-moe", "jina-bert-v3")
_TEMPLATE_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_BUILDERS: Mapping[str, Callable[[Vocabulary, GGUFFile], _Parts]] = {
    "llama": _sentencepiece,
    "gpt2": _byte_pairs,
    "gemma4": _byte_pairs,
    "t5": _unigram,
    "bert": _wordpiece,
    "rwkv": _rwkv,
    "plamo2": _plamo,
}
