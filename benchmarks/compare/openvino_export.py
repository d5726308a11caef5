"""A checkpoint as OpenVINO's own format, by `optimum-intel` in the peer's environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.compare import shapes
from benchmarks.measure import quiet_environment

# "bf16" of a checkpoint becomes float16: the exporter has no bfloat16, and none at all means int8 from 1B weights on.
FORMATS = {"bf16": "fp16", "int8": "int8", "int4": "int4"}


def export(shape: shapes.Shape, weights: str, folder: Path) -> Path:
    """The folder with the exported model; made if it is not there yet.

    Args:
        weights: "bf16" (stored as float16), "int8" (a scale a row) or "int4" (groups of 128 with zero points for these
            shapes): the exporter's defaults.
        folder: The folder of the models; the peers' environments are beside it.
    """
    target = folder / f"{shape.name}-openvino-{weights}"
    if not (target / "openvino_model.xml").exists():
        program = folder.parent / "openvino" / "bin" / "optimum-cli"
        command = [program, "export", "openvino", "--model", shapes.checkpoint(shape, folder)]
        command += ["--task", "text-generation-with-past", "--weight-format", FORMATS[weights]]
        environment = quiet_environment() | {"HF_HUB_OFFLINE": "1"}
        subprocess.run([*command, target], check=True, env=environment)
    return target
