"""What llama.cpp makes of 5,000 random texts: kept as short hashes, so that the file stays small.

`python -m tests.tokenizers.reference_ids PROGRAM MODEL.gguf NAME` writes a file anew, with PROGRAM built from
`llama_tokenize.cpp`.
"""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.tokenizers import Tokenizer, load_tokenizer
from tests.tokenizers.random_text import random_texts

FOLDER = Path(__file__).parent / "reference"
COUNT = 5000
SEED = 20261201
_DIGITS = 4
_WHOLE = 60  # this many texts are kept with their ids, to be read


@dataclass(frozen=True)
class Reference:
    """One file.

    Attributes:
        texts: SHA-256 of the texts, to notice that they are others.
        ids: For control tokens read (True) and not: the hash of the ids of each text.
        examples: The first texts with their ids, control tokens read.
    """

    texts: str
    ids: dict[bool, list[str]]
    examples: list[tuple[str, list[int]]]


def texts_for(tokenizer: Tokenizer) -> list[str]:
    """The texts for a vocabulary: some hold spellings of its control tokens."""
    special = [tokenizer.token_text(token_id) for token_id in sorted(tokenizer.special_ids)[:40]]
    return list(random_texts(SEED, COUNT, special))


def hash_texts(texts: Iterable[str]) -> str:
    """SHA-256 of texts."""
    return hashlib.sha256("\x00\x00".join(texts).encode("utf-8")).hexdigest()


def hash_ids(ids: Sequence[int]) -> str:
    """A short hash of ids."""
    return hashlib.sha256(" ".join(map(str, ids)).encode("ascii")).hexdigest()[:_DIGITS]


def read_reference(name: str) -> Reference:
    """The file of that name."""
    data = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    hashes = {
        parse: [text[at : at + _DIGITS] for at in range(0, len(text), _DIGITS)]
        for parse, text in ((True, data["parsed"]), (False, data["literal"]))
    }
    return Reference(data["texts"], hashes, [(text, ids) for text, ids in data["examples"]])


def write_reference(program: str, model: str, name: str) -> None:
    """Ask llama.cpp and write the file of that name."""
    texts = texts_for(load_tokenizer(model))
    parsed, literal = (_ask(program, model, texts, parse) for parse in (True, False))
    data = {
        "source": "llama.cpp (MIT licence), llama_tokenize(add_special=true)",
        "texts": hash_texts(texts),
        "parsed": "".join(map(hash_ids, parsed)),
        "literal": "".join(map(hash_ids, literal)),
        "examples": list(zip(texts, parsed, strict=True))[:_WHOLE],
    }
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(data, ensure_ascii=True) + "\n", encoding="utf-8")


def _ask(program: str, model: str, texts: Sequence[str], parse: bool) -> list[list[int]]:
    encoded = [text.encode("utf-8") for text in texts]
    stream = b"".join(struct.pack("<I", len(data)) + data for data in encoded)
    run = subprocess.run(
        [program, model, "1", str(int(parse))], input=stream, capture_output=True, check=True
    )
    lines = run.stdout.decode("ascii").splitlines()
    assert len(lines) == len(texts)
    return [[int(token) for token in line.split()] for line in lines]


if __name__ == "__main__":
    write_reference(*sys.argv[1:4])
