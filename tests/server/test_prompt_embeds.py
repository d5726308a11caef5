"""`prompt_embeds` of `/v1/completions`."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engine.fakes import HIDDEN
from tests.engine.test_prompt_embeds import safetensors
from tests.server.harness import Server, events, joined, running

ROWS = safetensors(np.ones((3, HIDDEN), np.float32), "F32")


def test_rows_are_answered_before_prompts_in_both_modes() -> None:
    with running(enable_prompt_embeds=True) as server:
        fields = {"prompt_embeds": [ROWS, ROWS], "max_tokens": 5}
        whole = server.complete("hi", **fields).json()
        assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
        assert whole["usage"]["prompt_tokens"] == 3 + 3 + 2
        chunks = events(server.complete("hi", stream=True, **fields).text)
        assert [joined(chunks, index) for index in range(3)] == [
            choice["text"] for choice in whole["choices"]
        ]
        alone = server.post("/v1/completions", {"prompt_embeds": ROWS, "max_tokens": 5, "temperature": 0})
        assert alone.json()["choices"][0]["text"] == whole["choices"][0]["text"]
        for body, param in (
            ({"prompt_embeds": "?"}, "prompt_embeds"),
            ({"prompt_embeds": ROWS, "echo": True}, "echo"),
            ({"prompt_embeds": ROWS, "n": 128, "max_tokens": 0}, "max_tokens"),
            ({"prompt_embeds": safetensors(np.ones((3, HIDDEN + 1), np.float32), "F32")}, "prompt_embeds"),
            ({}, "prompt"),
        ):
            refused = server.post("/v1/completions", body)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("stream", [False, True])
def test_without_the_flag_they_are_refused(server: Server, stream: bool) -> None:
    refused = server.post("/v1/completions", {"prompt_embeds": ROWS, "stream": stream})
    assert refused.status_code == 400
    assert "--enable-prompt-embeds" in refused.json()["error"]["message"]
