"""The common path from text to ids for vocabularies from GGUF: special tokens first, then each stretch between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from octavo.tokenizers.gguf.partition import Partition


class FragmentEncoder(Protocol):
    """Encodes text that holds no special tokens."""

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a stretch of text; `after_special`: nothing or a special token stands before it."""
        ...


@dataclass(frozen=True, slots=True)
class GGUFEncoder:
    """Encodes whole texts.

    Attributes:
        fragments: Encodes the stretches between special tokens.
        parsing: Splits at all special tokens.
        literal: Splits only at those that are read even where control tokens are letters (user-defined ones).
        before: Ids put before a text.
        after: Ids put after a text.
    """

    fragments: FragmentEncoder
    parsing: Partition
    literal: Partition
    before: Sequence[int]
    after: Sequence[int]

    def encode(self, text: str, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """Ids of `text`; see `Encoder.encode`."""
        ids = list(self.before) if add_special_tokens else []
        after_special = True
        for fragment in (self.parsing if parse_special else self.literal).split(text):
            if isinstance(fragment, int):
                ids.append(fragment)
            else:
                ids += self.fragments.encode(fragment, after_special)
            after_special = isinstance(fragment, int)
        return ids + list(self.after) if add_special_tokens else ids
