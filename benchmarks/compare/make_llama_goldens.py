"""Make the golden files of tests/golden from llama.cpp (tests/golden/README.md says what is in them and why).

    python benchmarks/compare/make_llama_goldens.py --source LLAMA_CPP --bin BUILD/bin --model MODEL.gguf --name smollm2-q4_1

Needs a built llama.cpp (libllama and llama-perplexity), g++ and the `gguf` package. Takes some minutes a model.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
NUM_TOKENS = 32
CONTEXT = 512
# What is compared is arithmetic on weights and activations, so the reference keeps its cache in float32 too.
PERPLEXITY_FLAGS = [
    "-c",
    str(CONTEXT),
    "-b",
    str(CONTEXT),
    "-fa",
    "off",
    "-ctk",
    "f32",
    "-ctv",
    "f32",
    "-t",
    "1",
]


def build(source: Path, binaries: Path, target: Path) -> None:
    command = ["g++", "-std=c++17", "-O2", f"-I{source / 'include'}", f"-I{source / 'ggml/include'}"]
    command += [str(Path(__file__).with_name("llama_goldens.cpp")), "-o", str(target), f"-L{binaries}"]
    command += ["-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{binaries}"]
    subprocess.run(command, check=True)


def expand(model: Path, target: Path) -> None:
    """The same model with every weight in float32: without rounding of activations its answers are well defined."""
    reader = gguf.GGUFReader(model)
    architecture = reader.get_field("general.architecture")
    assert architecture is not None
    writer = gguf.GGUFWriter(target, architecture.contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            element = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=element)
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(
            np.ascontiguousarray(gguf.dequantize(tensor.data, tensor.tensor_type), np.float32)
        )
    writer.close()


def tokenize(tool: Path, model: Path, texts: list[str]) -> list[list[int]]:
    result = subprocess.run(
        [tool, model, "tokenize"],
        input="".join(text + "\0" for text in texts).encode(),
        capture_output=True,
        check=True,
    )
    return [[int(word) for word in line.split()] for line in result.stdout.decode().splitlines()]


def continuations(tool: Path, model: Path, cache: str, prompts: list[list[int]]) -> list[dict[str, Any]]:
    """Greedy tokens, and at each how far the best logit is above the second."""
    lines = "".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts)
    command = [tool, model, "greedy", cache, str(NUM_TOKENS)]
    result = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return [parse(line) for line in result.stdout.splitlines()]


def parse(line: str) -> dict[str, Any]:
    pairs = [word.split(":") for word in line.split()]
    return {"tokens": [int(token) for token, _ in pairs], "gaps": [round(float(gap), 4) for _, gap in pairs]}


def spread(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> dict[str, float]:
    """How far two sets of continuations agree: identical ones, and the mean change of the gap up to where they part."""
    changes: list[float] = []
    for one, other in zip(first, second, strict=True):
        for token, gap, other_token, other_gap in zip(
            one["tokens"], one["gaps"], other["tokens"], other["gaps"], strict=False
        ):
            changes.append(abs(gap - other_gap) if token == other_token else gap + other_gap)
            if token != other_token:
                break
    same = sum(one["tokens"] == other["tokens"] for one, other in zip(first, second, strict=True))
    return {"identical": same, "mean_gap_change": round(float(np.mean(changes)), 4)}


def perplexity(binaries: Path, model: Path) -> dict[str, Any]:
    command = [binaries / "llama-perplexity", "-m", model, "-f", GOLDEN / "text.txt", *PERPLEXITY_FLAGS]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    output = result.stdout + result.stderr
    value = re.search(r"Final estimate: PPL = ([\d.]+)", output)
    chunks = re.search(r"calculating perplexity over (\d+) chunks", output)
    if value is None or chunks is None:
        raise SystemExit(output[-2000:])
    return {"value": float(value[1]), "chunks": int(chunks[1]), "context": CONTEXT}


def version(binaries: Path) -> str:
    result = subprocess.run(
        [binaries / "llama-perplexity", "--version"], capture_output=True, text=True, check=True
    )
    return next(line for line in (result.stdout + result.stderr).splitlines() if "version" in line)


def make(tool: Path, binaries: Path, model: Path, folder: Path) -> dict[str, Any]:
    prompts = tokenize(tool, model, json.loads((GOLDEN / "prompts.json").read_text()))
    expand(model, folder / "expanded.gguf")
    quantized = continuations(tool, model, "f32", prompts)
    return {
        "model": model.name,
        "llama_cpp": version(binaries),
        "prompts": prompts,
        "float32_weights": continuations(tool, folder / "expanded.gguf", "f32", prompts),
        "quantized_weights": quantized,
        "quantized_spread": spread(quantized, continuations(tool, model, "f16", prompts)),
        "perplexity": perplexity(binaries, model),
        "text": tokenize(tool, model, [(GOLDEN / "text.txt").read_text()])[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="llama.cpp's source tree")
    parser.add_argument("--bin", type=Path, required=True, help="folder of its libraries and programs")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--name", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tool = Path(folder) / "llama_goldens"
        build(args.source, args.bin, tool)
        golden = make(tool, args.bin, args.model, Path(folder))
    (GOLDEN / f"{args.name}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(args.name, golden["llama_cpp"], golden["quantized_spread"], golden["perplexity"])


if __name__ == "__main__":
    main()
