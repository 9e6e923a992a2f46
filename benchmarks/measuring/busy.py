"""How many cores other processes kept busy while something was measured: with several threads it decides."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4, 8, 9)
"""Fields of /proc/stat that are no work (idle, waiting for a disk), or counted as user time too (guests)."""
_USER, _SYSTEM = 11, 12
"""Fields of /proc/PID/stat, counted from the one behind the name."""


@dataclass(frozen=True)
class Load:
    """Seconds since the machine started: by the clock, of work on all cores (what a hypervisor took with it), and of
    work of the processes that are asked about."""

    clock: float
    busy: float
    own: float

    @staticmethod
    def now(processes: Iterable[int]) -> Load:
        """Of this process and of those."""
        line = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
        fields = [int(field) for number, field in enumerate(line.split()[1:]) if number not in _IDLE]
        own = time.process_time() + sum(map(_worked, processes))
        return Load(time.perf_counter(), sum(fields) / _TICKS, own)

    def others(self, later: Load) -> float:
        """Cores that others used in the meantime, on average."""
        worked = (later.busy - self.busy) - (later.own - self.own)
        return max(0.0, worked / (later.clock - self.clock))


def _worked(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
