"""How far next-token distributions are from those of the same file with its weights expanded to float32.

    python -m benchmarks.quality [--models smollm2,gemma3] [--isas amx,avx512vnni] [--tokens 4096] [--folder PEERS]

For every position of the text: the Kullback-Leibler divergence of the reference's distribution to the one measured, and
whether the likeliest token is the same. Octavo runs on each instruction set asked for, llama.cpp (where
`python -m benchmarks.compare install llamacpp` has put it) with and without flash attention, both with their default
float16 cache. The reference is Octavo with float32 weights and cache, computed once and kept in the cache folder; the
last row, llama.cpp with float32 weights and cache, says how little it matters whose float32 is the reference.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.compare.figures import MODELS
from benchmarks.compare.install import LLAMA_CPP
from benchmarks.compare.make_llama_goldens import GOLDEN, build, expand
from octavo import ops
from octavo.attention.metadata import AttentionMetadata, ForwardBatch, GroupMetadata, KVBinding
from octavo.config.env import environment
from octavo.models.decoder import Decoder
from octavo.models.hf_config import HFConfig
from octavo.models.loading import load_model
from octavo.models.registry import build_spec
from octavo.platforms import select_platform
from octavo.quantization import StoredTensor
from octavo.scheduling.kv.groups import plan_groups
from octavo.tokenizers import load_tokenizer
from octavo.types.kv import KVLayout
from octavo.weights.dequantize import to_float32
from octavo.weights.source import RawTensor
from octavo.worker.kv_tensors import KVTensors

CONTEXT = 512
ROWS_AT_A_TIME = 64
BLOCK_SIZE = 32
# Float32 products give the same bits on every instruction set; this one every x86 machine of today has.
REFERENCE_ISA = "avx2"

Chunks = list[list[int]]
Logits = Iterator[torch.Tensor]
"""Of consecutive positions: [rows, V] float32."""


@dataclass(frozen=True)
class Distance:
    """Of a model's distributions to the reference's, over all positions."""

    divergences: torch.Tensor
    """[positions] float64, nats."""
    agreements: torch.Tensor
    """[positions] bool: the likeliest token is the same."""

    def row(self) -> str:
        count = len(self.divergences)
        error = float(self.divergences.std()) / math.sqrt(count)
        cells = [
            f"{float(self.divergences.mean()):.3e}",
            f"{error:.0e}",
            f"{float(self.divergences.quantile(0.99)):.3e}",
            f"{100 * float(self.agreements.double().mean()):.2f}",
        ]
        return " | ".join(cells)


def distance(reference: Iterable[torch.Tensor], measured: Iterable[torch.Tensor]) -> Distance:
    """Compare logits of the same positions, part by part.

    Raises:
        ValueError: the parts are not of the same positions.
    """
    divergences, agreements = [], []
    for ours, theirs in zip(reference, measured, strict=True):
        divergences.append(_divergences(ours, theirs))
        agreements.append(ours.argmax(1) == theirs.argmax(1))
    return Distance(torch.cat(divergences), torch.cat(agreements))


def _divergences(reference: torch.Tensor, measured: torch.Tensor) -> torch.Tensor:
    """Of each row: log E_p[exp(E_p[d] - d)] with d the difference of the logits, which float32 holds well."""
    p = reference.softmax(1)
    change = reference - measured[:, : p.shape[1]]
    change -= (p * change).sum(1, keepdim=True)
    return (p * change.neg_().expm1_()).sum(1).double().log1p()


def text_chunks(model: Path, tokens: int) -> Chunks:
    """The repository's own text in pieces of `CONTEXT` tokens, each beginning with BOS where the model has one.

    Raises:
        SystemExit: the text is shorter than that.
    """
    tokenizer = load_tokenizer(model)
    ids = tokenizer.encode((GOLDEN / "text.txt").read_text(), add_special_tokens=False)
    bos = (
        [tokenizer.info.bos_token_id]
        if tokenizer.info.add_bos and tokenizer.info.bos_token_id is not None
        else []
    )
    own = CONTEXT - len(bos)
    count = tokens // CONTEXT
    if count < 1 or count * own > len(ids):
        raise SystemExit(
            f"--tokens must be in [{CONTEXT}, {len(ids) // own * CONTEXT}] for this model, got {tokens}"
        )
    return [bos + ids[index * own : (index + 1) * own] for index in range(count)]


@torch.inference_mode()
def octavo_logits(model: Path, isa: str, chunks: Chunks, *, expanded: bool = False) -> Logits:
    """What Octavo computes on an instruction set; `expanded`: with weights and cache in float32."""
    ops.set_isa(isa)
    decoder = _expanded(model) if expanded else _load(model)
    layout = plan_groups(decoder.spec.kv_layers(), BLOCK_SIZE, "float32" if expanded else "float16")
    pages = CONTEXT // BLOCK_SIZE
    bindings = KVTensors(layout, pages * len(layout.groups)).bindings()
    for chunk in chunks:
        hidden = decoder.forward(_batch(chunk, layout, bindings))
        for first in range(0, len(chunk), ROWS_AT_A_TIME):
            rows = torch.arange(first, min(first + ROWS_AT_A_TIME, len(chunk)))
            yield decoder.compute_logits(hidden, rows)


def _load(model: Path) -> Decoder:
    hf = HFConfig.from_path(str(model))
    return load_model(str(model), hf, build_spec(hf).limited_to(CONTEXT))


def _expanded(model: Path) -> Decoder:
    def stored(raw: RawTensor) -> StoredTensor:
        return StoredTensor(to_float32(raw), "f32")

    with patch("octavo.models.decoder.stored_tensor", stored):
        return _load(model)


def _batch(chunk: list[int], layout: KVLayout, bindings: list[KVBinding]) -> ForwardBatch:
    """A whole sequence in one step; group g owns blocks g * pages + 1 and on."""
    count, pages = len(chunk), CONTEXT // BLOCK_SIZE
    positions = torch.arange(count)
    groups = tuple(
        GroupMetadata(
            torch.arange(1 + group * pages, 1 + (group + 1) * pages, dtype=torch.int32)[None],
            positions + (1 + group * pages) * BLOCK_SIZE,
        )
        for group in range(len(layout.groups))
    )
    bounds = torch.tensor([0, count, count], dtype=torch.int32)
    return ForwardBatch(
        torch.tensor(chunk), positions, AttentionMetadata(bounds[:2], bounds[2:], groups), bindings
    )


class Reference:
    """The logits of the float32 model, computed once and kept as a file."""

    def __init__(self, model: Path, chunks: Chunks, folder: Path) -> None:
        stamp = f"{model.name} {model.stat().st_size} {chunks}"
        self._path = folder / f"{model.stem}-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}.f32"
        self._columns = build_spec(HFConfig.from_path(str(model))).vocab_size
        if not self._path.exists():
            self._write(octavo_logits(model, REFERENCE_ISA, chunks, expanded=True))

    def _write(self, logits: Logits) -> None:
        partial = self._path.with_suffix(".partial")
        with open(partial, "wb") as stream:
            for part in logits:
                stream.write(part.numpy().tobytes())
        partial.rename(self._path)

    def parts(self) -> Logits:
        values = np.memmap(self._path, np.float32, "r").reshape(-1, self._columns)
        for first in range(0, len(values), ROWS_AT_A_TIME):
            yield torch.from_numpy(np.array(values[first : first + ROWS_AT_A_TIME]))


class LlamaCpp:
    """Logits out of libllama, by `benchmarks/compare/llama_goldens.cpp`."""

    def __init__(self, peer: Path, folder: Path) -> None:
        self._tool = folder / f"llama_goldens-{LLAMA_CPP.split('==')[1]}"
        (source,) = peer.glob("*/llama.cpp")
        build(source, peer / "build" / "bin", self._tool)

    def logits(self, model: Path, chunks: Chunks, *, cache: str, flash: bool, columns: int) -> Logits:
        """As `octavo_logits`; `cache` is `f16` or `f32`."""
        command = [str(self._tool), str(model), "logits", cache, str(int(flash))]
        lines = "".join(" ".join(map(str, chunk)) + "\n" for chunk in chunks)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(lines.encode())
            process.stdin.close()
            while part := process.stdout.read(4 * columns * ROWS_AT_A_TIME):
                yield torch.frombuffer(bytearray(part), dtype=torch.float32).view(-1, columns)


def measure(model: Path, args: argparse.Namespace) -> Iterator[tuple[str, Distance]]:
    """Name and distance of each way to run a model."""
    chunks = text_chunks(model, args.tokens)
    reference = Reference(model, chunks, args.cache)
    for isa in args.isas:
        yield f"octavo, {isa}", distance(reference.parts(), octavo_logits(model, isa, chunks))
    peer = args.folder / "llamacpp"
    if not peer.is_dir() or args.only_octavo:
        return
    llama = LlamaCpp(peer, args.cache)
    columns = next(reference.parts()).shape[1]
    run: Callable[..., Distance] = lambda path, **how: distance(  # noqa: E731
        reference.parts(), llama.logits(path, chunks, columns=columns, **how)
    )
    yield "llama.cpp, -fa 0", run(model, cache="f16", flash=False)
    yield "llama.cpp, -fa 1", run(model, cache="f16", flash=True)
    wide = args.cache / f"{model.stem}-expanded.gguf"
    if not wide.exists():
        expand(model, wide.with_suffix(".partial"))
        wide.with_suffix(".partial").rename(wide)
    yield "llama.cpp, all float32", run(wide, cache="f32", flash=False)


def main() -> None:
    args = _arguments()
    args.cache.mkdir(parents=True, exist_ok=True)
    ops.set_num_threads(select_platform("cpu").default_num_threads())
    for name in args.models.split(","):
        print(f"| {name}, {args.tokens} tokens | mean KL, nats | ± | 99th percentile | same top token, % |")
        print("|---|---|---|---|---|")
        for way, found in measure(MODELS[name].path(args.folder / "models"), args):
            print(f"| {way} | {found.row()} |", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    peers = Path.home() / ".cache" / "octavo" / "peers"
    parser.add_argument("--models", default="smollm2,gemma3", help="of those of benchmarks.compare")
    parser.add_argument(
        "--isas", default=",".join(ops.available_isas()[:-3:-1]), help="default: the best two"
    )
    parser.add_argument("--tokens", type=int, default=4096, help=f"a multiple of {CONTEXT}")
    parser.add_argument("--folder", type=Path, default=peers, help="where the peers live")
    parser.add_argument("--cache", type=Path, default=environment().cache_root / "quality")
    parser.add_argument("--only-octavo", action="store_true", help="leave llama.cpp out")
    args = parser.parse_args()
    args.isas = args.isas.split(",")
    return args


if __name__ == "__main__":
    main()
