"""benchmarks/measuring/hiding.py takes instruction sets away from processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eqfuse.benchmarks.measuring.hiding import SETS, hide
from eqfuse.support.processor import processor_features

CAN_HIDE = "cpuid_fault" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
PROGRAM = "from eqfuse.support.processor import processor_features as f; print(*f())"


@pytest.mark.skipif(not CAN_HIDE, reason="this machine cannot refuse the instruction cpuid")
def test_a_process_does_not_see_what_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EQFUSE_HIDDEN", "LD_PRELOAD"):  # so that they are gone after the test
        monkeypatch.setenv(name, "")
    hide(SETS, tmp_path)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    gone = processor_features() - set(done.stdout.split())
    assert all(any(part in name for part in ("avx512", "vnni", "amx")) for name in gone)
    assert not any("512" in name or "vnni" in name for name in done.stdout.split())
    assert "sse2" in done.stdout.split()
