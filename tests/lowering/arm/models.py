"""A model of two kernels, convolution with relu and then a matrix product, compiled by TVM for 64-bit Arm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.s_tir import Schedule

from eqfuse.costmodels.device import Device
from eqfuse.lowering.plan.plan import Buffer, Call, Plan, View

SIDE, CHANNELS, FEATURES, CLASSES = 12, 8, 16, 32
PIXELS = SIDE * SIDE
CONV_MULTIPLY_ADDS = PIXELS * FEATURES * 9 * CHANNELS
MATMUL_MULTIPLY_ADDS = PIXELS * FEATURES * CLASSES

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TwoKernels:
    plan: Plan
    weights: dict[int, Floats]
    x: Floats
    expected: Floats


def two_kernels() -> TwoKernels:
    """x: a batch of one image, padded, height by width by channel. The kernels see x and y under other shapes."""
    rng = np.random.default_rng(0)
    x, filters, matrix = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((SIDE + 2, SIDE + 2, CHANNELS), (3, 3, CHANNELS, FEATURES), (FEATURES, CLASSES))
    )
    plan = Plan(
        buffers=(
            Buffer("image", "float32", x.shape),
            Buffer("filters", "float32", filters.shape),
            Buffer("features", "float32", (PIXELS, FEATURES)),
            Buffer("matrix", "float32", matrix.shape),
            Buffer("scores", "float32", (PIXELS, CLASSES)),
            Buffer('the "x"', "float32", (1, *x.shape)),
            Buffer("y", "float32", (1, SIDE, SIDE, CLASSES)),
        ),
        steps=(Call("conv_relu", (0, 1), (2,)), Call("matmul", (2, 3), (4,))),
        inputs=(5,),
        outputs=(6,),
        weights=(1, 3),
        views=(View(0, 5), View(6, 4)),
    )
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (0, 1))
    features = np.maximum(np.einsum("hwcij,ijco->hwo", windows, filters), 0).reshape(PIXELS, FEATURES)
    return TwoKernels(plan, {1: filters, 3: matrix}, x[None], (features @ matrix).reshape(1, SIDE, SIDE, CLASSES))


def compile_kernels(folder: Path, device: Device) -> list[Path]:
    """The object files of both kernels, one each, as processes working in parallel would leave them."""
    target = tvm.target.Target(
        {
            "kind": "llvm",
            "mtriple": device.mtriple,
            "mcpu": device.mcpu,
            "mattr": list(device.mattr),
            "num-cores": device.cores,
        }
    )
    objects = []
    for function in (_conv_relu(), _matmul()):
        path = folder / f"{function.attrs['global_symbol']}.o"
        tvm.compile(_tile(function), target=target).mod.write_to_file(str(path), "o")
        objects.append(path)
    return objects


def _conv_relu() -> tirx.PrimFunc:
    x = te.placeholder((SIDE + 2, SIDE + 2, CHANNELS), name="x")
    filters = te.placeholder((3, 3, CHANNELS, FEATURES), name="filters")
    i, j, c = (te.reduce_axis((0, extent)) for extent in (3, 3, CHANNELS))
    total = te.compute(
        (PIXELS, FEATURES),
        lambda p, o: te.sum(x[p // SIDE + i, p % SIDE + j, c] * filters[i, j, c, o], axis=[i, j, c]),
        name="total",
    )
    relu = te.compute(total.shape, lambda p, o: te.max(total[p, o], tirx.const(0, "float32")), name="result")
    return te.create_prim_func([x, filters, relu]).with_attr("global_symbol", "conv_relu")


def _matmul() -> tirx.PrimFunc:
    features = te.placeholder((PIXELS, FEATURES), name="features")
    matrix = te.placeholder((FEATURES, CLASSES), name="matrix")
    k = te.reduce_axis((0, FEATURES))
    total = te.compute((PIXELS, CLASSES), lambda p, o: te.sum(features[p, k] * matrix[k, o], axis=[k]), name="total")
    copy = te.compute(total.shape, lambda p, o: total[p, o], name="result")
    return te.create_prim_func([features, matrix, copy]).with_attr("global_symbol", "matmul")


def _tile(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """4 pixels by 8 columns in registers, the reduction around them."""
    schedule = Schedule(function)
    total, result = schedule.get_sblock("total"), schedule.get_sblock("result")
    pixels, columns = schedule.get_loops(result)
    outer, pixel = schedule.split(pixels, [None, 4])
    group, column = schedule.split(columns, [None, 8])
    schedule.reorder(outer, group, pixel, column)
    schedule.parallel(outer)
    schedule.vectorize(column)
    schedule.unroll(pixel)
    schedule.compute_at(total, group)
    schedule.set_scope(total, 0, "local")
    _, _, pixel, column, *reduction = schedule.get_loops(total)
    schedule.reorder(*reduction, pixel, column)
    schedule.vectorize(column)
    schedule.unroll(pixel)
    initial = schedule.get_loops(schedule.decompose_reduction(total, reduction[0]))
    schedule.vectorize(initial[-1])
    schedule.unroll(initial[-2])
    return schedule.mod
