"""Families are found by reading, not by importing; nothing is registered twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from octavo.models import registry


@pytest.mark.parametrize("table", registry.TABLES)
def test_no_key_is_in_two_files(table: str) -> None:
    keys = Counter(key for file in registry.family_files() for key in registry.literal_keys(file, table))
    assert keys
    assert max(keys.values()) == 1, keys.most_common(3)


def test_keys_are_those_of_the_modules() -> None:
    """What `ast` reads is what Python would see."""
    for table in registry.TABLES:
        for file in registry.family_files():
            module = __import__(f"octavo.models.families.{file.stem}", fromlist=["x"])
            assert registry.literal_keys(file, table) == list(getattr(module, table, {}))


def test_families_do_not_import_each_other() -> None:
    for file in registry.family_files():
        assert "families" not in file.read_text()


def test_a_spec_needs_no_torch_and_one_family() -> None:
    code = (
        "import sys; from octavo.models import registry; from octavo.models.hf_config import HFConfig;"
        "spec = registry.build_spec(HFConfig({'architectures': ['LlamaForCausalLM'], 'vocab_size': 8, 'hidden_size': 8,"
        "'intermediate_size': 8, 'num_hidden_layers': 1, 'num_attention_heads': 1, 'max_position_embeddings': 8}, 'x'));"
        "print('torch' in sys.modules, [m for m in sys.modules if m.startswith('octavo.models.families.')])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False ['octavo.models.families.llama']"
