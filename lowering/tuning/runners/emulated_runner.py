"""What kernels for 64-bit Arm would take, from what they execute on QEMU's counting emulator: no board is needed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ....support.errors import EqfuseError
from ....support.processor import ARM
from ....support.scratch import scratch_folder
from ...arm.counts import estimate_cycles
from ...arm.emulate import EXAMPLE, build_plugin, count_example
from ...base.target import Target
from ...base.toolchain import Tool, ToolError, missing
from ...plan.plan import Buffer, Call, Plan
from ...program.project import build_example, write_project
from .measuring import KernelObject, Timing, example_tensors

_AT_ONCE = 2
"""How many emulators run at once."""


class EmulatedRunner:
    """An ESTIMATE of the seconds on one core of the target's device, in which the second call of a kernel is counted.

    The same kernel gives the same number on any machine, so there is one sample, and what was measured is not measured
    again. Programs lie in `folder` while they are needed. Raises ToolError where the cross compiler or the emulator is
    missing.
    """

    def __init__(self, target: Target, folder: Path) -> None:
        if target.architecture != ARM:
            raise ToolError(f"--runner emulate: there is no emulator that counts for {target.architecture}")
        absent = missing(Tool.CROSS_COMPILER, Tool.COUNTING_EMULATOR, Tool.HOST_COMPILER)
        if absent:
            raise ToolError(absent)
        build_plugin()
        self._device = target.device
        self._folder = folder
        self._pool = ThreadPoolExecutor(_AT_ONCE, "emulate")
        self._seconds_of_code: dict[str, float] = {}

    @property
    def name(self) -> str:
        return "emulate"

    def measure(self, kernels: Sequence[KernelObject]) -> list[Timing]:
        return list(self._pool.map(self._timing, kernels))

    def compare(self, incumbent: KernelObject, challengers: Sequence[KernelObject]) -> list[list[tuple[float, float]]]:
        first, *others = self.measure([incumbent, *challengers])
        return [list(zip(first.seconds, other.seconds, strict=False)) for other in others]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _timing(self, kernel: KernelObject) -> Timing:
        try:
            code = kernel.digest
            if code not in self._seconds_of_code:
                self._seconds_of_code[code] = self._seconds(kernel)
            return Timing((self._seconds_of_code[code],))
        except (EqfuseError, OSError, ValueError) as error:
            return Timing(problem=str(error))

    def _seconds(self, kernel: KernelObject) -> float:
        plan = plan_of(kernel)
        with scratch_folder("emulate") as scratch:
            project, executable = Path(scratch) / "project", Path(scratch) / EXAMPLE
            write_project(project, plan, {}, [kernel.object_file])
            build_example(project, executable, self._device, emulation=True)
            inputs = example_tensors(kernel.parameters[: len(plan.inputs)])
            (call,) = count_example(executable, plan, inputs, self._device).calls
        return estimate_cycles(call.counts, self._device).cycles / self._device.clock


def plan_of(kernel: KernelObject) -> Plan:
    """A model of one call: what the kernel reads is given by the caller, constants too. Raises PlanError."""
    buffers = tuple(
        Buffer(f"tensor {number}", type_.dtype, tuple(int(extent) for extent in type_.shape or ()))
        for number, type_ in enumerate(kernel.parameters)
    )
    inputs = tuple(range(len(buffers) - kernel.outputs))
    outputs = tuple(range(len(inputs), len(buffers)))
    return Plan(buffers, (Call(kernel.symbol, inputs, outputs),), inputs, outputs, ())
