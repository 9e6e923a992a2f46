"""Mapping types: against what the operators do to numbers, and where shapes are unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.partition.baselines.mapping_types import (
    MappingType,
    edge_mapping_type,
    mapping_type,
    mapping_types,
)
from eqfuse.ir.graph import OperatorGraph
from eqfuse.ir.operators import STANDARD

from ....properties import examples
from ..graphs import Builder, operator_graphs
from ..perturbation import Call, observed

ONE, REORGANIZE, SHUFFLE, COPIED, MANY = MappingType

_BOOLEAN = ("Not", "And", "Or", "Xor")
_INTEGER = ("BitwiseNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mod")
_WINDOW = {"kernel_shape": (2, 2), "pads": (0, 0, 0, 0), "strides": (1, 1), "dilations": (1, 1)}
_POINT = _WINDOW | {"kernel_shape": (1, 1)}
_NEAREST = '{"scales": [1.0, 2.0], "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}'
_LINEAR = '{"scales": [1.0, 2.0], "coordinate_transformation_mode": "half_pixel"}'
_SAME = '{"scales": [1.0, 1.0], "coordinate_transformation_mode": "half_pixel"}'


def _dtype(op: str) -> str:
    if op in _BOOLEAN:
        return "bool"
    return "uint8" if op in (*_INTEGER, "BitShift") else "float32"


def _elementwise() -> list[Call]:
    """Unary operators, and binary ones on equal shapes and with a broadcast on either side."""
    calls = []
    for operator in STANDARD.values():
        if operator.category == "elementwise.unary":
            attributes = {"to": "float64"} if operator.name == "Cast" else {}
            calls.append(Call(operator.name, ((2, 3),), attributes, (_dtype(operator.name),)))
        elif operator.category == "elementwise.binary":
            attributes = {"direction": "LEFT"} if operator.name == "BitShift" else {}
            others: list[tuple[int, ...]] = [(2, 3), (3,), (1, 1)]
            if operator.name != "PRelu":
                others.append((2, 2, 3))
            calls += [Call(operator.name, ((2, 3), o), attributes, (_dtype(operator.name),) * 2) for o in others]
    return calls


_OTHERS = [
    Call("Where", ((2, 3), (2, 3), (2, 3)), dtypes=("bool",)),
    Call("Where", ((2, 1), (2, 3), (1,)), dtypes=("bool",)),
    Call("If", ((), (2, 3), (2, 3)), dtypes=("bool",)),
    Call("Clip", ((2, 3), (), ())),
    Call("MatMul", ((2, 3), (3, 2))),
    Call("MatMul", ((2, 2, 3), (3, 2))),
    Call("MatMul", ((2, 1), (1, 3))),
    Call("Gemm", ((2, 3), (3, 2), (2,))),
    Call("Gemm", ((2, 3), (3, 2), (2, 2))),
    Call("Gemm", ((1, 2), (1, 3)), {"transA": 1}),
    Call("Conv", ((1, 2, 3, 3), (2, 2, 2, 2), (2,)), _WINDOW),
    Call("QuantizeLinear", ((2, 3), (), ()), {"axis": 1}, ("float32", "float32", "uint8")),
    Call("QuantizeLinear", ((2, 3), (3,)), {"axis": 1}),
    Call("DequantizeLinear", ((2, 3), (2,), (2,)), {"axis": 0}, ("uint8", "float32", "uint8")),
    Call("MatMulInteger", ((2, 3), (3, 2), (), (2,)), dtypes=("uint8",) * 4),
    Call("ConvInteger", ((1, 2, 3, 3), (2, 2, 2, 2), (), (2,)), _WINDOW, ("uint8",) * 4),
    Call("Conv", ((1, 2, 2, 2), (2, 2, 1, 1)), _POINT),
    Call("ConvTranspose", ((1, 2, 2, 2), (2, 2, 2, 2), (2,)), _WINDOW | {"output_padding": (0, 0)}),
    Call("BatchNormalization", ((2, 2, 3), (2,), (2,), (2,), (2,))),
    Call("InstanceNormalization", ((2, 2, 3), (2,), (2,))),
    Call("InstanceNormalization", ((2, 2, 1), (2,), (2,))),
    Call("LayerNormalization", ((2, 3), (3,), (3,)), {"axis": 1}),
    Call("LayerNormalization", ((2, 2, 3), (2, 3)), {"axis": 1}),
    Call("RMSNormalization", ((2, 3), (3,)), {"axis": 1}),
    Call("GroupNormalization", ((2, 4, 2), (4,), (4,)), {"num_groups": 2}),
    Call("Softmax", ((2, 3),), {"axis": 1}),
    Call("Softmax", ((2, 1),), {"axis": 1}),
    Call("LogSoftmax", ((2, 3),), {"axis": 0}),
    Call("Hardmax", ((2, 3),), {"axis": 1}),
    Call("CumSum", ((2, 3),), {"axis": (0,)}),
    Call("ArgMax", ((2, 3),), {"axis": 1}),
    Call("ArgMin", ((2, 3),), {"axis": 0, "keepdims": 0}),
    Call("CumSum", ((1, 3),), {"axis": (0,)}),
    Call("AveragePool", ((1, 1, 3, 3),), _WINDOW),
    Call("MaxPool", ((1, 1, 3, 3),), _WINDOW),
    Call("MaxPool", ((1, 1, 3, 3),), _POINT | {"strides": (2, 2)}),
    Call("GlobalAveragePool", ((1, 2, 2, 2),)),
    Call("GlobalMaxPool", ((1, 2, 1, 1),)),
    Call("Reshape", ((2, 3),), {"shape": (3, 2)}),
    Call("Reshape", ((2, 3),), {"shape": (2, 3)}),
    Call("Flatten", ((2, 3, 2),), {"axis": 1}),
    Call("Flatten", ((2, 3),), {"axis": 1}),
    Call("Squeeze", ((2, 1),), {"axes": (1,)}),
    Call("Unsqueeze", ((2,),), {"axes": (0,)}),
    Call("Transpose", ((2, 3),), {"perm": (1, 0)}),
    Call("Transpose", ((2, 1, 3),), {"perm": (1, 0, 2)}),
    Call("Transpose", ((2, 3),), {"perm": (0, 1)}),
    Call("Expand", ((2, 1),), {"shape": (2, 3)}),
    Call("Expand", ((2, 3),), {"shape": (2, 3)}),
    Call("Expand", ((2, 3),), {"shape": (1, 2, 3)}),
    Call("Tile", ((2, 3),), {"repeats": (1, 2)}),
    Call("Tile", ((2, 3),), {"repeats": (1, 1)}),
    Call("Slice", ((4, 3),), {"starts": (1,), "ends": (3,), "axes": (0,), "steps": (1,)}),
    Call("Gather", ((3, 2), (2, 2)), {"axis": 0}, ("float32", "int64")),
    Call("Gather", ((3, 2), ()), {"axis": 0}, ("float32", "int64")),
    Call("Gather", ((3,), (4,)), {"axis": 0}, ("float32", "int64")),
    Call("Pad", ((2, 3), ()), {"pads": (1, 0, 0, 1), "mode": "constant"}),
    Call("Pad", ((2, 3),), {"pads": (1, 0, 1, 0), "mode": "edge"}),
    Call("Pad", ((3, 2),), {"pads": (1, 0, -1, 0), "mode": "reflect"}),
    Call("Pad", ((2, 3),), {"pads": (0, -1, 0, 0), "mode": "reflect"}),
    Call("DepthToSpace", ((1, 4, 2, 2),), {"blocksize": 2, "mode": "DCR"}),
    Call("SpaceToDepth", ((1, 1, 4, 4),), {"blocksize": 2}),
    Call("SpaceToDepth", ((1, 1, 2, 2),), {"blocksize": 1}),
    Call("Concat", ((2, 3), (2, 2)), {"axis": 1}),
    Call("Split", ((2, 4),), {"axis": 1, "split": (1, 3)}),
    *(
        Call(head, ((2, 1, 2), (1, rows, 2), (1, rows, 2)), {"hidden_size": 2, "direction": "forward", "config": "{}"})
        for head, rows in {"RNN": 2, "GRU": 6, "LSTM": 8}.items()
    ),
    Call("Resize", ((2, 3),), {"mode": "nearest", "config": _NEAREST}),
    Call("Resize", ((2, 3),), {"mode": "linear", "config": _LINEAR}),
    Call("Resize", ((2, 3),), {"mode": "linear", "config": _SAME}),
]
_REDUCTIONS = [
    Call(operator.name, ((2, 3),), {"axes": (1,)})
    for operator in STANDARD.values()
    if operator.name.startswith("Reduce")
]
CALLS = [*_elementwise(), *_OTHERS, *_REDUCTIONS]


def _name(call: Call) -> str:
    return f"{call.op}-{'-'.join('x'.join(map(str, shape)) or 'scalar' for shape in call.shapes)}"


def _assert_as_observed(call: Call, runs: int = 8) -> None:
    graph = call.graph()
    found = [edge_mapping_type(graph, position, 0) for position in range(len(call.shapes))]
    assert found == [observed(call, position, runs) for position in range(len(call.shapes))]


@pytest.mark.representatives(70)
@pytest.mark.parametrize("call", CALLS, ids=_name)
def test_each_pair_has_the_type_that_the_numbers_show(call: Call) -> None:
    _assert_as_observed(call)


def test_every_operator_of_the_rules_is_called_above() -> None:
    assert STANDARD.keys() - {call.op for call in CALLS} == set()


_SIDES = st.integers(1, 3)


@given(st.data())
@examples(15)
def test_any_broadcast_has_the_type_that_the_numbers_show(data: st.DataObject) -> None:
    shape = data.draw(st.lists(_SIDES, max_size=3))
    shapes = [tuple(data.draw(st.sampled_from((1, n))) for n in shape) for _ in range(2)]
    _assert_as_observed(Call("Add", (shapes[0], shapes[1][data.draw(st.integers(0, len(shape))) :])), runs=1)


@given(st.data())
@examples(15)
def test_any_transposition_has_the_type_that_the_numbers_show(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(_SIDES, min_size=1, max_size=4)))
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    _assert_as_observed(Call("Transpose", (shape,), {"perm": perm}), runs=3)


@given(st.lists(_SIDES, min_size=1, max_size=3).map(tuple), st.data())
@examples(15)
def test_any_sum_has_the_type_that_the_numbers_show(shape: tuple[int, ...], data: st.DataObject) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    keepdims = data.draw(st.integers(0, 1))
    _assert_as_observed(Call("ReduceSum", (shape,), {"axes": axes, "keepdims": keepdims}), runs=1)


@given(_SIDES, _SIDES, _SIDES, st.sampled_from(((), (1,), (2,))), st.sampled_from(((), (1,), (2,))))
@examples(15)
def test_any_product_has_the_type_that_the_numbers_show(
    m: int, k: int, n: int, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    _assert_as_observed(Call("MatMul", ((*left, m, k), (*right, k, n))), runs=2)


def test_an_operator_has_the_type_of_its_most_complex_operand() -> None:
    builder = Builder()
    builder.op("Add", builder.input(2, 3), builder.input(3))
    graph = builder.graph()
    assert mapping_type(graph.operators[0], graph) is COPIED


def test_a_broadcast_constant_does_not_count() -> None:
    builder = Builder()
    builder.op("Add", builder.input(2, 3), builder.constant(3))
    graph = builder.graph()
    assert mapping_type(graph.operators[0], graph) is ONE


def test_a_broadcast_input_counts_although_the_other_operand_is_constant() -> None:
    builder = Builder()
    builder.op("Add", builder.input(3), builder.constant(2, 3))
    graph = builder.graph()
    assert mapping_type(graph.operators[0], graph) is COPIED


def test_an_operand_given_twice_counts_once() -> None:
    builder = Builder()
    x = builder.input(2, 3)
    builder.op("Mul", x, x)
    assert edge_mapping_type(builder.graph(), x, 0) is ONE


def test_a_value_joined_to_itself_is_copied() -> None:
    builder = Builder()
    x = builder.input(2, 3)
    builder.op("Concat", x, x, shape=(4, 3), axis=0)
    assert edge_mapping_type(builder.graph(), x, 0) is COPIED


def test_an_absent_operand_is_passed_over() -> None:
    builder = Builder()
    x = builder.input(2, 3)
    builder.op("Clip", x, None, builder.constant())
    assert mapping_types(builder.graph()) == (ONE,)


def test_equal_symbols_are_no_broadcast() -> None:
    builder = Builder()
    builder.op("Add", builder.input("n", 3), builder.input("n", 3), shape=("n", 3))
    assert mapping_types(builder.graph()) == (ONE,)


def test_unlike_symbols_may_be_a_broadcast() -> None:
    builder = Builder()
    builder.op("Add", builder.input("n", 3), builder.input("m", 3), shape=("n", 3))
    assert mapping_types(builder.graph()) == (COPIED,)


def test_moving_a_symbolic_axis_is_a_shuffle() -> None:
    builder = Builder()
    builder.op("Transpose", builder.input("n", 3), shape=(3, "n"), perm=(1, 0))
    assert mapping_types(builder.graph()) == (SHUFFLE,)


def test_a_reshape_of_symbols_reorganizes() -> None:
    builder = Builder()
    builder.op("Reshape", builder.input("n", 3), shape=(3, "n"))
    assert mapping_types(builder.graph()) == (REORGANIZE,)


@pytest.mark.parametrize(
    ("op", "type_"),
    [("Relu", ONE), ("Add", COPIED), ("Reshape", COPIED), ("Transpose", COPIED), ("ReduceSum", MANY)],
)
def test_an_unknown_shape_counts_as_the_worse_case(op: str, type_: MappingType) -> None:
    builder = Builder()
    builder.node(op, [builder.unknown()], [None])
    assert mapping_types(builder.graph()) == (type_,)


@pytest.mark.parametrize("op", ["Shape", "NonZero", "Unheard"])
def test_an_operator_that_is_not_listed_has_no_type(op: str) -> None:
    builder = Builder()
    builder.op(op, builder.input(2))
    assert mapping_types(builder.graph()) == (None,)


def test_an_opaque_operator_has_no_type() -> None:
    builder = Builder()
    x = builder.input(2)
    builder.node("Relu", [x], [(2,)], is_opaque=True)
    graph = builder.graph()
    assert (mapping_types(graph), edge_mapping_type(graph, x, 0)) == ((None,), None)


def test_a_value_that_is_not_read_has_no_pair() -> None:
    builder = Builder()
    y = builder.op("Relu", builder.input(2))
    with pytest.raises(ValueError, match="n0 does not read v1"):
        edge_mapping_type(builder.graph(), y, 0)


@given(operator_graphs())
@examples(15)
def test_no_pair_is_more_complex_than_its_operator(graph: OperatorGraph) -> None:
    types = mapping_types(graph)
    for index, operator in enumerate(graph.operators):
        varying = [v for v in operator.inputs if v is not None and not graph.values[v].is_constant]
        pairs = [edge_mapping_type(graph, v, index) for v in varying]
        assert all(p is not None for p in pairs) == (types[index] is not None)
        assert max((p for p in pairs if p is not None), default=None) == types[index]
