"""Hides instruction sets of this processor from the processes that are started later: eqfuse and all peers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from eqfuse.benchmarks.measuring.contestants import ContestantError

SETS = ("avx512", "vnni")
"""AVX-512 with AMX, and products of bytes: without both AVX2 is left."""
_SOURCE = Path(__file__).parent / "hidden_features.c"


def hide(sets: Sequence[str], folder: Path) -> None:
    """Set the environment of later processes; the library is built into the folder, which must stay while they start.

    Raises ContestantError if this machine cannot hide them.
    """
    if "cpuid_fault" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        raise ContestantError("--hide: this machine cannot refuse the instruction cpuid (no cpuid_fault)")
    library = folder / "hidden_features.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    os.environ.update(EQFUSE_HIDDEN=",".join(sets), LD_PRELOAD=str(library))
