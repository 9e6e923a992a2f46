"""What lowering/kernels/build.py makes of accumulators, and of the larger and the smaller of two numbers."""

from __future__ import annotations

import re

import tvm
from tvm import s_tir, te, tirx

from eqfuse.lowering.base.decisions import Trace
from eqfuse.lowering.kernels.build import build
from eqfuse.lowering.schedules import list_candidates

from ..schedules.functions import ARM, SERVER, matmul

SERVER_TARGET = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v4", "num-cores": 1}
ARM_TARGET = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "mattr": ["+neon"], "num-cores": 1}


def test_accumulators_of_many_wide_vectors_stay_in_registers() -> None:
    """28 vectors of 64 bytes: TVM alone takes them from the heap, and LLVM sets them to zero there by memset."""
    trace = Trace({"tile": "c1 r0 14x2x16", "unroll": "288"})
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


def test_a_clip_is_two_instructions_on_arm() -> None:
    x = te.placeholder((64,), name="x")
    low, high = (tirx.const(bound, "float32") for bound in (0.0, 6.0))
    y = te.compute(x.shape, lambda i: tirx.Min(high, tirx.Max(low, x[i])), name="y")
    schedule = s_tir.Schedule(te.create_prim_func([x, y]))
    _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("y"))[0], [None, 4])
    schedule.vectorize(inner)
    code = build(schedule.mod, tvm.target.Target(ARM_TARGET)).mod.inspect_source("asm")
    assert "fmax\tv" in code
    assert "fmin\tv" in code
    assert "fcm" not in code


def test_factors_of_a_tile_are_lanes_on_arm() -> None:
    """LLVM alone loads each number that is broadcast by itself."""
    scheduled = next(list_candidates(matmul(56, 48, 96), ARM, 1, with_rules=True))(Trace())
    assert scheduled is not None
    target = tvm.target.Target(ARM_TARGET)
    codes = [make(scheduled.schedule.mod, target=target).mod.inspect_source("asm") for make in (tvm.compile, build)]
    assert [bool(re.search(r"\tldr\ts\d", code)) for code in codes] == [True, False]
