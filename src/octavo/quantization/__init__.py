"""How a linear layer's weights are stored and multiplied: one method a file, found by module path."""

from octavo.quantization.floating import FloatMethod
from octavo.quantization.gguf import GGUFMethod
from octavo.quantization.method import LinearMethod, MethodResolver, StoredTensor, UniformResolver
from octavo.quantization.rounding import RoundingMethod, RoundingResolver

__all__ = [
    "FloatMethod",
    "GGUFMethod",
    "LinearMethod",
    "MethodResolver",
    "RoundingMethod",
    "RoundingResolver",
    "StoredTensor",
    "UniformResolver",
]
