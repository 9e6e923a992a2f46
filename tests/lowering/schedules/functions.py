"""Small functions of TVM's tensor IR to schedule, and the check that a schedule computes what the function computes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, s_tir, sym, te, tirx, topi
from tvm.s_tir import stmt as s_stmt

from eqfuse.costmodels.device import Device, load_device
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.schedules import Scheduled, mark_constants, schedule
from eqfuse.lowering.schedules.base.blocks import walk

Shape = tuple[int, ...]
HOST: Device = load_device("host")
SERVER: Device = load_device("x86-64-v4")
"""A device for tests of estimates and scripts, which run nothing: their numbers are the same on every machine."""
ARM: Device = load_device("arm-cortex-a76")
TARGET: dict[str, Any] = target_of("host", threads=2).description
REFERENCE: dict[str, Any] = TARGET | {"opt-level": 0}
"""For functions without a schedule, which only say what is right: making them faster takes longer than running them."""


def convolution(
    shape: Shape, outputs: int, kernel: int, stride: int = 1, pad: int = 0, group: int = 1, epilogue: bool = True
) -> Any:
    """A convolution in NCHW, with bias and relu if `epilogue`; its weights are constant."""
    x = te.placeholder(shape, name="x")
    w = te.placeholder((outputs, shape[1] // group, kernel, kernel), name="w")
    if group == 1:
        y = topi.nn.conv2d(x, w, stride, pad, 1, "NCHW")
    elif group == shape[1] == outputs:
        y = topi.nn.depthwise_conv2d_nchw(x, w, stride, pad, 1)
    else:
        y = topi.nn.group_conv2d_nchw(x, w, stride, pad, 1, group)
    if not epilogue:
        return mark_constants(te.create_prim_func([x, w, y]), (1,))
    b = te.placeholder((outputs,), name="b")
    biased = te.compute(y.shape, lambda n, c, i, j: y[n, c, i, j] + b[c], name="biased")
    return mark_constants(te.create_prim_func([x, w, b, topi.nn.relu(biased)]), (1, 2))


def matmul(rows: int, depth: int, columns: int, batch: Shape = (), constant: bool = True, flip: bool = False) -> Any:
    """A product of matrices, of the second flipped if `flip`."""
    a = te.placeholder((*batch, rows, depth), name="a")
    b = te.placeholder((*batch, columns, depth) if flip else (*batch, depth, columns), name="b")
    k = te.reduce_axis((0, depth), name="k")

    def element(*i: Any) -> Any:
        right = b(*i[:-2], i[-1], k) if flip else b(*i[:-2], k, i[-1])
        return te.sum(a(*i[:-1], k) * right, axis=k)

    product = te.compute((*batch, rows, columns), element, name="product")
    return mark_constants(te.create_prim_func([a, b, product]), (1,) if constant else ())


def of_one(shape: Shape, *steps: Any) -> Any:
    """The steps one after the other on one input."""
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, reduce(lambda y, step: step(y), steps, x)])


def layer_norm(shape: Shape) -> Any:
    """A layer normalisation over the last axis, in stages."""
    x, gain = te.placeholder(shape, name="x"), te.placeholder(shape[-1:], name="gain")
    j, k = te.reduce_axis((0, shape[-1]), name="j"), te.reduce_axis((0, shape[-1]), name="k")
    total = te.compute(shape[:-1], lambda *i: te.sum(x(*i, j), axis=j), name="total")
    size = float(shape[-1])
    squares = te.compute(
        shape[:-1],
        lambda *i: te.sum((x(*i, k) - total(*i) / size) * (x(*i, k) - total(*i) / size), axis=k),
        name="squares",
    )
    factor = te.compute(shape[:-1], lambda *i: 1.0 / te.sqrt(squares(*i) / size + 1e-5), name="factor")
    y = te.compute(shape, lambda *i: (x(*i) - total(*i[:-1]) / size) * factor(*i[:-1]) * gain(i[-1]), name="y")
    return te.create_prim_func([x, gain, y])


def pool(shape: Shape, kernel: int, stride: int, pad: int, kind: str = "max") -> Any:
    """A pooling in NCHW."""
    return of_one(
        shape,
        lambda x: topi.nn.pool2d(x, (kernel,) * 2, (stride,) * 2, (1, 1), (pad,) * 4, kind, count_include_pad=False),
    )


def check(
    function: Any, rule: str, device: Device = HOST, threads: int = 1, target: dict[str, Any] = TARGET
) -> Scheduled:
    """Schedule by the rule of that name, and compare with the function without a schedule."""
    scheduled = schedule(function, device, threads)
    assert scheduled.rule == rule, scheduled.rule
    s_tir.analysis.verify_well_formed(scheduled.schedule.mod["main"])
    arrays = inputs(function)
    expected = run(function, arrays, REFERENCE)
    np.testing.assert_allclose(execute(scheduled, arrays, target), expected, rtol=1e-4, atol=1e-5)
    return scheduled


def inputs(function: Any) -> list[Any]:
    """Numbers for all parameters of a function, integers from 0 to 2, but NaN for the last, which is its output."""
    generator = np.random.default_rng(0)

    def draw(shape: Shape, dtype: str) -> Any:
        if "int" in dtype:
            return generator.integers(0, 3, shape, dtype)
        numbers = generator.standard_normal(shape)
        return numbers > 0 if dtype == "bool" else numbers.astype(dtype)

    shapes = [tuple(int(d) for d in p.shape) for p in function.params]
    arrays = [draw(shape, str(p.dtype)) for shape, p in zip(shapes, function.params, strict=True)]
    return [*arrays[:-1], np.full(shapes[-1], np.nan, np.float32)]


def execute(scheduled: Scheduled, arrays: Sequence[Any], target: dict[str, Any] = TARGET) -> Any:
    """The last parameter after a call of a scheduled function, its constants packed before."""
    packed = list(arrays)
    for repack in scheduled.repack:
        shape = repack.packed_shape(packed[repack.parameter].shape)
        packed[repack.parameter] = repack(packed[repack.parameter])
        assert packed[repack.parameter].shape == shape
    return run(scheduled.schedule.mod["main"], packed, target)


def run(function: Any, arrays: Sequence[Any], target: dict[str, Any] = TARGET) -> Any:
    """The last parameter after a call."""
    tensors = [tvm.runtime.tensor(a) for a in arrays]
    _compile(function, json.dumps(target))(*tensors)
    return tensors[-1].numpy()


@lru_cache(maxsize=4)
def _compile(function: Any, target: str) -> Any:
    """Keeps what one test compiled for the next, which calls it with other sizes."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tvm.compile(module, target=tvm.target.Target(json.loads(target)))["main"]


