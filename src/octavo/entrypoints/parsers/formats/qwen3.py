"""Reasoning between think tags, which most models that reason write."""

from __future__ import annotations

from octavo.entrypoints.parsers.format import Format, ReasoningFormat

FORMAT = Format(
    names=("qwen3", "nemotron", "nemotron_v3", "holo2"),
    models="Qwen3, Nemotron, and whoever writes think tags",
    reasoning=ReasoningFormat(("<think>",), ("</think>",), signs=(("<think>",), ("</think>",))),
)
