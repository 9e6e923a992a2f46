"""Estimated times of kernels for 64-bit Arm, from counts of QEMU's emulator: no board is needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path

from ....costmodels.device import Device
from ....support.processes.program import ToolError
from ....support.processes.worker_process import WorkerPool, WorkerProcess
from ....support.processor import ARM
from ....support.scratch import scratch_folder
from ...arm.counts import estimate_cycles
from ...arm.emulate import build_plugin, count_example
from ...base.target import Target
from ...base.toolchain import Tool, missing
from ...plan.names import EXAMPLE
from ...plan.plan import Buffer, Call, Plan
from ...program.project import build_example, write_project
from .measuring import (
    KernelObject,
    Rounds,
    RunKernels,
    Timing,
    ask,
    attempt,
    example_tensors,
    measuring_process,
)

_AT_ONCE = 2
"""How many emulators run at once."""


class EmulatedRunner:
    """An ESTIMATE of the seconds on one core of the target's device, in which the second call of a kernel is counted.

    The same kernel gives the same number on any machine, so there is one sample, and what was measured is not measured
    again. Raises ToolError if the cross compiler or the emulator is missing.
    """

    def __init__(self, target: Target) -> None:
        if target.architecture != ARM:
            raise ToolError(f"--runner emulate: there is no emulator that counts for {target.architecture}")
        absent = missing(Tool.CROSS_COMPILER, Tool.COUNTING_EMULATOR, Tool.HOST_COMPILER)
        if absent:
            raise ToolError(absent)
        build_plugin()
        self._pool = WorkerPool(lambda: measuring_process(emulate_on, target.device))
        self._timings: dict[str, Timing] = {}

    @property
    def name(self) -> str:
        return "emulate"

    def measure(self, kernels: Sequence[KernelObject]) -> list[Timing]:
        return list(self._pool.ask_all(self._measure, kernels, _AT_ONCE))

    def compare(self, incumbent: KernelObject, challengers: Sequence[KernelObject]) -> list[list[tuple[float, float]]]:
        first, *others = self.measure([incumbent, *challengers])
        return [list(zip(first.seconds, other.seconds, strict=False)) for other in others]

    def close(self) -> None:
        self._pool.close()

    def _measure(self, process: WorkerProcess, kernel: KernelObject) -> Timing:
        try:
            code = kernel.digest
        except OSError as error:
            return Timing(problem=str(error))
        if code in self._timings:
            return self._timings[code]
        timing = ask(process, (kernel,), inf).timing  # compiler and emulator have limits
        if timing.problem is None:
            self._timings[code] = timing
        return timing


def emulate_on(device: Device) -> RunKernels:
    """In the other process: what estimates the seconds of a kernel on the device."""
    return partial(attempt, partial(_estimate, device))


def _estimate(device: Device, kernels: Sequence[KernelObject]) -> Rounds:
    (kernel,) = kernels
    plan = plan_of(kernel)
    with scratch_folder("emulate") as scratch:
        project, executable = Path(scratch) / "project", Path(scratch) / EXAMPLE
        write_project(project, plan, {}, [kernel.object_file])
        build_example(project, executable, device, emulation=True)
        inputs = example_tensors(kernel.parameters[: len(plan.inputs)])
        (call,) = count_example(executable, plan, inputs, device).calls
    return Rounds(((estimate_cycles(call.counts, device).cycles / device.clock,),))


def plan_of(kernel: KernelObject) -> Plan:
    """A model of one call: what the kernel reads is given by the caller, constants too. Raises PlanError."""
    buffers = tuple(
        Buffer(f"tensor {number}", type_.dtype, tuple(int(extent) for extent in type_.shape or ()))
        for number, type_ in enumerate(kernel.parameters)
    )
    inputs = tuple(range(len(buffers) - kernel.outputs))
    outputs = tuple(range(len(inputs), len(buffers)))
    return Plan(buffers, (Call(kernel.symbol, inputs, outputs),), inputs, outputs, ())
