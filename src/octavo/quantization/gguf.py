"""GGUF weights: blocks of small integers stay as they are, activations are quantised to match (llama.cpp's scheme)."""

from __future__ import annotations

from octavo.quantization.floating import FloatMethod


class GGUFMethod(FloatMethod):
    """`weight` in any of `ops.FORMATS`; the packed weight itself knows how it is multiplied."""
