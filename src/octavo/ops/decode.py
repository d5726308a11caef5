"""Several decode steps in one native call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.ops import reference
from octavo.ops.dispatch import built_module
from octavo.ops.operands import address, require
from octavo.ops.program import Program, StepInputs


@dataclass(frozen=True)
class DrawInputs:
    """How each of S sequences draws its tokens; parameters as in `sample`. Serves any number of calls."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    stop_ids: torch.Tensor
    """[n] int64: the stop ids of all sequences, one after the other."""
    stop_starts: torch.Tensor
    """[S+1] int64: those of sequence s are `stop_ids[stop_starts[s]:stop_starts[s+1]]`."""

    @cached_property
    def rows(self) -> torch.Tensor:
        """[S] int64: 0, 1, 2, ..."""
        return torch.arange(self.num_seqs)

    @cached_property
    def log_min_p(self) -> torch.Tensor:
        """[S] float32: what the kernel compares with."""
        return reference.log_min_p(self.min_p)

    @cached_property
    def all_greedy(self) -> bool:
        """Whether no sequence needs a number to draw with."""
        return not self.temperature.any()

    @property
    def num_seqs(self) -> int:
        """S."""
        return self.temperature.shape[0]

    @cached_property
    def stop_addresses(self) -> tuple[int, int]:
        """Of the stop ids and where they start, once types and shapes are checked."""
        return (
            address("stop_ids", self.stop_ids, torch.int64, (self.stop_ids.shape[0],)),
            address("stop_starts", self.stop_starts, torch.int64, (self.num_seqs + 1,)),
        )

    @cached_property
    def parameter_addresses(self) -> tuple[int, int, int, int]:
        """Of temperature, top_k, top_p and log_min_p, once types and shapes are checked."""
        shape = (self.num_seqs,)
        return (
            address("temperature", self.temperature, torch.float32, shape),
            address("top_k", self.top_k, torch.int32, shape),
            address("top_p", self.top_p, torch.float32, shape),
            address("min_p", self.log_min_p, torch.float32, shape),
        )


def decode(
    body: Program,
    head: Program,
    logits: torch.Tensor,
    inputs: StepInputs,
    draw: DrawInputs,
    uniforms: torch.Tensor | None,
    block_size: int,
    steps: int,
) -> NDArray[np.int64]:
    """Run up to `steps` decode steps of S sequences; a drawn token is the next step's input.

    Ends early after a step that drew a stop id, and before one whose logits cannot be sampled (NaN or infinite).

    Args:
        body: From token ids to hidden states.
        head: From hidden states to logits; its token ids are the rows it reads.
        logits: [R, V] float32: what `head` writes.
        inputs: The first step's, one row a sequence; overwritten as the steps go. Block tables must reach as far as
            the last step does.
        uniforms: [steps, S] float64 in [0, 1); None: all are greedy.

    Returns:
        [steps done, S] int64 token ids.
    """
    seqs, vocab = inputs.seq_lens.shape[0], logits.shape[1]
    require(inputs.token_ids.shape[0] == seqs, "decode takes one row for each of {} sequences", seqs)
    require(draw.num_seqs == seqs, "{} sequences cannot draw like {}", seqs, draw.num_seqs)
    out = np.empty((steps, seqs), np.int64)  # numpy: a torch operation this small costs several times more
    done = built_module().decode(
        body.native,
        head.native,
        steps,
        seqs,
        block_size,
        *inputs.addresses,
        inputs.group_addresses,
        *draw.stop_addresses,
        draw.rows.data_ptr(),
        logits.data_ptr(),
        vocab,
        *draw.parameter_addresses,
        0 if uniforms is None else address("uniforms", uniforms, torch.float64, (steps, seqs)),
        out.ctypes.data,
    )
    return out[:done]