def count_multiply_adds(scheduled: Scheduled) -> int:
    """Executions of `sum = sum + a * b` and of the like in the loops, whatever the guards of blocks say."""

    def count(node: Any, times: int) -> int:
        if isinstance(node, tirx.For):
            if not _has_condition(node.body):
                return count(node.body, times * int(node.extent))
            return sum(count(_put(node.body, node.loop_var, place), times) for place in range(int(node.extent)))
        if isinstance(node, tirx.AttrStmt):
            return count(node.body, times)
        if isinstance(node, tirx.SeqStmt):
            *parts, last = node.seq
            for part in parts:  # a name for a value holds for what follows it
                if isinstance(part, tirx.Bind):
                    rest = [_put(other, part.var, part.value) for other in node.seq if not other.same_as(part)]
                    return count(tirx.SeqStmt(rest) if len(rest) > 1 else rest[0], times)
            return sum(count(part, times) for part in (*parts, last))
        if isinstance(node, tirx.IfThenElse):
            condition = sym.Analyzer().simplify(node.condition)
            assert isinstance(condition, tirx.IntImm)
            branch = node.then_case if bool(condition.value) else node.else_case
            return count(branch, times) if branch is not None else 0
        if isinstance(node, s_stmt.SBlockRealize):
            return count(node.block.body, times)
        if not isinstance(node, tirx.BufferStore) or not isinstance(node.value, tirx.Add):
            return 0
        own = any(isinstance(p, ir.TensorLoad) and p.source.same_as(node.buffer) for p in walk(node.value))
        return times if own and any(isinstance(side, tirx.Mul) for side in (node.value.a, node.value.b)) else 0

    return count(scheduled.schedule.mod["main"].body, 1)


def _has_condition(node: Any) -> bool:
    """Whether a statement inside of this one has a condition, or names a value that one may have."""
    if isinstance(node, tirx.SeqStmt):
        return any(map(_has_condition, node.seq))
    inside = getattr(node, "body", None) if not isinstance(node, s_stmt.SBlockRealize) else node.block.body
    return isinstance(node, tirx.IfThenElse | tirx.Bind) or (inside is not None and _has_condition(inside))


def _put(node: Any, variable: Any, value: Any) -> Any:
    """The statement with a value in the place of a variable."""
    number = tirx.const(value, "int32") if isinstance(value, int) else value
    return tvm_ffi.structural_map(node, [(tirx.Var, lambda part: number if part.same_as(variable) else part)])
