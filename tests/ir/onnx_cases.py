"""Random calls of every operator with valid operands and canonical attributes, as ONNX models and e-graph terms."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper

from eqfuse.ir.operators import OPERATORS, RECURRENT, REDUCTIONS, Operand
from eqfuse.ir.operators.quantization import CONVERSIONS, INTEGER_PRODUCTS

Shape = tuple[int, ...]
Literal = int | float | str | tuple[int, ...]
Draw = Any
OPSET = 24


@dataclass(frozen=True)
class Case:
    """One call: the shapes of the operands (None: absent) and the literal arguments by name."""

    op: str
    shapes: tuple[Shape | None, ...]
    literals: dict[str, Literal] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32",)
    outputs: int = 1

    def dtype(self, position: int) -> str:
        """The dtype of an operand; the last one given holds for those after it."""
        return self.dtypes[min(position, len(self.dtypes) - 1)]


def shapes(rank: st.SearchStrategy[int] | None = None, low: int = 1, least: int = 0) -> st.SearchStrategy[Shape]:
    """Shapes of small tensors."""
    ranks = rank if rank is not None else st.integers(least, 5)
    return ranks.flatmap(lambda r: st.tuples(*[st.integers(low, 6)] * r))


@st.composite
def broadcast_shapes(draw: Draw, count: int) -> tuple[Shape, ...]:
    """Shapes that broadcast against each other."""
    whole = draw(shapes(low=0))
    return tuple(
        tuple(d if draw(st.booleans()) else 1 for d in whole[draw(st.integers(0, len(whole))) :]) for _ in range(count)
    )


def elementwise(op: str, literals: dict[str, Literal], dtype: str) -> st.SearchStrategy[Case]:
    return shapes(low=0).map(lambda s: Case(op, (s,), literals, (dtype,)))


def binary(op: str, literals: dict[str, Literal], dtype: str) -> st.SearchStrategy[Case]:
    return broadcast_shapes(2).map(lambda s: Case(op, s, literals, (dtype,)))


where = broadcast_shapes(3).map(lambda s: Case("Where", s, {}, ("bool", "float16")))
if_ = shapes(low=0).map(lambda s: Case("If", ((), s, s), {}, ("bool", "float16")))
clip = st.tuples(shapes(), st.booleans(), st.booleans()).map(
    lambda t: Case("Clip", (t[0], () if t[1] else None, () if t[2] else None))
)


@st.composite
def prelu(draw: Draw) -> Case:
    x = draw(shapes(least=1))
    return Case("PRelu", (x, tuple(d if draw(st.booleans()) else 1 for d in x[draw(st.integers(0, len(x) - 1)) :])))


@st.composite
def matmul(draw: Draw) -> Case:
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    stacks = draw(broadcast_shapes(2))
    left = draw(st.sampled_from([(k,), (*stacks[0], m, k)]))
    right = draw(st.sampled_from([(k,), (*stacks[1], k, n)]))
    return Case("MatMul", (left, right))


@st.composite
def conversion(draw: Draw, op: str) -> Case:
    x = draw(shapes())
    axis = draw(st.integers(0, len(x) - 1)) if x and draw(st.booleans()) else None
    parameter = () if axis is None else (x[axis],)
    integer, zero = draw(st.sampled_from(["int8", "uint8"])), draw(st.sampled_from([None, parameter]))
    made = integer if op == "DequantizeLinear" else "float32"
    return Case(op, (x, parameter, zero), {"axis": 1 if axis is None else axis}, (made, "float32", integer))


@st.composite
def integer_product(draw: Draw, op: str) -> Case:
    real = draw(matmul() if op == "MatMulInteger" else convolution())
    a, b = real.shapes[:2]
    types = tuple(draw(st.sampled_from(["int8", "uint8"])) for _ in "ab")
    listed = b[-1:] if op == "MatMulInteger" and len(b) == 2 else ()  # ONNX Runtime takes no others
    zeros = (draw(st.sampled_from([None, ()])), draw(st.sampled_from([None, (), listed])))
    return Case(op, (a, b, *zeros), real.literals, types * 2)


@st.composite
def gemm(draw: Draw) -> Case:
    m, k, n, flip_a, flip_b = (draw(st.integers(*r)) for r in ((1, 6), (1, 6), (1, 6), (0, 1), (0, 1)))
    literals: dict[str, Literal] = {"alpha": 1.0, "beta": 0.5, "transA": flip_a, "transB": flip_b}
    bias = draw(st.sampled_from([None, (n,), (m, 1), ()]))
    return Case("Gemm", ((k, m) if flip_a else (m, k), (n, k) if flip_b else (k, n), bias), literals)


@st.composite
def window(draw: Draw, rank: int) -> dict[str, Literal]:
    """A kernel that fits eight elements."""
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    return {
        "kernel_shape": kernel,
        "pads": tuple(draw(st.integers(0, k - 1)) for k in kernel * 2),
        "strides": tuple(draw(st.integers(1, 3)) for _ in range(rank)),
        "dilations": tuple(draw(st.integers(1, 3)) for _ in range(rank)),
    }


@st.composite
def convolution(draw: Draw) -> Case:
    rank, groups, channels = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    literals = draw(window(rank)) | {"group": groups}
    x = (draw(st.integers(1, 3)), groups * channels, *(draw(st.integers(7, 12)) for _ in range(rank)))
    w = (groups * draw(st.integers(1, 3)), channels, *literals["kernel_shape"])
    return Case("Conv", (x, w, draw(st.sampled_from([None, (w[0],)]))), literals)


@st.composite
def transposed_convolution(draw: Draw) -> Case:
    rank, groups, channels = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    literals = draw(window(rank)) | {"group": groups}
    literals["output_padding"] = tuple(draw(st.integers(0, s - 1)) for s in literals["strides"])
    x = (draw(st.integers(1, 3)), groups * channels, *(draw(st.integers(5, 9)) for _ in range(rank)))
    w = (groups * channels, draw(st.integers(1, 3)), *literals["kernel_shape"])
    return Case("ConvTranspose", (x, w, None), literals)


@st.composite
def pool(draw: Draw, op: str) -> Case:
    rank = draw(st.integers(1, 3))
    more = {"AveragePool": "count_include_pad", "MaxPool": "storage_order"}[op]
    literals = draw(window(rank)) | {"ceil_mode": draw(st.integers(0, 1)), more: 0}
    return Case(op, ((1, 2, *(draw(st.integers(7, 12)) for _ in range(rank))),), literals)


def global_pool(op: str) -> st.SearchStrategy[Case]:
    return shapes(st.integers(3, 5)).map(lambda s: Case(op, (s,)))


@st.composite
def normalization(draw: Draw, op: str) -> Case:
    x = draw(shapes(st.integers(3, 5)))
    channel = (x[1],)
    if op == "BatchNormalization":
        return Case(op, (x, channel, channel, channel, channel), {"epsilon": 1e-5})
    if op == "InstanceNormalization":
        return Case(op, (x, channel, channel), {"epsilon": 1e-5})
    if op == "GroupNormalization":
        return Case(op, (x, channel, channel), {"epsilon": 1e-5, "num_groups": 1, "stash_type": 1})
    axis = draw(st.integers(0, len(x) - 1))
    literals: dict[str, Literal] = {"axis": axis, "epsilon": 1e-5, "stash_type": 1}
    return Case(op, (x, x[axis:], None) if op == "LayerNormalization" else (x, x[axis:]), literals)


@st.composite
def along_axis(draw: Draw, op: str) -> Case:
    x = draw(shapes(least=1))
    drawn: dict[str, Literal] = {"axis": draw(st.integers(0, len(x) - 1))}
    for attribute in OPERATORS[op].attributes:
        drawn.setdefault(attribute.name, draw(st.integers(0, 1)))
    return Case(op, (x,), drawn)


@st.composite
def reduction(draw: Draw, op: str) -> Case:
    x = draw(shapes(least=1))
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(x) - 1), min_size=1))))
    return Case(op, (x,), {"axes": axes, "keepdims": draw(st.integers(0, 1))})


@st.composite
def cumulative(draw: Draw) -> Case:
    x = draw(shapes(least=1))
    return Case("CumSum", (x,), {"axis": (draw(st.integers(0, len(x) - 1)),), "exclusive": 0, "reverse": 1})


@st.composite
def reshape(draw: Draw) -> Case:
    x = draw(shapes())
    return Case("Reshape", (x,), {"shape": tuple(draw(st.permutations((*x, 1))))})


@st.composite
def flatten(draw: Draw) -> Case:
    x = draw(shapes(least=1))
    return Case("Flatten", (x,), {"axis": draw(st.integers(0, len(x)))})


@st.composite
def squeeze(draw: Draw) -> Case:
    x = draw(shapes(least=1))
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(x) - 1)))))
    return Case("Squeeze", (tuple(1 if i in axes else d for i, d in enumerate(x)),), {"axes": axes})


@st.composite
def unsqueeze(draw: Draw) -> Case:
    x = draw(shapes())
    rank = len(x) + draw(st.integers(1, 3))
    axes = sorted(draw(st.permutations(range(rank)))[: rank - len(x)])
    return Case("Unsqueeze", (x,), {"axes": tuple(axes)})


@st.composite
def transpose(draw: Draw) -> Case:
    x = draw(shapes(st.integers(1, 6)))
    return Case("Transpose", (x,), {"perm": tuple(draw(st.permutations(range(len(x)))))})


@st.composite
def expand(draw: Draw) -> Case:
    x, target = draw(broadcast_shapes(2))
    return Case("Expand", (x,), {"shape": target})


@st.composite
def tile(draw: Draw) -> Case:
    x = draw(shapes(least=1))
    return Case("Tile", (x,), {"repeats": tuple(draw(st.integers(1, 4)) for _ in x)})


@st.composite
def slicing(draw: Draw) -> Case:
    x = draw(shapes(least=1))
    axes = tuple(draw(st.permutations(range(len(x))))[: draw(st.integers(1, 4))])
    starts = tuple(draw(st.integers(0, x[a])) for a in axes)
    ends = tuple(draw(st.integers(s, x[a] + 2)) for s, a in zip(starts, axes, strict=True))
    steps = tuple(draw(st.integers(1, 4)) for _ in axes)
    return Case("Slice", (x,), {"starts": starts, "ends": ends, "axes": axes, "steps": steps})


@st.composite
def gather(draw: Draw) -> Case:
    x = draw(shapes(least=1))
    axis = draw(st.integers(0, len(x) - 1))
    return Case("Gather", (x, draw(shapes(st.integers(0, 3)))), {"axis": axis}, ("float32", "int64"))


@st.composite
def padding(draw: Draw) -> Case:
    x = draw(shapes(least=1))
    pads = tuple(draw(st.integers(0, 3)) for _ in x + x)
    return Case("Pad", (x, draw(st.sampled_from([None, ()]))), {"pads": pads, "mode": "constant"})


@st.composite
def depth_space(draw: Draw, op: str) -> Case:
    n, c, h, w, b = (draw(st.integers(1, 4)) for _ in range(5))
    if op == "DepthToSpace":
        return Case(op, ((n, c * b * b, h, w),), {"blocksize": b, "mode": "DCR"})
    return Case(op, ((n, c, h * b, w * b),), {"blocksize": b})


@st.composite
def concat(draw: Draw) -> Case:
    x = draw(shapes(least=1))
    axis = draw(st.integers(0, len(x) - 1))
    return Case("Concat", (x, (*x[:axis], draw(st.integers(1, 6)), *x[axis + 1 :])), {"axis": axis})


@st.composite
def split(draw: Draw) -> Case:
    x = draw(shapes(least=1))
    axis = draw(st.integers(0, len(x) - 1))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    x = (*x[:axis], sum(sizes), *x[axis + 1 :])
    return Case("Split", (x,), {"split": tuple(sizes), "axis": axis}, outputs=len(sizes))


@st.composite
def recurrence(draw: Draw, op: str) -> Case:
    steps, batch, inputs, hidden = (draw(st.integers(1, 4)) for _ in range(4))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions, rows = 2 if direction == "bidirectional" else 1, {"RNN": 1, "GRU": 3, "LSTM": 4}[op] * hidden
    x, w, r = (steps, batch, inputs), (directions, rows, inputs), (directions, rows, hidden)
    state = draw(st.sampled_from([None, (directions, batch, hidden)]))
    more = (state, draw(st.sampled_from([None, (directions, 3 * hidden)]))) if op == "LSTM" else ()
    operands = (x, w, r, draw(st.sampled_from([None, (directions, 2 * rows)])), None, state, *more)
    literals: dict[str, Literal] = {"hidden_size": hidden, "direction": direction, "layout": 0, "config": "{}"}
    return Case(op, operands, literals, outputs=OPERATORS[op].outputs)


SPECIAL: dict[str, st.SearchStrategy[Case]] = {
    **{op: conversion(op) for op in CONVERSIONS}, **{op: integer_product(op) for op in INTEGER_PRODUCTS},
    "Where": where, "If": if_, "Clip": clip,
    "PRelu": prelu(), "MatMul": matmul(), "Gemm": gemm(), "Conv": convolution(),
    "ConvTranspose": transposed_convolution(), "CumSum": cumulative(), "Reshape": reshape(), "Flatten": flatten(),
    "Squeeze": squeeze(), "Unsqueeze": unsqueeze(), "Transpose": transpose(), "Expand": expand(), "Tile": tile(),
    "Slice": slicing(), "Gather": gather(), "Pad": padding(), "Concat": concat(), "Split": split(),
    "DepthToSpace": depth_space("DepthToSpace"), "SpaceToDepth": depth_space("SpaceToDepth"),
    "AveragePool": pool("AveragePool"), "MaxPool": pool("MaxPool"),
    "GlobalAveragePool": global_pool("GlobalAveragePool"), "GlobalMaxPool": global_pool("GlobalMaxPool"),
}  # fmt: skip
DTYPES = {
    **dict.fromkeys(("Not", "And", "Or", "Xor"), "bool"),
    **dict.fromkeys(("BitwiseNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mod"), "int32"),
    "BitShift": "uint8",
}
LITERALS: dict[str, Literal] = {"to": "float16", "direction": "LEFT"}


def cases(op: str) -> st.SearchStrategy[Case]:
    """Calls of an operator."""
    operator = OPERATORS[op]
    literals = {a.name: LITERALS.get(a.name, a.default or 0) for a in operator.attributes}
    dtype = DTYPES.get(op, "float32")
    if op in SPECIAL:
        return SPECIAL[op]
    if op in REDUCTIONS:
        return reduction(op)
    if op in RECURRENT:
        return recurrence(op)
    if "axis" in literals and len(operator.operands) == 1:
        return along_axis(op)
    if operator.category == "normalization":
        return normalization(op)
    return (elementwise if len(operator.operands) == 1 else binary)(op, literals, dtype)


def egglog_literal(value: Literal) -> str:
    """A literal in egglog text."""
    if isinstance(value, tuple):
        return f"(vec-of {' '.join(map(str, value))})" if value else "(vec-empty)"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def egglog_operand(name: str, shape: Shape | None) -> str:
    return "(Absent)" if shape is None else f'(Var "{name}")'


def egglog_term(case: Case, prefix: str) -> str:
    """The call with operands ``(Var "<prefix><position>")``."""
    operands = iter(egglog_operand(f"{prefix}{i}", s) for i, s in enumerate(case.shapes))
    arguments = (
        next(operands) if isinstance(a, Operand) else egglog_literal(case.literals[a.name])
        for a in OPERATORS[case.op].arguments
    )
    return f"({case.op} {' '.join(arguments)})"


def _element_type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def onnx_model(case: Case) -> onnx.ModelProto:
    """A model of the one call: inputs ``x0``, ``x1``, ... by operand, outputs ``y0``, ``y1``, ..."""
    inputs, initializers, attributes, names = [], [], {}, []
    operands = iter(enumerate(case.shapes))
    for position, argument in enumerate(OPERATORS[case.op].arguments):
        if isinstance(argument, Operand):
            i, shape = next(operands)
            names.append("" if shape is None else f"x{i}")
            if shape is not None:
                inputs.append(helper.make_tensor_value_info(f"x{i}", _element_type(case.dtype(i)), shape))
        elif argument.input_since is not None:
            value = case.literals[argument.name]
            assert isinstance(value, tuple)
            dims = [] if case.op == "CumSum" else [len(value)]
            initializers.append(helper.make_tensor(f"c{position}", TensorProto.INT64, dims, value))
            names.append(f"c{position}")
        else:
            value = case.literals[argument.name]
            attributes[argument.name] = _element_type(str(value)) if argument.name == "to" else value
    attributes |= json.loads(attributes.pop("config", "{}"))
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, **attributes)
    graph = helper.make_graph(
        [node], "case", inputs, [helper.make_empty_tensor_value_info(o) for o in outputs], initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def onnx_types(case: Case) -> list[tuple[Shape, str]]:
    """Shapes and dtypes of the outputs as ONNX infers them."""
    model = onnx_model(case)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    return [_type(output) for output in inferred.graph.output]


def _type(value: onnx.ValueInfoProto) -> tuple[Shape, str]:
    tensor = value.type.tensor_type
    return tuple(d.dim_value for d in tensor.shape.dim), str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
