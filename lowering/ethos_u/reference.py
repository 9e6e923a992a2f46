"""Arm's reference model of TOSA, in an environment of its own: it needs a numpy that is older than that of eqfuse.

The environment is made once, below the cache of eqfuse (220 MB, about ten seconds).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...support.errors import UsageError
from ...support.files import cache_folder, write_text
from ...support.processes.program import ToolError, run_program
from ...support.scratch import scratch_folder
from ..base.errors import LoweringError
from .tosa.graph import Graph

Array = np.ndarray[Any, Any]
PACKAGE = "tosa-tools==2026.8.0"
_INSTALL_SECONDS = 600.0
_RUN_SECONDS = 1800.0
_PROGRAM = """
import sys
import numpy as np
import tosa_reference_model as model

content = open(sys.argv[1], "rb").read()
samples = np.load(sys.argv[2])
results = {}
for sample in range(int(sys.argv[4])):
    count = sum(name.startswith(f"{sample}/") for name in samples.files)
    outputs, status = model.run(content, [samples[f"{sample}/{place}"] for place in range(count)], tosa_level="EIGHTK")
    if status != model.GraphStatus.TOSA_VALID:
        sys.exit(f"error: the reference model says {status}")
    results |= {f"{sample}/{place}": output for place, output in enumerate(outputs)}
np.savez(sys.argv[3], **results)
"""


def reference_python() -> Path:
    """The interpreter of the environment, which is made if it is missing. Raises UsageError if it cannot be made."""
    folder = cache_folder() / PACKAGE.replace("==", "-")
    python = folder / "bin" / "python"
    done = folder / "complete"
    if done.is_file():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    try:
        run_program([sys.executable, "-m", "venv", folder], _INSTALL_SECONDS)
        run_program([python, "-m", "pip", "install", "--quiet", PACKAGE], _INSTALL_SECONDS)
    except ToolError as error:
        raise UsageError(
            f"Arm's reference model, which verifies the program, cannot be installed ({error}); connect to a package "
            f"index for `pip install {PACKAGE}`, or write the program unverified with --no-verify"
        ) from None
    write_text(done, f"{PACKAGE}\n")
    return python


def run_reference(content: bytes, graph: Graph, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """The outputs that the reference model computes of each sample. Raises LoweringError if it refuses the graph."""
    with scratch_folder("tosa") as name:
        folder = Path(name)
        program, network, inputs, outputs = (
            folder / each for each in ("run.py", "model.tosa", "inputs.npz", "outputs.npz")
        )
        program.write_text(_PROGRAM, encoding="utf-8")
        network.write_bytes(content)
        arrays = {
            f"{number}/{place}": sample[each]
            for number, sample in enumerate(samples)
            for place, each in enumerate(graph.inputs)
        }
        np.savez(inputs, **arrays)  # type: ignore[arg-type]
        try:
            run_program([reference_python(), program, network, inputs, outputs, str(len(samples))], _RUN_SECONDS)
        except ToolError as error:
            raise LoweringError(f"Arm's reference model does not run the graph: {error}") from None
        with np.load(outputs) as results:
            return [
                {each: results[f"{number}/{place}"] for place, each in enumerate(graph.outputs)}
                for number in range(len(samples))
            ]
