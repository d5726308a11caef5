"""How a text is split into words before byte-pair merging, by the name in `tokenizer.ggml.pre`.

The names, and the vocabularies that share a rule, are those of llama.cpp's `llama-vocab.cpp`. Where it notes the
pattern of the model's own `tokenizer.json`, that pattern is used, since the model was trained with it; elsewhere its
adapted one. Patterns apply in order: each splits what the ones before left, and what none matches is a word too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tokenizers import Regex, pre_tokenizers


@dataclass(frozen=True, slots=True)
class DigitGroups:
    """Splits runs of digits into threes from the right (1234567: 1, 234, 567), in time linear in the text.

    Attributes:
        run: Pattern of a run.
    """

    run: str

    def split(self, text: str) -> list[str]:
        """The pieces of `text` in order; what is not a run stays whole."""
        splitter = pre_tokenizers.Split(Regex(self.run), "removed", invert=False)
        gaps = [span for _, span in splitter.pre_tokenize_str(text)]
        pieces: list[str] = []
        end = 0
        for start, stop in gaps:
            pieces += [*_threes(text[end:start]), text[start:stop]]
            end = stop
        return [piece for piece in [*pieces, *_threes(text[end:])] if piece]


def _threes(run: str) -> Iterator[str]:
    head = len(run) % 3
    if head:
        yield run[:head]
    for start in range(head, len(run), 3):
        yield run[start : start + 3]


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way to split a text into words.

    Attributes:
        patterns: Regular expressions (Oniguruma), applied in order.
        ignore_merges: A word that is itself a token needs no merges.
        add_bos: The model expects BOS unless the file says otherwise.
        digit_groups: Splits runs of digits before any pattern.
        byte_level: Bytes are written in GPT-2's alphabet; otherwise spaces are U+2581 and bytes `<0x0A>`.
        whole_newlines: Without the alphabet: a run of newlines that is a token needs no merges.
        split_spaces: Without the alphabet: each space starts a word, and a line begins with one.
        force_bos: BOS is added whatever the file says.
    """

    patterns: tuple[str, ...] = ()
    ignore_merges: bool = False
    add_bos: bool = False
    digit_groups: DigitGroups | None = None
    byte_level: bool = True
    whole_newlines: bool = False
    split_spaces: bool = False
    force_bos: bool = False

    def rust(self) -> pre_tokenizers.PreTokenizer:
        """The Rust library's form of a byte-level one."""
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence(
            [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )


_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s+(?!\S)|\s+"
_LINES = r"\s*[\r\n]+|" + _SPACES
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+|"
# U+4E00-U+9FA5, U+0800-U+4E00, Hangul: the second range begins before the first ends, as in the original.
_HAN_HANGUL = "[一-龥ࠀ-一가-퟿]+"
_CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
_PUNCTUATED = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + _SPACES
_LLAMA3 = f"{_ENDINGS}|{_WORD}" + r"\p{N}{1,3}|" + _SYMBOLS + _LINES
_QWEN2 = f"{_ENDINGS}|{_WORD}" + r"\p{N}|" + _SYMBOLS + _LINES


def _cased(ending: str, numbers: str, symbols: str, han: bool = True) -> str:
    """Words that break before a capital, as in o200k; `han` tells whether they may hold Han letters."""
    only = "" if han else r"&&[^\p{Han}]"
    start = r"[^\r\n\p{L}\p{N}]?"
    upper, lower = (
        rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{only}]",
        rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{only}]",
    )
    words = f"{start}{upper}*{lower}+{ending}|{start}{upper}+{lower}*{ending}"
    return f"{words}|{numbers}|{symbols}|{_LINES}"


_SLASHED = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_O200K = _cased(_ENDINGS + "?", r"\p{N}{1,3}", _SLASHED)
_LETTERS = (
    r"\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
    "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
    "]+"
)
_ASIAN = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)

_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
_PLAIN = PreTokenizer((_GPT2,))
_SINGLE_DIGITS = PreTokenizer((r"\p{N}", _GPT2))
_LLAMA = PreTokenizer((_LLAMA3,))
_QWEN = PreTokenizer((_QWEN2,))
_DEEPSEEK = PreTokenizer((r"\p{N}{1,3}", _CJK, rf"{_PUNCTUATED}[\r\n]*|{_LINES}"))
_CASED = PreTokenizer((_O200K,))
_BLOOM = PreTokenizer((r" ?[^(\s|.,!?…。，、।۔،)]+",))
_BAILING = PreTokenizer(
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
        + _SPACES,
    )
)
_MARKED = PreTokenizer(byte_level=False)

