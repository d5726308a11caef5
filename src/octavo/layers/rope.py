"""Tables of cosines and sines, computed in float32 by the formulas of `transformers` (`modeling_rope_utils.py`)."""

from __future__ import annotations

import math

import torch

from octavo import ops
from octavo.layers.parts import FrequencyFactors, LinearScaling, Llama3Scaling, LongRope, Rope
from octavo.lib.errors import InvalidRequestError

_ROWS_AT_A_TIME = 1024


class RopeTable:
    """cos | sin of position times frequency, [max_position, rot_dim]; rows are filled when first needed.

    Memory that is not filled is not resident, so a long limit costs nothing to those who do not use it.
    """

    def __init__(self, rope: Rope, max_position: int) -> None:
        self._frequencies, self._magnitude = frequencies(rope, max_position)
        self._filled = 0
        self.cos_sin = torch.empty(max_position, rope.rot_dim)

    def reach(self, last_position: int) -> None:
        """Fill the rows up to and including `last_position`.

        Raises:
            InvalidRequestError: it is beyond the model's last position.
        """
        if last_position < self._filled:
            return
        limit = self.cos_sin.shape[0]
        if last_position >= limit:
            raise InvalidRequestError(f"position {last_position} is beyond the model's {limit} positions")
        end = min(limit, (last_position // _ROWS_AT_A_TIME + 1) * _ROWS_AT_A_TIME)
        positions = torch.arange(self._filled, end, dtype=torch.float32)
        angles = positions[:, None] * self._frequencies
        self.cos_sin[self._filled : end] = torch.cat((angles.cos(), angles.sin()), dim=1) * self._magnitude
        self._filled = end

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> None:
        """Rotate x [M, heads, head_dim] in place."""
        ops.rope(x, positions, self.cos_sin)


class NoRotation:
    """The table of layers without positions."""

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> None:
        """Leave x as it is."""


def frequencies(rope: Rope, max_position: int) -> tuple[torch.Tensor, float]:
    """Angle per position of each rotated pair [rot_dim / 2], and the factor on cosines and sines."""
    exponents = torch.arange(0, rope.rot_dim, 2, dtype=torch.float32) / rope.rot_dim
    powers = rope.theta**exponents
    scaling = rope.scaling
    if isinstance(scaling, LinearScaling):
        return 1.0 / powers / scaling.factor, 1.0
    if isinstance(scaling, Llama3Scaling):
        return _llama3(1.0 / powers, scaling), 1.0
    if isinstance(scaling, FrequencyFactors):
        return 1.0 / powers / torch.tensor(scaling.factors), 1.0
    if isinstance(scaling, LongRope):
        factors = scaling.long if max_position > scaling.original_max_position else scaling.short
        return 1.0 / (torch.tensor(factors) * powers), scaling.attention_factor
    return 1.0 / powers, 1.0


def _llama3(frequency: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    """Wavelengths beyond the original context are stretched by `factor`, short ones kept, those between blended."""
    wavelength = 2 * math.pi / frequency
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    rotations = scaling.original_max_position / wavelength
    blend = ((rotations - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - blend) * frequency / scaling.factor + blend * frequency
