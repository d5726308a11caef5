"""GGUF weights: blocks of small integers stay as they are, activations are quantised to match (llama.cpp's scheme)."""

from __future__ import annotations

from octavo.quantization.floating import FloatMethod

# Block formats with a kernel of their own; the loader expands the others to float16.
NATIVE_FORMATS = frozenset({"f32", "bf16", "f16", "q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q6_k"})


class GGUFMethod(FloatMethod):
    """`weight` in any of `NATIVE_FORMATS`; the packed weight itself knows how it is multiplied."""
