"""Many clients at once against a server: tokens a second over all of them."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import httpx


def random_prompt(rng: random.Random, length: int, vocabulary: int) -> list[int]:
    """Token ids that no cache has seen; control tokens at the low end are left out."""
    return [rng.randrange(100, vocabulary) for _ in range(length)]


def octavo_body(prompt: list[int], max_tokens: int) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}


def llama_body(prompt: list[int], max_tokens: int) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "n_predict": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "cache_prompt": False,
    }


def throughput(url: str, bodies: list[dict[str, Any]], generated: int) -> float:
    """Generated tokens a second, all bodies sent at once.

    Args:
        url: Where to post each body.
        generated: Tokens that each answer has.
    """
    return asyncio.run(_throughput(url, bodies, generated))


async def _throughput(url: str, bodies: list[dict[str, Any]], generated: int) -> float:
    limits = httpx.Limits(max_connections=len(bodies))
    async with httpx.AsyncClient(timeout=900, limits=limits) as client:
        start = time.perf_counter()
        answers = await asyncio.gather(*(client.post(url, json=body) for body in bodies))
        seconds = time.perf_counter() - start
    for answer in answers:
        answer.raise_for_status()
    return len(bodies) * generated / seconds
