"""Vela, Arm's compiler for Ethos-U: its command stream for a graph of TOSA, and its estimate of cycles and memory.

It runs in a process of its own, since it may crash. Estimates are Vela's own: they compare programs for one device, one
system configuration and one memory mode, and are no measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...costmodels.ethos_device import EthosDevice
from ...support.errors import UsageError
from ..base.errors import CrashError, LoweringError
from ..bundle.isolation import call_isolated
from .tosa.graph import Array

_SECONDS = 300.0
"""Seconds that one compilation may take; networks of 300 million multiplications take half a second."""
_NO_LIMIT = {"u55": 1 << 32, "u65": 1 << 40, "u85": 1 << 40}
"""Bytes that a device can address: the arena's limit of a memory mode that names none."""
REPORTED = ("perf", "tensors")
"""The tables of Vela's report that are kept: operators with their cycles, tensors with their addresses and times."""
INSTALL = "pip install 'eqfuse[ethos-u]'"


@dataclass(frozen=True)
class Setting:
    """What Vela leaves to its caller: the goal, the bytes of fast memory that it may use (None: those of the memory
    mode), and features of its scheduler that are left out."""

    optimise: Literal["Performance", "Size"] = "Performance"
    arena: int | None = None
    disabled: tuple[str, ...] = ()

    def __str__(self) -> str:
        words: list[str] = [self.optimise]
        words += [f"arena {self.arena}"] if self.arena is not None else []
        return ", ".join((*words, *(f"no {name}" for name in self.disabled)))


@dataclass(frozen=True)
class TensorPlace:
    """A tensor of the program's interface: `region` and `address` in bytes."""

    region: int
    address: int
    size: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Estimate:
    """Vela's figures: cycles of a run, bytes in use at most by memory, operators on the NPU and off it."""

    cycles: int
    npu_cycles: int
    memory: Mapping[str, int]
    memory_cycles: Mapping[str, int]
    npu_operators: int
    cpu_operators: int
    macs: int
    cascades: int

    @property
    def sram(self) -> int:
        """Bytes of SRAM in use at most."""
        return sum(used for name, used in self.memory.items() if name.lower().startswith("sram"))


@dataclass(frozen=True)
class Program:
    """What the Ethos-U core driver runs: a command stream, weights, and where inputs and outputs lie."""

    commands: Array = field(repr=False)
    weights: Array = field(repr=False)
    weights_region: int = 0
    scratch: int = 0
    scratch_region: int = 1
    fast_scratch: int = 0
    fast_scratch_region: int = 2
    inputs: tuple[TensorPlace, ...] = ()
    outputs: tuple[TensorPlace, ...] = ()
    estimate: Estimate = Estimate(0, 0, {}, {}, 0, 0, 0, 0)
    layers: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def waits(self) -> Mapping[str, int]:
        """Cycles in which an operator waits for memory, by the tensor that it makes."""
        table = self.layers.get("perf", {"header": [], "data": []})
        rows = (dict(zip(table["header"], row, strict=True)) for row in table["data"])
        return {row["name"]: int(row["op_cycles"]) - int(row["npu_cycles"]) for row in rows}


def require_vela() -> None:
    """Raise UsageError, with the command that installs it, if Vela is missing."""
    if find_spec("ethosu") is None or find_spec("ethosu.regor") is None:
        raise UsageError(f"--target ethos-u*: Arm's compiler Vela is missing; {INSTALL}")


def vela_version() -> str:
    """The version of Vela, "not installed" if it is missing."""
    try:
        return version("ethos-u-vela")
    except PackageNotFoundError:
        return "not installed"


def compile_by_vela(content: bytes, device: EthosDevice, setting: Setting) -> Program:
    """The program for a graph as TOSA. Raises LoweringError with Vela's complaint, also if Vela crashes."""
    try:
        return call_isolated(_SECONDS, _compile, content, device, setting)
    except (CrashError, LoweringError) as error:
        raise LoweringError(f"Vela {vela_version()} for {device.name} ({setting}): {error}") from None


def _compile(content: bytes, device: EthosDevice, setting: Setting) -> Program:
    from ethosu import regor

    model = regor.compile(device.architecture, content, "TOSA", _system(device), options=_options(device, setting))
    report = model.perf_report
    estimate = Estimate(
        cycles=int(report.totalCycles),
        npu_cycles=int(report.npuCycles),
        memory={name: int(each.peakUsage) for name, each in report.memories.items() if each.peakUsage},
        memory_cycles={name: int(each.totalAccessCycles) for name, each in report.memories.items()},
        npu_operators=int(report.npuOps),
        cpu_operators=int(report.cpuOps),
        macs=int(report.macCount),
        cascades=int(report.cascades),
    )
    tables = model.opt_database.tables if model.opt_database is not None else {}
    commands, weights = (np.frombuffer(each, np.uint8) for each in (model.command_stream, model.read_only.data))
    return Program(
        commands, weights, int(model.read_only.region),
        int(model.scratch.size), int(model.scratch.region), int(model.scratch_fast.size),
        int(model.scratch_fast.region), _places(model.inputs), _places(model.outputs), estimate,
        {
            name: {"header": [*table.header], "data": [[*row] for row in table.data]}
            for name, table in tables.items() if name in REPORTED
        },
    )  # fmt: skip


def _places(tensors: Sequence[Any]) -> tuple[TensorPlace, ...]:
    return tuple(
        TensorPlace(int(each.region), int(each.address), int(each.size), tuple(map(int, each.shape)))
        for each in tensors
    )


def _system(device: EthosDevice) -> str:
    """Vela's description of a device: its size, names of sections, and the file of these that comes with Vela."""
    import ethosu

    package = Path(next(iter(ethosu.__path__)))
    sections = (package / "config_files" / "Arm" / "vela.ini").read_text(encoding="utf-8")
    return (
        f"[architecture]\nmacs={device.macs}\ncores={device.cores}\n[vela]\n"
        f"system_config_name={device.system}\nmemory_mode_name={device.memory_mode}\n{sections}"
    )


def _options(device: EthosDevice, setting: Setting) -> str:
    limit = setting.arena or device.arena or _NO_LIMIT[device.family]
    return (
        "\n[compiler]\nenable_db=true\noutput_format=Raw\ncop_format=COP1\n"
        f"\n[scheduler]\noptimize={setting.optimise}\narena_size_limit={limit}\n"
        f"disable_feature={'|'.join(setting.disabled)}\ncpu_tensor_alignment=16\ntensor_allocator=HillClimb\n\n[graph]\n"
    )
