"""What `import octavo` offers, and that it is quick."""

from __future__ import annotations

import subprocess
import sys

import pytest

import octavo


def test_the_names() -> None:
    assert octavo.__all__ == [
        "LLM",
        "AsyncLLM",
        "BeamSearchOutput",
        "BeamSearchParams",
        "BeamSearchSequence",
        "ClassificationRequestOutput",
        "CompletionOutput",
        "EmbeddingRequestOutput",
        "EngineArgs",
        "FlatLogprobs",
        "LLMEngine",
        "Logprob",
        "PoolingParams",
        "PoolingRequestOutput",
        "RepetitionDetectionParams",
        "RequestMetrics",
        "RequestOutput",
        "RequestOutputKind",
        "SamplingParams",
        "ScoringRequestOutput",
        "StructuredOutputsParams",
    ]
    assert all(getattr(octavo, name).__name__ == name for name in octavo.__all__)
    assert set(octavo.__all__) <= set(dir(octavo))


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="no attribute 'NoSuchThing'"):
        _ = octavo.NoSuchThing


def test_the_import_itself_loads_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import octavo; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    roots = {name.partition(".")[0] for name in done.stdout.split()}
    assert roots - {"octavo"} <= set(sys.stdlib_module_names)
    assert "octavo.engine" not in done.stdout
