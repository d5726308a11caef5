"""Parts of a decoder as frozen values: what a family file says, what a spec prints. No torch in here.

A part knows its numbers and builds its layer (`build`), which is where torch comes in; the import is inside the
method so that specs can be made, compared and counted without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from octavo.types.kv import KVLayer

if TYPE_CHECKING:
    from octavo.layers.base import BuildContext, SequenceLayer, TokenLayer


@dataclass(frozen=True)
class RMSNorm:
    """x / sqrt(mean(x^2) + eps) * (weight + offset). Gemma stores weight - 1: its offset is 1."""

    eps: float
    offset: float = 0.0

    def build(self, size: int) -> TokenLayer:
        from octavo.layers.norm import RMSNormLayer

        return RMSNormLayer(size, self.eps, self.offset)


@dataclass(frozen=True)
class NoScaling:
    """Rotary frequencies as trained."""


@dataclass(frozen=True)
class LinearScaling:
    """Position interpolation (Chen et al. 2023, arXiv 2306.15595): every frequency divided by `factor`."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1: low frequencies divided by `factor`, high ones kept, a ramp between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True)
class FrequencyFactors:
    """Each frequency divided by its own factor: how GGUF files carry Llama 3 scaling (`rope_freqs.weight`)."""

    factors: tuple[float, ...]


@dataclass(frozen=True)
class LongRope:
    """LongRoPE (Ding et al. 2024, arXiv 2402.13753): a factor for each frequency, one set for short contexts, one for long.

    The set is chosen once, by the longest position the engine may see, so that a token's logits never depend on
    how long its sequence is going to be.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original_max_position: int
    attention_factor: float
    """cos and sin are multiplied by it."""


RopeScaling = NoScaling | LinearScaling | Llama3Scaling | FrequencyFactors | LongRope


@dataclass(frozen=True)
class Rope:
    """Rotary positions (Su et al. 2021, arXiv 2104.09864) on the first `rot_dim` dimensions, halves rotated together."""

    theta: float
    rot_dim: int
    scaling: RopeScaling = NoScaling()


@dataclass(frozen=True)
class NoPE:
    """No positions at all: the causal mask alone orders the tokens (Kazemnejad et al. 2023, arXiv 2305.19466)."""


@dataclass(frozen=True)
class Attention:
    """Causal attention with grouped key-value heads; what its fields say is all that differs between families."""

    heads: int
    kv_heads: int
    head_dim: int
    position: Rope | NoPE
    sources: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Names in the checkpoint of what is fused here, stacked along the rows in this order."""
    bias: bool = False
    out_bias: bool = False
    qk_norm: RMSNorm | None = None
    """Of queries and keys before the rotation: over each head's own dimensions, or all heads together."""
    norm_heads_together: bool = False
    window: int = 0
    """Sliding window in tokens, the token itself included; 0: no limit."""
    softcap: float = 0.0
    """Scores become softcap * tanh(scores / softcap); 0: not."""
    scale: float | None = None
    """Factor on the scores; None: 1 / sqrt(head_dim)."""

    def kv_layer(self) -> KVLayer:
        """What this mixer keeps for each token."""
        return KVLayer(num_kv_heads=self.kv_heads, head_dim=self.head_dim, window=self.window)

    def build(self, context: BuildContext) -> SequenceLayer:
        from octavo.layers.attention import AttentionLayer

        return AttentionLayer(self, context)


@dataclass(frozen=True)
class GatedMLP:
    """down(act(gate(x)) * up(x)) (Shazeer 2020, arXiv 2002.05202)."""

    intermediate: int
    act: str
    sources: tuple[str, ...] = ("gate_proj", "up_proj")
    bias: bool = False

    def build(self, context: BuildContext) -> TokenLayer:
        from octavo.layers.mlp import GatedMLPLayer

        return GatedMLPLayer(self, context)


@dataclass(frozen=True)
class MoE:
    """A mixture of experts (Shazeer et al. 2017, arXiv 1701.06538): each token goes through `top_k` of them.

    A linear router scores the experts; the outputs of the best are summed, weighted by the softmax of their scores.
    """

    experts: int
    top_k: int
    intermediate: int
    """Of each expert, a gated feed-forward."""
    act: str
    renormalise: bool
    """Whether the weights of the chosen experts are divided by their sum."""
    shared: int = 0
    """Width of one more expert that every token takes, weighted by the sigmoid of a score of its own; 0: there is none."""

    def build(self, context: BuildContext) -> TokenLayer:
        from octavo.layers.moe import MoELayer

        return MoELayer(self, context)


@dataclass(frozen=True)
class Embedding:
    """Token vectors, multiplied by `scale`."""

    scale: float = 1.0


@dataclass(frozen=True)
class Head:
    """From hidden states to logits. Tied: the embedding's own matrix is read, and stored once."""

    tied: bool
    softcap: float = 0.0


@dataclass(frozen=True)
class Classifier:
    """In the place of a head: a number for each class, by a matrix of its own (`score.weight`)."""

    labels: int


@dataclass(frozen=True)
class NoHead:
    """In the place of a head: hidden states as they are, of a model that is only pooled."""


class Mixer(Protocol):
    """A part that mixes tokens."""

    def kv_layer(self) -> KVLayer: ...

    def build(self, context: BuildContext) -> SequenceLayer: ...


class FFN(Protocol):
    """A part that works on each token alone."""

    def build(self, context: BuildContext) -> TokenLayer: ...


@dataclass(frozen=True)
class PreNorm:
    """Llama, Qwen, Mistral, Phi-3.

    x ─┬─ input_layernorm ─ mixer ─ (+) ─┬─ post_attention_layernorm ─ ffn ─ (+) ─▶
       └──────────────────────────────┘  └────────────────────────────────┘
    """

    mixer: Mixer
    ffn: FFN
    norm: RMSNorm

    def build(self, context: BuildContext) -> SequenceLayer:
        from octavo.layers.wiring import PreNormLayer

        return PreNormLayer(self, context)


@dataclass(frozen=True)
class Sandwich:
    """Gemma 2 and 3: a norm before and after each half.

    x ─┬─ input_layernorm ─ mixer ─ post_attention_layernorm ─ (+) ─┐
       └─────────────────────────────────────────────────────────┘  │
       ┌────────────────────────────────────────────────────────────┘
       ├─ pre_feedforward_layernorm ─ ffn ─ post_feedforward_layernorm ─ (+) ─▶
       └──────────────────────────────────────────────────────────────┘
    """

    mixer: Mixer
    ffn: FFN
    norm: RMSNorm

    def build(self, context: BuildContext) -> SequenceLayer:
        from octavo.layers.wiring import SandwichLayer

        return SandwichLayer(self, context)


Block = PreNorm | Sandwich
