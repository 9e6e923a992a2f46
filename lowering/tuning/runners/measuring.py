"""What runners of candidates are given, and what they answer. Light to import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Protocol

from ....ir.types import TensorType

MOST_BETWEEN = 96 << 20
"""Bytes of constants that are enough to push others out of the caches of one processor."""


@dataclass(frozen=True)
class KernelObject:
    """A compiled kernel: `symbol` in `object_file`, called with tensors of these types.

    First come the inputs and then `outputs` outputs. Those inputs that are `constants`, by their places, have the types
    that they have after packing. In a run of its model the kernel finds them as far away as `between` other bytes of
    constants have moved them, so a runner should not measure it with all of them in the nearest cache.
    """

    symbol: str
    object_file: Path
    parameters: tuple[TensorType, ...]
    outputs: int = 1
    constants: tuple[int, ...] = ()
    between: int = 0

    @property
    def digest(self) -> str:
        """Of the code, whatever it is called. Raises OSError where the file cannot be read."""
        return sha256(self.object_file.read_bytes().replace(self.symbol.encode(), b"")).hexdigest()


@dataclass(frozen=True)
class Timing:
    """The seconds of each run of a kernel, or why there are none: the `problem`, in one line.

    `lost`: the problem may be the device's, or on the way to it.
    """

    seconds: tuple[float, ...] = ()
    problem: str | None = None
    lost: bool = False

    @property
    def latency(self) -> float:
        """The median of the runs. Raises statistics.StatisticsError where there are none."""
        return median(self.seconds)


class Runner(Protocol):
    """Runs kernels, or says what they would take, on one kind of device."""

    @property
    def name(self) -> str:
        """What tells its times from others': ``local``, ``emulate``, ``rpc:KEY``."""
        ...

    def measure(self, kernels: Sequence[KernelObject]) -> list[Timing]:
        """A timing of each, in their order. A kernel that crashes or hangs costs itself alone."""
        ...

    def compare(self, incumbent: KernelObject, challengers: Sequence[KernelObject]) -> list[list[tuple[float, float]]]:
        """For each challenger, seconds of (incumbent, challenger) in interleaved pairs: noise meets both alike."""
        ...

    def close(self) -> None:
        """End the processes and sessions that it holds."""
        ...
