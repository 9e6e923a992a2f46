"""Extremes of a result are those of its elements, bit for bit, and no loop reads the result again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import ir, te, tirx, topi

from eqfuse.costmodels.device import load_device
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.compute.reductions import reduce_max, reduce_min
from eqfuse.lowering.kernels.build import build
from eqfuse.lowering.schedules import mark_constants, schedule
from eqfuse.lowering.schedules.extremes import MOST_TASKS

from .functions import HOST, inputs

pytestmark = pytest.mark.usefixtures("shared_by_threads")
Make = Callable[[te.Tensor], te.Tensor]


def extreme(y: te.Tensor, reducer: Any, name: str) -> te.Tensor:
    axes = [te.reduce_axis((0, extent), name=f"{name}_{n}") for n, extent in enumerate(y.shape)]
    return te.compute((), lambda: reducer(y(*axes), axes), name=name)


def with_extremes(sources: list[te.Tensor], y: te.Tensor, constants: tuple[int, ...] = ()) -> Any:
    """A function that returns y, its largest element, and half of the distance to its least."""
    largest, least = extreme(y, reduce_max, "largest"), extreme(y, reduce_min, "least")
    half = te.compute((), lambda: (largest() - least()) * tirx.const(0.5, "float32"), name="half")
    return mark_constants(te.create_prim_func([*sources, y, largest, half]), constants)


def product(rows: int, depth: int, columns: int) -> Any:
    a, w = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="w")
    b, k = te.placeholder((columns,), name="b"), te.reduce_axis((0, depth), name="k")
    summed = te.compute((rows, columns), lambda i, j: te.sum(a(i, k) * w(k, j), axis=k), name="summed")
    return with_extremes([a, w, b], te.compute(summed.shape, lambda i, j: summed(i, j) - b(j), name="y"), (1, 2))


def of_maps(make: Make) -> Any:
    x = te.placeholder((1, 19, 21, 40), name="x")
    return with_extremes([x], make(x))


def pool(x: te.Tensor) -> te.Tensor:
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 3), name="j")
    return te.compute((1, 9, 10, 40), lambda n, h, w, c: reduce_max(x(n, 2 * h + i, 2 * w + j, c), [i, j]), name="y")


FUNCTIONS: dict[str, tuple[Any, str]] = {
    "product": (product(30, 40, 96), "contraction"),
    "product with tails": (product(31, 13, 7), "contraction"),
    "one row": (product(1, 64, 1000), "contraction"),
    "pool": (of_maps(pool), "channels"),
    "pointwise": (of_maps(lambda x: te.compute(x.shape, lambda *i: x(*i) * x(*i) - 1.0, name="y")), "pointwise"),
    "repeated": (of_maps(lambda x: te.compute(x.shape, lambda n, h, w, c: x(n, h, w, 0) * 2.0, name="y")), "pointwise"),
    "softmax": (of_maps(lambda x: topi.nn.softmax(x, -1)), "rows"),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_extremes_are_found_beside_the_stores(name: str, threads: int) -> None:
    function, rule = FUNCTIONS[name]
    scheduled = schedule(function, HOST, threads)
    assert scheduled.rule == f"extremes ({rule})"
    (made,) = scheduled.schedule.mod.functions.values()
    assert str(function.params[-3].name) not in loads(made.body)
    y, largest, half = run(made, scheduled.repack, function, threads)
    assert largest == y.max()
    assert half == (y.max() - y.min()) * np.float32(0.5)


def test_loops_in_front_that_threads_share_add_no_numbers() -> None:
    """A map of bytes that overlapping windows read as numbers of 16 bits, which a loop of its own makes of them."""
    x, w = te.placeholder((1, 130, 130, 4), "uint8", name="x"), te.placeholder((3, 3, 4, 16), "int8", name="w")
    i, j, c = (te.reduce_axis((0, extent), name) for extent, name in ((3, "i"), (3, "j"), (4, "c")))

    def element(n: Any, h: Any, v: Any, o: Any) -> Any:
        product = x(n, h + i, v + j, c).astype("int32") * w(i, j, c, o).astype("int32")
        return te.sum(product, axis=[i, j, c])

    summed = te.compute((1, 128, 128, 16), element, name="summed")
    function = with_extremes([x, w], te.compute(summed.shape, lambda *p: summed(*p) * 0.5, name="y"), (1,))
    scheduled = schedule(function, load_device("x86-64-v3"), threads=2)
    assert scheduled.rule == "extremes (contraction)"
    (made,) = scheduled.schedule.mod.functions.values()
    loops: list[Any] = []
    tvm_ffi.structural_walk(made.body, [(tirx.For, loops.append)])
    assert max(int(loop.extent) for loop in loops if loop.kind == tirx.ForKind.PARALLEL) > MOST_TASKS
    y, largest, half = run(made, scheduled.repack, function, threads=2)
    assert largest == y.max()
    assert half == (y.max() - y.min()) * np.float32(0.5)


def loads(body: Any) -> list[str]:
    """The names of the buffers that statements read."""
    found: list[Any] = []
    tvm_ffi.structural_walk(body, [(ir.TensorLoad, found.append)])
    return [str(load.source.name) for load in found]


def run(made: Any, repack: Any, function: Any, threads: int) -> list[NDArray[Any]]:
    arrays = inputs(function)
    for packing in repack:
        arrays[packing.parameter] = packing(arrays[packing.parameter])
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    module = tvm.IRModule({"k": made.with_attr("global_symbol", "k")})
    build(module, tvm.target.Target(target_of("host", threads).description))["k"](*tensors)
    return [tensor.numpy() for tensor in tensors[-3:]]
