"""What the tests of the ops share: the machine as it was, and instruction sets where they cannot run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.ops.emulation import EMULATED_VNNI, offer_emulated, simde_flags

from octavo import ops


@pytest.fixture(autouse=True)
def machine_as_it_was() -> Iterator[None]:
    """Put threads and instruction set back; keep torch's own threads out of the way."""
    threads, isa, torch_threads = ops.num_threads(), ops.isa(), torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(torch_threads)
    ops.set_num_threads(threads)
    ops.set_isa(isa)


@pytest.fixture(scope="session")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Makes an emulated instruction set one of `ops.available_isas()`; gives back its name."""
    folder = tmp_path_factory.mktemp("emulated")

    def offer(isa: str) -> str:
        compiler, simde = shutil.which("g++"), simde_flags()
        if compiler is None or simde is None:
            pytest.skip(
                "emulating AVX-VNNI, AVX-512 and AMX needs g++ and SIMDe (`make test` installs it; Debian: libsimde-dev)"
            )
        if isa not in ops.available_isas():
            offer_emulated(isa, compiler, simde, folder)
        return isa

    return offer


@pytest.fixture
def emulated_avx512(emulate: Callable[[str], str]) -> str:
    """Name of an emulated instruction set with AVX-512's layer kernels."""
    return emulate(EMULATED_VNNI)
