"""A first run before the first request: code paths, thread pool and weights are touched, and a broken model fails early."""

from __future__ import annotations

import torch

from octavo.attention.metadata import AttentionMetadata, ForwardBatch, GroupMetadata
from octavo.lib.errors import CheckpointError
from octavo.worker.model_runner import ModelRunner

WARM_UP_TOKENS = 8


@torch.inference_mode()
def warm_up(runner: ModelRunner, num_tokens: int = WARM_UP_TOKENS) -> None:
    """Run a few tokens through the model without writing to any page.

    Raises:
        CheckpointError: the logits are not finite.
    """
    layout = runner.kv.layout
    pages = -(-num_tokens // layout.block_size)
    group = GroupMetadata(
        torch.zeros((1, pages), dtype=torch.int32), torch.full((num_tokens,), -1, dtype=torch.int64)
    )
    attention = AttentionMetadata(
        torch.tensor([0, num_tokens], dtype=torch.int32),
        torch.tensor([num_tokens], dtype=torch.int32),
        (group,) * len(layout.groups),
    )
    token_ids = torch.zeros(num_tokens, dtype=torch.int64)
    batch = ForwardBatch(token_ids, torch.arange(num_tokens), attention, runner.kv.bindings())
    logits = runner.model.compute_logits(runner.model.forward(batch), torch.tensor([num_tokens - 1]))
    if not bool(torch.isfinite(logits).all()):
        raise CheckpointError(
            "the model's logits are not finite numbers on a plain input: its weights are damaged"
        )
