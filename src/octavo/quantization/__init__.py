"""How a linear layer's weights are stored and multiplied: one method a file, found by module path."""

from octavo.quantization.floating import FloatMethod
from octavo.quantization.gguf import GGUFMethod
from octavo.quantization.method import LinearMethod, MethodResolver, StoredTensor, UniformResolver

__all__ = ["FloatMethod", "GGUFMethod", "LinearMethod", "MethodResolver", "StoredTensor", "UniformResolver"]
