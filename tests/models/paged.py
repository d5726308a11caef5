"""Runs a decoder over pages as the worker does, with page tables shuffled so that a wrong address cannot go unseen."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from octavo import ops
from octavo.attention.metadata import AttentionMetadata, ForwardBatch, GroupMetadata, KVBinding
from octavo.models.decoder import Decoder
from octavo.worker.model_runner import Model
from octavo.worker.recorded_model import RecordedModel

BLOCK_SIZE = 16


class PagedRunner:
    """Sequences of one decoder, each at its own length, fed any number of tokens at a time.

    Layers of one window form a page group; every group has tables of its own.
    """

    def __init__(
        self,
        decoder: Decoder,
        sequences: int = 1,
        max_tokens: int = 256,
        seed: int = 0,
        *,
        recorded: bool = False,
    ) -> None:
        self.model: Model = decoder
        self.lengths = [0] * sequences
        generator = torch.Generator().manual_seed(seed)
        layers = decoder.spec.kv_layers()
        windows = sorted({layer.window for layer in layers})
        pages = -(-max_tokens // BLOCK_SIZE)
        blocks = sequences * pages + 1
        self._tables = [
            (torch.randperm(blocks - 1, generator=generator) + 1).int().view(sequences, pages)
            for _ in windows
        ]
        self._kv = [
            KVBinding(
                *(
                    torch.zeros(s)
                    for s in ops.kv_cache_shapes(blocks, layer.num_kv_heads, layer.head_dim, BLOCK_SIZE)
                ),
                windows.index(layer.window),
            )
            for layer in layers
        ]
        if recorded:
            rows = sequences * max_tokens
            with torch.inference_mode():
                self.model = RecordedModel(
                    decoder, self._kv, len(windows), max_tokens=rows, max_logits_rows=rows
                )

    def feed(self, tokens: dict[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        """One step: append these tokens to these sequences; logits [n, vocab] after each token."""
        positions = torch.cat(
            [torch.arange(self.lengths[s], self.lengths[s] + len(ids)) for s, ids in tokens.items()]
        )
        rows = torch.tensor([s for s, ids in tokens.items() for _ in ids])
        for s, ids in tokens.items():
            self.lengths[s] += len(ids)
        order = list(tokens)
        counts = torch.tensor([0, *(len(ids) for ids in tokens.values())])
        attention = AttentionMetadata(
            query_start=counts.cumsum(0).int(),
            seq_lens=torch.tensor([self.lengths[s] for s in order], dtype=torch.int32),
            groups=tuple(
                GroupMetadata(
                    block_table=table[order].contiguous(),
                    slot_mapping=table[rows, positions // BLOCK_SIZE].long() * BLOCK_SIZE
                    + positions % BLOCK_SIZE,
                )
                for table in self._tables
            ),
        )
        ids = torch.tensor([token for group in tokens.values() for token in group])
        with torch.inference_mode():
            hidden = self.model.forward(ForwardBatch(ids, positions, attention, self._kv))
            logits = self.model.compute_logits(hidden, torch.arange(len(ids))).clone()
        return dict(zip(order, logits.split([len(group) for group in tokens.values()]), strict=True))


def generate(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    chunk: int = 0,
    *,
    recorded: bool = False,
) -> tuple[list[list[int]], list[torch.Tensor]]:
    """Greedy answers to all prompts in one batch.

    Args:
        chunk: Prompt tokens of a sequence per step; 0: the whole prompt at once. Short prompts start to decode while
            long ones are still prefilling.
        recorded: Replay a step program instead of walking through the model.

    Returns:
        For each prompt its tokens with the answer, and the logits after every token that was fed.
    """
    runner = PagedRunner(decoder, len(prompts), max(map(len, prompts)) + new_tokens, recorded=recorded)
    tokens = [list(prompt) for prompt in prompts]
    goals = [len(prompt) + new_tokens for prompt in prompts]
    logits: list[list[torch.Tensor]] = [[] for _ in prompts]
    while pending := [s for s in range(len(prompts)) if len(tokens[s]) < goals[s]]:
        step = {s: tokens[s][runner.lengths[s] :][: chunk or None] for s in pending}
        for s, rows in runner.feed(step).items():
            logits[s].append(rows)
            if runner.lengths[s] == len(tokens[s]):
                tokens[s].append(int(ops.argmax(rows[-1:])))
    return tokens, [torch.cat(parts) for parts in logits]
