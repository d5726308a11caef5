"""How a linear layer's weights are stored and multiplied: one method a file, found by module path."""

from octavo.quantization.awq import AWQMethod
from octavo.quantization.floating import FloatMethod
from octavo.quantization.gguf import GGUFMethod
from octavo.quantization.gptq import GPTQMethod
from octavo.quantization.method import LinearMethod, MethodResolver, StoredTensor, UniformResolver
from octavo.quantization.packed_int import PackedIntMethod
from octavo.quantization.rounding import RoundingMethod, RoundingResolver
from octavo.quantization.scaled import ScaleBlock, ScaledMethod
from octavo.quantization.stored import StoredMethod, StoredResolver

__all__ = [
    "AWQMethod",
    "FloatMethod",
    "GGUFMethod",
    "GPTQMethod",
    "LinearMethod",
    "MethodResolver",
    "PackedIntMethod",
    "RoundingMethod",
    "RoundingResolver",
    "ScaleBlock",
    "ScaledMethod",
    "StoredMethod",
    "StoredResolver",
    "StoredTensor",
    "UniformResolver",
]
