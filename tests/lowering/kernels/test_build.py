"""What lowering/kernels/build.py makes of accumulators: registers, whatever memory TVM would take for them."""

from __future__ import annotations

import tvm

from eqfuse.lowering.kernels.build import build
from eqfuse.lowering.schedules import list_candidates
from eqfuse.lowering.schedules.decisions import Trace

from ..schedules.functions import SERVER, matmul

SERVER_TARGET = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v4", "num-cores": 1}


def test_accumulators_of_many_wide_vectors_stay_in_registers() -> None:
    """28 vectors of 64 bytes: TVM alone takes them from the heap, where LLVM sets them to zero by memset."""
    trace = Trace({"tile": "c1 r0 14x2x16"})
    scheduled = next(list_candidates(matmul(56, 40, 64), SERVER, 1, with_rules=True))(trace)
    assert scheduled is not None
    assert "14x2x16" in {site.option.label.split()[-1] for site in trace.sites}
    module = scheduled.schedule.mod
    with_heap = tvm.compile(module, target=tvm.target.Target(SERVER_TARGET)).mod.inspect_source("asm")
    code = build(module, tvm.target.Target(SERVER_TARGET)).mod.inspect_source("asm")
    assert "memset" in with_heap
    assert "memset" not in code
    assert "AllocWorkspace" not in code