_TABLE: list[tuple[PreTokenizer, str]] = [
    (_DEFAULT, "default"),
    (
        _PLAIN,
        (
            "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jina-v1-en "
            "jina-v2-code roberta-bpe mpt olmo jais trillion granite-docling exaone4"
        ),
    ),
    (_SINGLE_DIGITS, "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2"),
    (
        replace(_LLAMA, ignore_merges=True, add_bos=True),
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    ),
    (_LLAMA, "dbrx smaug-bpe chatglm-bpe"),
    (replace(_LLAMA, ignore_merges=True), "glm4 glm5"),
    (_QWEN, "qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2"),
    (_DEEPSEEK, "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    (_CASED, "gpt-4o llama4 kanana2 talkie minimax-m2"),
    (replace(_CASED, ignore_merges=True), "granite-embed-multi-97m"),
    (_BLOOM, "poro-chat bloom gpt3-finnish"),
    (replace(_BLOOM, patterns=(*_BLOOM.patterns, r"\p{N}")), "viking"),
    (_BAILING, "bailingmoe bailingmoe2 llada-moe"),
    (replace(_MARKED, whole_newlines=True, force_bos=True), "gemma4 granite-embed-multi-311m"),
    (replace(_MARKED, whole_newlines=True, split_spaces=True), "mmbert"),
    (_MARKED, "sarvam-moe"),
    (
        PreTokenizer(
            (r"\p{N}{1,3}", f"{_ENDINGS}|{_WORD}" + r"\p{N}+|" + _SYMBOLS + _LINES), ignore_merges=True
        ),
        "minicpm5",
    ),
    (
        PreTokenizer(
            (
                f"{_ENDINGS}|{_WORD}" + r"\p{N}{1,3}|" + _SYMBOLS + r"\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|"
                r"\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
            )
        ),
        "jais-2",
    ),
    (
        PreTokenizer(
            (r"[\r\n]", _LETTERS, "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", _HAN_HANGUL, r"\p{N}+")
        ),
        "deepseek-llm",
    ),
    (PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_HANGUL, r"\p{N}")), "deepseek-coder"),
    (
        PreTokenizer(
            (r"\p{N}{1,3}", _CJK, rf"{_PUNCTUATED}|[\r\n]|{_SPACES}", r"\p{N}"),
        ),
        "spark2_5",
    ),
    (
        PreTokenizer(
            (
                "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+",
                _cased(_ENDINGS + "?", r"\p{N}", _SLASHED),
            ),
            ignore_merges=True,
        ),
        "youtu",
    ),
    (PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")), "falcon"),
    (
        PreTokenizer(
            (_ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _LINES,)
        ),
        "qwen35",
    ),
    (PreTokenizer((_cased("", r"\p{N}", _SLASHED),), ignore_merges=True, add_bos=True), "tekken"),
    (
        PreTokenizer(
            (
                "<sentinel:[0-9]+>",
                "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                r"([\t\n]|    |  )",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                _GPT2,
            ),
            add_bos=True,
        ),
        "chameleon",
    ),
    (PreTokenizer((_O200K,), digit_groups=DigitGroups(r"(?<!\d)\d++\b")), "tiny_aya cohere2moe"),
    (
        PreTokenizer(
            (r"\p{Han}+|" + _cased(_ENDINGS + "?", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", han=False),)
        ),
        "kimi-k2",
    ),
    (
        PreTokenizer(
            (r"\p{N}+", r"(?=(\d{3})+(?!\d))"), digit_groups=DigitGroups(r"(?<!\p{N})\d++(?!\p{N})")
        ),
        "superbpe",
    ),
    (
        PreTokenizer(
            (f"{_ENDINGS}|{_WORD}" + r"\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + _LINES,),
        ),
        "seed-coder",
    ),
    (PreTokenizer((_WORD + r"\p{N}|" + _SYMBOLS + _LINES,)), "ufakzeka"),
    (
        PreTokenizer((_ASIAN, rf"{_PUNCTUATED}[\r\n]*|{_LINES}"), digit_groups=DigitGroups(r"\p{N}+")),
        "afmoe",
    ),
    (PreTokenizer((r"[^\n]+|[\n]+", _QWEN2)), "laguna"),
    (
        PreTokenizer(
            (
                _ENDINGS
                + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|"
                + _SPACES,
            )
        ),
        "exaone-moe",
    ),
]
PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: rule for rule, names in _TABLE for name in names.split()}
