"""What SmolLM2-135M-Instruct Q4_1 answers to "The capital of France is", greedily."""

from __future__ import annotations

from octavo import ops

FRANCE = {"prompt_token_ids": [504, 3575, 282, 4649, 314]}
# The sixth token is a near tie (0.1 nats): rows rounded to 8 bits have it one way, float32 and matrix tiles the other.
PARIS_IN_FLOAT32 = [7042, 30, 198, 198, 504, 2988, 314, 42]
PARIS = PARIS_IN_FLOAT32 if ops.isa() == "amx" else [7042, 30, 198, 198, 504, 1797, 1918, 553]
