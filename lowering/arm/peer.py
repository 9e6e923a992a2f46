"""ONNX Runtime for 64-bit Arm on the emulated board: what a compiled model is compared with."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...costmodels.device import Device
from ...support.processes.program import ToolError
from ...support.scratch import scratch_folder
from .counts import Counts
from .emulate import count_regions, find_counting_emulator, processor_of

PROGRAM = Path(__file__).with_name("peer_program.py")
REGION = 1
"""The number of the region that `PROGRAM` marks one inference with."""
_PYTHON = Path("usr/bin/python3")
_PACKAGES = Path("usr/lib/python3/dist-packages")
_SAME_EVERY_TIME = ("PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1")


@dataclass(frozen=True)
class Arm64Root:
    """A folder with Python and ONNX Runtime for 64-bit Arm, as ``benchmarks/arm64_root.sh`` makes it."""

    path: Path
    version: str

    @staticmethod
    def at(path: Path) -> Arm64Root:
        """The root in that folder. Raises ToolError if there is none."""
        releases = sorted((path / _PACKAGES).glob("onnxruntime-*.dist-info"))
        if not releases or not (path / _PYTHON).exists():
            raise ToolError(f"{path}: has no Python with ONNX Runtime for arm64; benchmarks/arm64_root.sh makes a root")
        return Arm64Root(path, releases[-1].name.removeprefix("onnxruntime-").removesuffix(".dist-info"))

    def count(self, model: Path, inputs: Mapping[str, NDArray[np.generic]], device: Device) -> Counts:
        """What ONNX Runtime executes for one inference, on one thread, all its optimisations on: the third of a run.

        The same root, model and inputs give the same counts. The call from Python is part of them, some ten thousand
        instructions. Raises ToolError if a tool is missing or the model cannot be run.
        """
        processor = processor_of(find_counting_emulator(), device)
        with scratch_folder("peer") as scratch:
            folder = Path(scratch)
            # Links keep the command, which lies on the stack, the same wherever root and model are.
            (folder / "root").symlink_to(self.path.absolute())
            (folder / "model").symlink_to(model.absolute().parent)
            shutil.copyfile(PROGRAM, folder / PROGRAM.name)
            np.savez(folder / "inputs.npz", allow_pickle=False, **dict(inputs))
            command = [f"root/{_PYTHON}", PROGRAM.name, f"model/{model.name}", "inputs.npz"]
            regions = count_regions(command, folder, device.caches, processor, Path("root"), _SAME_EVERY_TIME)
        if REGION not in regions:
            raise ToolError(f"{model}: ONNX Runtime marked no inference under emulation")
        return regions[REGION]
