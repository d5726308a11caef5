"""A strict reader of GGUF (versions 2 and 3, little-endian, split files): memory-mapped, no torch, no numpy.

The format is described in ggml's `docs/gguf.md`. A file must obey the rules of ggml's own reader, and bounds that
keep a damaged count from costing time or memory.
"""

from octavo.lib.gguf.file import GGUFFile
from octavo.lib.gguf.layout import GGMLType, ValueType
from octavo.lib.gguf.tensors import GGUFTensor

__all__ = ["GGMLType", "GGUFFile", "GGUFTensor", "ValueType"]
