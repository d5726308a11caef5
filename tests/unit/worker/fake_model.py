"""A model whose next token is a hash of exactly the tokens that its pages give back, so that any slip in tokens,
positions, pages or slots changes the answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from octavo.attention.metadata import ForwardBatch
from octavo.types.kv import KVGroup, KVLayout

VOCAB = 61
_PRIME = 65521
WINDOW = 20
LAYOUT = KVLayout(
    block_size=16,
    num_kv_heads=1,
    head_dim=2,
    dtype="float32",
    groups=(KVGroup((0, 2)), KVGroup((1,), window=WINDOW)),
)


def prefix_hash(tokens: Sequence[int]) -> int:
    return running_hashes(tokens)[-1]


def running_hashes(tokens: Sequence[int]) -> list[int]:
    """`prefix_hash` of every prefix."""
    return list(accumulate(tokens, lambda value, token: (value * 31 + token + 1) % _PRIME, initial=1))[1:]


def layer_hashes(tokens: Sequence[int]) -> list[int]:
    """What layers 0, 1 (windowed) and 2 see at the last token."""
    whole = prefix_hash(tokens)
    return [whole, prefix_hash(tokens[-WINDOW:]), whole]


def logits_of(hashes: torch.Tensor) -> torch.Tensor:
    """[R, 3] -> [R, VOCAB], all distinct enough that the best is clear."""
    columns = torch.arange(VOCAB, dtype=torch.float64)
    mixed = hashes.double() @ torch.tensor([[1.0], [3.0], [5.0]], dtype=torch.float64)
    return (((mixed + 1) * (columns + 3) ** 2) % 9973 / 1000).float()


def expected_next(tokens: Sequence[int]) -> int:
    return int(logits_of(torch.tensor([layer_hashes(tokens)])).argmax())


def expected_answer(prompt: Sequence[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(expected_next(tokens))
    return tokens[len(prompt) :]


class HashModel:
    """Stands for a decoder of three layers; `poison` is a token whose rows come out as NaN."""

    def __init__(self, poison: int = -1) -> None:
        self.poison = poison
        self.logit_rows: list[int] = []

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        hidden = torch.zeros(len(batch.token_ids), 3)
        for layer, binding in enumerate(batch.kv):
            self._write(batch, layer)
            window = LAYOUT.groups[binding.group].window
            hidden[:, layer] = torch.tensor([float(value) for value in self._read(batch, layer, window)])
        hidden[batch.token_ids == self.poison] = torch.nan
        return hidden

    def compute_logits(self, hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        self.logit_rows.append(len(rows))
        return logits_of(hidden[rows])

    def _write(self, batch: ForwardBatch, layer: int) -> None:
        binding = batch.kv[layer]
        slots = batch.attention.groups[binding.group].slot_mapping
        assert len(slots) == len(batch.token_ids)
        for token, slot in zip(batch.token_ids.tolist(), slots.tolist(), strict=True):
            if slot >= 0:
                block, offset = divmod(slot, LAYOUT.block_size)
                assert block > 0
                binding.v_cache[block, 0, offset, 0] = token
                binding.k_cache[block, 0, 1, offset] = token

    def _read(self, batch: ForwardBatch, layer: int, window: int) -> list[int]:
        binding = batch.kv[layer]
        starts = batch.attention.query_start.tolist()
        table = batch.attention.groups[binding.group].block_table
        hashes: list[int] = []
        for row, seq_len in enumerate(batch.attention.seq_lens.tolist()):
            first = seq_len - (starts[row + 1] - starts[row])
            assert batch.positions[starts[row] : starts[row + 1]].tolist() == list(range(first, seq_len))
            pages = table[row, : -(-seq_len // LAYOUT.block_size)].long()
            tokens = binding.v_cache[pages, 0, :, 0].flatten().int().tolist()[:seq_len]
            assert tokens == binding.k_cache[pages, 0, 1].flatten().int().tolist()[:seq_len]
            if window:
                hashes += [
                    prefix_hash(tokens[max(0, end - window) : end]) for end in range(first + 1, seq_len + 1)
                ]
            else:
                hashes += running_hashes(tokens)[first:]
        return hashes
