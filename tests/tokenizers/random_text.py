"""Random texts that look for trouble: scripts, spaces, digits, marks, emoji, control characters, spellings of tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_RANGES = {
    "latin": (0x61, 0x7A),
    "capital": (0x41, 0x5A),
    "latin1": (0xC0, 0xFF),
    "greek": (0x3B1, 0x3C9),
    "cyrillic": (0x410, 0x44F),
    "hebrew": (0x5D0, 0x5EA),
    "arabic": (0x627, 0x64A),
    "devanagari": (0x905, 0x939),
    "devanagari signs": (0x93E, 0x94C),
    "bengali": (0x9BE, 0x9C4),
    "thai": (0xE01, 0xE3A),
    "khmer": (0x1780, 0x17B3),
    "hangul": (0xAC00, 0xD7A3),
    "jamo": (0x1100, 0x1112),
    "hiragana": (0x3041, 0x3096),
    "katakana": (0x30A1, 0x30FA),
    "han": (0x4E00, 0x9FA5),
    "han extension": (0x20000, 0x2A6D6),
    "punctuation": (0x21, 0x2F),
    "more punctuation": (0x3A, 0x40),
    "general punctuation": (0x2010, 0x2027),
    "cjk punctuation": (0x3001, 0x3011),
    "full width": (0xFF01, 0xFF5E),
    "symbols": (0x2190, 0x21FF),
    "currency": (0x20A0, 0x20B5),
    "math letters": (0x1D400, 0x1D433),
    "marks": (0x300, 0x36F),
    "emoji": (0x1F600, 0x1F64F),
    "flags": (0x1F1E6, 0x1F1FF),
    "digits": (0x30, 0x39),
    "arabic digits": (0x660, 0x669),
    "roman numerals": (0x2160, 0x217F),
    "fractions": (0xBC, 0xBE),
    "control": (0x01, 0x1F),
    "latin1 control": (0x7F, 0x9F),
    "private": (0xE000, 0xE0FF),
}
_SPACES = [
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    " \n",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u2028",
    "\x85",
]
_PIECES = [
    "'s",
    "'LL",
    "'re",
    "don't",
    "we'Ve",
    "1234567",
    "3.14",
    "12:30",
    "http://a.b/c?d=e&f",
    "camelCase",
    "snake_case",
    "foo()",
    "{}\n",
    "//",
    "...",
    "🙂",
    "👩‍👩‍👧",
    "❤️",
    "e\u0301",
    "\u200b",
    "\u200d",
    "\ufeff",
    "\ufffd",
    "▁",
    "▁▁",
    "Ġ",
    "Ċ",
    "##ing",
    "<0x0A>",
    "<0xE2>",
    "ſ",
    "K",
    "ß",
    "İ",
]


def random_texts(seed: int, count: int, spellings: Sequence[str] = ()) -> Iterator[str]:
    """`count` texts, the same for the same seed; some hold `spellings` (of special tokens), whole or cut."""
    rng = random.Random(seed)
    for _ in range(count):
        yield "".join(_part(rng, spellings) for _ in range(rng.randrange(1, 12)))


def _part(rng: random.Random, spellings: Sequence[str]) -> str:
    kind = rng.random()
    if kind < 0.5:
        first, last = rng.choice(list(_RANGES.values()))
        return "".join(chr(rng.randint(first, last)) for _ in range(rng.randrange(1, 8)))
    if kind < 0.75:
        return rng.choice(_SPACES)
    if kind < 0.92 or not spellings:
        return rng.choice(_PIECES)
    text = rng.choice(spellings)
    return text if rng.random() < 0.7 else text[: rng.randrange(len(text))]
