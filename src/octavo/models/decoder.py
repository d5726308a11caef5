"""A decoder built from its spec: the one forward loop for every family."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from octavo import ops
from octavo.attention.metadata import ForwardBatch
from octavo.layers.base import BuildContext, Layer, LayerList, RopeTables, Slot
from octavo.layers.embedding import EmbeddingLayer, build_head
from octavo.layers.linear import Linear, beside
from octavo.lib.errors import CheckpointError
from octavo.models.spec import DecoderSpec
from octavo.quantization import MethodResolver, StoredTensor
from octavo.weights.dequantize import to_float32
from octavo.weights.source import RawTensor


class Backbone(Layer):
    """From token ids to hidden states; named `model` as in Hugging Face checkpoints."""

    def __init__(self, spec: DecoderSpec, ropes: RopeTables) -> None:
        contexts = (BuildContext(spec.hidden_size, ropes, layer) for layer in range(spec.num_layers))
        self.embed_tokens = EmbeddingLayer(spec.embedding, spec.vocab_size, spec.hidden_size)
        self.layers = LayerList([block.build(c) for block, c in zip(spec.layers, contexts, strict=True)])
        self.norm = spec.norm.build(spec.hidden_size)

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        x = self.embed_tokens.forward(batch.token_ids)
        if batch.embeds is not None:
            x[batch.embeds.rows] = batch.embeds.values
        for layer in self.layers.items:
            x = layer.forward(x, batch)
        return self.norm.forward(x)


class Decoder(Layer):
    """A causal language model.

    Args:
        spec: Its parts.
        resolver: The quantisation method of each linear layer and of the embedding.
    """

    def __init__(self, spec: DecoderSpec, resolver: MethodResolver) -> None:
        self.spec = spec
        self._ropes = RopeTables(spec.max_position)
        self.model = Backbone(spec, self._ropes)
        # A classifier's matrix is called `score`, beside this path: see `Linear.sources`.
        self.lm_head = build_head(spec.head, self.model.embed_tokens, spec.vocab_size, spec.hidden_size)
        for path, layer in self.walk():
            if isinstance(layer, Linear):
                layer.methods = {name: resolver.resolve(beside(path, name)) for name in layer.sources}
            elif isinstance(layer, EmbeddingLayer):
                layer.method = resolver.resolve(path)
        self._slots: dict[str, Slot] = dict(slot for path, layer in self.walk() for slot in layer.slots(path))

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Hidden states [M, H] float32 after the final norm; writes the step's keys and values to their pages."""
        self.reach(int(batch.positions.max()))
        return self.hidden_states(batch)

    def reach(self, last_position: int) -> None:
        """Make the tables of cosines and sines long enough for a position."""
        self._ropes.reach(last_position)

    def hidden_states(self, batch: ForwardBatch) -> torch.Tensor:
        """`forward` for positions that were reached before: nothing but ops, so it can be recorded."""
        return self.model.forward(batch)

    def compute_logits(self, hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Of rows [R] of the hidden states [M, H]: logits [R, V] float32, soft-capped where the model says so.

        What stands in the place of a head gives its own columns: classes [R, labels], or the rows as they are [R, H].
        """
        return self.lm_head.forward(ops.select_rows(hidden, rows))

    @property
    def weight_bytes(self) -> int:
        """Bytes that the weights take in memory."""
        return sum(layer.nbytes for _, layer in self.walk())

    def expected(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of every tensor that must be given (see `octavo.weights.loader`)."""
        return {name: slot.shape for name, slot in self._slots.items()}

    def assign(self, name: str, raw: RawTensor) -> None:
        """Take the tensor for `name`.

        Raises:
            CheckpointError: it holds what its layer cannot take; names the tensor.
        """
        try:
            self._slots[name].assign(stored_tensor(raw))
        except ValueError as error:
            raise CheckpointError(str(error), file=raw.file, tensor=raw.name) from error


def stored_tensor(raw: RawTensor) -> StoredTensor:
    """A tensor as it is; but what is one row of blocks becomes float32: norms and biases are used as such."""
    if raw.dtype.is_quantized and len(raw.shape) == 1:
        return StoredTensor(to_float32(raw), "f32")
    return StoredTensor(raw.data, str(raw.dtype))
