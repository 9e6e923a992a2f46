"""What lowering/kernels/build.py makes of accumulators: registers, whatever memory TVM would take for them."""

from __future__ import annotations

import tvm
from tvm import s_tir, te

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


def test_local_buffers_whose_size_a_call_decides_are_compiled() -> None:
    x = te.placeholder((te.var("n"),), name="x")
    doubled = te.compute(x.shape, lambda i: x[i] * 2.0, name="doubled")
    schedule = s_tir.Schedule(te.create_prim_func([x, te.compute(x.shape, lambda i: doubled[i] + 1.0, name="y")]))
    schedule.set_scope(schedule.get_sblock("doubled"), 0, "local")
    assert "main" in build(schedule.mod, tvm.target.Target(SERVER_TARGET)).mod.inspect_source("ll")
