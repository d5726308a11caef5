"""The engine process imports torch without what it does not need, and nothing is lost by it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
from octavo.engine.clients.core_main import import_torch
import_torch()
import sys, torch
assert not {"torch._meta_registrations", "torch.export"} & set(sys.modules)
assert torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3)).tolist() == [[3.0] * 4] * 2
assert torch.empty(2, 3, device="meta").t().shape == (3, 2)
import torch._meta_registrations as real
assert real.activate_meta
import torch.export
assert torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),)).graph
from torch._subclasses import FakeTensorMode
with FakeTensorMode():
    assert torch.linalg.inv(torch.empty(3, 3)).shape == (3, 3)
"""


def test_the_left_out_part_can_be_had_later() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CODE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
