"""Several decode steps in one native call."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from octavo.ops import reference
from octavo.ops.dispatch import built_module
from octavo.ops.operands import address, require
from octavo.ops.program import Program, StepInputs


@dataclass(frozen=True, slots=True)
class DrawInputs:
    """How each of S sequences draws its tokens; parameters as in `sample`."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    uniforms: torch.Tensor | None
    """[steps, S] float64 in [0, 1); None: all are greedy."""
    stop_ids: torch.Tensor
    """[n] int64: the stop ids of all sequences, one after the other."""
    stop_starts: torch.Tensor
    """[S+1] int64: those of sequence s are `stop_ids[stop_starts[s]:stop_starts[s+1]]`."""


def decode(
    body: Program,
    head: Program,
    logits: torch.Tensor,
    inputs: StepInputs,
    draw: DrawInputs,
    block_size: int,
    steps: int,
) -> torch.Tensor:
    """Run up to `steps` decode steps of S sequences; a drawn token is the next step's input.

    Ends early after a step that drew a stop id, and before one whose logits cannot be sampled (NaN or infinite).

    Args:
        body: From token ids to hidden states.
        head: From hidden states to logits; its token ids are the rows it reads.
        logits: [R, V] float32: what `head` writes.
        inputs: The first step's, one row a sequence; overwritten as the steps go. Block tables must reach as far as
            the last step does.

    Returns:
        [steps done, S] int64 token ids.
    """
    seqs, vocab = inputs.seq_lens.shape[0], logits.shape[1]
    require(inputs.token_ids.shape[0] == seqs, "decode takes one row for each of {} sequences", seqs)
    rows = torch.arange(seqs)
    out = torch.empty(steps, seqs, dtype=torch.int64)
    uniforms = draw.uniforms
    log_min_p = reference.log_min_p(draw.min_p)
    done = built_module().decode(
        body.native,
        head.native,
        steps,
        seqs,
        block_size,
        *inputs.addresses(),
        inputs.group_addresses(),
        address("stop_ids", draw.stop_ids, torch.int64, (draw.stop_ids.shape[0],)),
        address("stop_starts", draw.stop_starts, torch.int64, (seqs + 1,)),
        rows.data_ptr(),
        logits.data_ptr(),
        vocab,
        address("temperature", draw.temperature, torch.float32, (seqs,)),
        address("top_k", draw.top_k, torch.int32, (seqs,)),
        address("top_p", draw.top_p, torch.float32, (seqs,)),
        log_min_p.data_ptr(),
        0 if uniforms is None else address("uniforms", uniforms, torch.float64, (steps, seqs)),
        out.data_ptr(),
    )
    return out[:done]
