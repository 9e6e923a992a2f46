"""Kernels to measure: y = x + 1 compiled by TVM, and some in C that do what no kernel should."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tvm import ir, te

from eqfuse.ir.types import TensorType
from eqfuse.lowering.base.target import Target, target_of
from eqfuse.lowering.kernels.messages import Request
from eqfuse.lowering.kernels.pool import SECONDS, compile_candidates
from eqfuse.lowering.tuning.runners.measuring import KernelObject

C_KERNEL = "int __tvm_ffi_{symbol}(void *self, const void *arguments, int count, void *result) {{ {body} return 0; }}"
CRASH = "*(volatile int *)0 = 1;"
HANG = "for (volatile int forever = 1; forever;);"


def request(name: str, folder: Path, size: int = 4096, target: Target | None = None) -> Request:
    x = te.placeholder((size,), "float32", "x")
    prim_func = te.create_prim_func([x, te.compute((size,), lambda i: x[i] + 1.0, "y")])
    target = target or target_of("host", 1)
    return Request(name, ir.save_json(prim_func), target.device, target.description, str(folder / f"{name}.o"))


def adding(folder: Path, size: int = 4096, target: Target | None = None, name: str = "adding") -> KernelObject:
    """y = x + 1, of `size` floats."""
    (answer,) = compile_candidates([request(name, folder, size, target)], 1, SECONDS)
    assert answer.problem is None
    return KernelObject(name, folder / f"{name}.o", (TensorType("float32", (size,)),) * 2)


def in_c(folder: Path, symbol: str, body: str) -> KernelObject:
    """A kernel of one tensor that does what the statements say."""
    (folder / f"{symbol}.c").write_text(C_KERNEL.format(symbol=symbol, body=body), encoding="utf-8")
    subprocess.run(["gcc", "-fPIC", "-c", f"{symbol}.c"], cwd=folder, check=True)
    return KernelObject(symbol, folder / f"{symbol}.o", (TensorType("float32", (1,)),))
