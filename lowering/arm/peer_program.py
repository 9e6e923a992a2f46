"""Runs in a root for 64-bit Arm, under the counting plugin: ``peer_program.py MODEL.onnx INPUTS.npz``.

Runs the model in ONNX Runtime three times and marks the last one for the plugin. Part of no import of the package.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable

import numpy as np
import onnxruntime

MARK, RETURN = 0xD280001F, 0xD65F03C0
"""``movz xzr, #0``, which the plugin takes for the start of region 0, and ``ret``."""
WARM_UP = 2
"""Runs before the one that is counted: they allocate memory and fill the caches."""


def marker(region: int) -> Callable[[], None]:
    """A function that is those two instructions."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(struct.pack("<II", MARK | region << 5, RETURN))
    code = ctypes.c_char.from_buffer(page)
    function = ctypes.CFUNCTYPE(None)(ctypes.addressof(code))
    function.code = code  # type: ignore[attr-defined]  # the page stays as long as the function does
    return function


def main(model: str, inputs: str) -> None:
    """Bind inputs and outputs, so that a run copies neither; warm up; run between two marks."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding, given = session.io_binding(), np.load(inputs)
    for value in session.get_inputs():
        binding.bind_cpu_input(value.name, given[value.name])
    for value in session.get_outputs():
        binding.bind_output(value.name, "cpu")
    start, end = marker(1), marker(0)
    for _ in range(WARM_UP):
        session.run_with_iobinding(binding)
    start()
    session.run_with_iobinding(binding)
    end()


if __name__ == "__main__":
    main(*sys.argv[1:])
