"""Make the golden files of tests/golden from llama.cpp's own programs.

    python benchmarks/compare/make_llama_goldens.py --bin LLAMA_BIN_FOLDER --model MODEL.gguf --name smollm2-q4_1 [--make-text]

Greedy continuations and their top-2 gaps come from llama-server, perplexity from llama-perplexity; both with a float32
cache and without flash attention, so that what is compared is arithmetic on weights and activations. How many
continuations llama.cpp's own default cache (float16) leaves unchanged is recorded beside them.
`--make-text` first writes the perplexity text: the prompts continued by sampling from the given model.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
PORT = 18431
FLOAT32_CACHE = ["-fa", "off", "-ctk", "f32", "-ctv", "f32"]
NUM_TOKENS = 32
PERPLEXITY_CONTEXT = 512


def post(path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.load(reply)


@contextmanager
def server(folder: Path, model: Path, flags: list[str]) -> Iterator[None]:
    command = [str(folder / "llama-server"), "-m", str(model), "-c", "2048", "-t", "2", "-np", "1"]
    command += ["--host", "127.0.0.1", "--port", str(PORT), *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(process)
        yield
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise SystemExit(f"llama-server ended with {process.returncode}")


def tokenize(text: str) -> list[int]:
    ids: list[int] = post("/tokenize", {"content": text, "add_special": True})["tokens"]
    return ids


def continue_greedily(ids: list[int]) -> dict[str, Any]:
    """Up to 32 greedy tokens and, at each, how far the best logit is above the second."""
    body = {"prompt": ids, "n_predict": NUM_TOKENS, "temperature": 0, "n_probs": 2, "cache_prompt": False}
    steps = post("/completion", body)["completion_probabilities"]
    gaps = [step["top_logprobs"][0]["logprob"] - step["top_logprobs"][1]["logprob"] for step in steps]
    return {"prompt": ids, "output": [step["id"] for step in steps], "gaps": [round(gap, 4) for gap in gaps]}


def sample_text(prompts: list[str]) -> str:
    pieces = []
    for seed, prompt in enumerate(prompts):
        body = {"prompt": prompt, "n_predict": 90, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        pieces.append(
            prompt + post("/completion", {**body, "seed": seed, "cache_prompt": False})["content"].rstrip()
        )
    return "\n\n".join(pieces) + "\n"


def perplexity(folder: Path, model: Path) -> dict[str, Any]:
    command = [str(folder / "llama-perplexity"), "-m", str(model), "-f", str(GOLDEN / "text.txt"), "-t", "2"]
    command += ["-c", str(PERPLEXITY_CONTEXT), "-b", str(PERPLEXITY_CONTEXT), *FLOAT32_CACHE]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    output = result.stdout + result.stderr
    value = re.search(r"Final estimate: PPL = ([\d.]+)", output)
    chunks = re.search(r"calculating perplexity over (\d+) chunks", output)
    if value is None or chunks is None:
        raise SystemExit(output[-2000:])
    return {"value": float(value[1]), "chunks": int(chunks[1]), "context": PERPLEXITY_CONTEXT}


def version(folder: Path) -> str:
    result = subprocess.run(
        [str(folder / "llama-server"), "--version"], capture_output=True, text=True, check=True
    )
    return next(line for line in (result.stdout + result.stderr).splitlines() if "version" in line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--make-text", action="store_true")
    args = parser.parse_args()
    prompts = json.loads((GOLDEN / "prompts.json").read_text())
    with server(args.bin, args.model, FLOAT32_CACHE):
        if args.make_text:
            (GOLDEN / "text.txt").write_text(sample_text(prompts))
        answers = [continue_greedily(tokenize(prompt)) for prompt in prompts]
        text_ids = tokenize((GOLDEN / "text.txt").read_text())
    with server(args.bin, args.model, []):
        half = [continue_greedily(answer["prompt"])["output"] == answer["output"] for answer in answers]
    golden = {
        "model": args.model.name,
        "llama_cpp": version(args.bin),
        "flags": FLOAT32_CACHE,
        "same_with_default_cache": sum(half),
        "perplexity": {**perplexity(args.bin, args.model), "token_ids": text_ids},
        "answers": answers,
    }
    (GOLDEN / f"{args.name}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(
        args.name,
        {key: golden[key] for key in ("llama_cpp", "same_with_default_cache")},
        golden["perplexity"]["value"],
    )


if __name__ == "__main__":
    main()
