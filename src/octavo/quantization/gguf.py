"""GGUF weights: blocks of small integers stay as they are, activations are quantised to match (llama.cpp's scheme)."""

from __future__ import annotations

from octavo import ops
from octavo.quantization.floating import FloatMethod

# Formats with a kernel of their own; the loader expands the others to float16.
NATIVE_FORMATS = frozenset(ops.FORMATS)


class GGUFMethod(FloatMethod):
    """`weight` in any of `NATIVE_FORMATS`; the packed weight itself knows how it is multiplied."""
