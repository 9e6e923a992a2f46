"""Plans of float32 vectors, for tests that compile nothing."""

from __future__ import annotations

from eqfuse.lowering.plan.plan import Buffer, Call, Plan


def chain(*sizes: int) -> Plan:
    """x -> k0 -> ... -> y: each buffer, `sizes` floats long, is computed from the one before."""
    buffers = tuple(Buffer(f"b{i}", "float32", (size,)) for i, size in enumerate(sizes))
    calls = tuple(Call(f"k{i}", (i,), (i + 1,)) for i in range(len(sizes) - 1))
    return Plan(buffers, calls, (0,), (len(sizes) - 1,), ())
