"""FLOPs against counts made by hand."""

from __future__ import annotations

import pytest

from eqfuse.costmodels.flops import flops
from eqfuse.ir.operation import Attributes, Operation
from eqfuse.ir.operators import OPERATORS
from eqfuse.ir.types import TensorType
from eqfuse.rules import sexpr
from eqfuse.rules.sexpr import Atom, Node

from ..extract.partition.graphs import Builder
from ..tools.discovery.table4 import TABLE_4

Shape = tuple[int, ...]


def count(op: str, attributes: Attributes, operands: list[Shape], output: Shape) -> float:
    types = tuple(TensorType("float32", o) for o in operands)
    return flops(Operation.of(op, attributes, types, TensorType("float32", output)))


@pytest.mark.parametrize(
    ("op", "attributes", "operands", "output", "expected"),
    [
        ("MatMul", {}, [(2, 3, 4), (4, 5)], (2, 3, 5), 2 * 2 * 3 * 4 * 5),
        ("MatMul", {}, [(4,), (4,)], (), 2 * 4),
        ("Gemm", {"transA": 1}, [(4, 3), (4, 5), (5,)], (3, 5), 2 * 3 * 4 * 5 + 15),
        ("Gemm", {"alpha": 0.5}, [(3, 4), (4, 5)], (3, 5), 2 * 3 * 4 * 5 + 15),
        ("Conv", {"group": 1}, [(1, 8, 10, 10), (16, 8, 3, 3)], (1, 16, 8, 8), 2 * 16 * 64 * 8 * 9),
        ("Conv", {"group": 8}, [(1, 8, 10, 10), (8, 1, 3, 3), (8,)], (1, 8, 8, 8), 8 * 64 * (2 * 9 + 1)),
        ("ConvTranspose", {"group": 1}, [(1, 4, 5, 5), (4, 6, 2, 2)], (1, 6, 10, 10), 2 * 4 * 25 * 6 * 4),
        ("Add", {}, [(3, 4), (4,)], (3, 4), 12),
        ("Tanh", {}, [(3, 4)], (3, 4), 12),
        ("ReduceSum", {"axes": (1,)}, [(3, 4)], (3, 1), 12),
        ("MaxPool", {"kernel_shape": (3, 3)}, [(1, 2, 8, 8)], (1, 2, 4, 4), 9 * 32),
        ("AveragePool", {"kernel_shape": (99, 99)}, [(1, 2, 8, 8)], (1, 2, 1, 1), 128),
        ("Sum", {}, [(4,), (4,), (4,)], (4,), 8),
        ("GlobalAveragePool", {}, [(1, 2, 8, 8)], (1, 2, 1, 1), 128),
        ("Softmax", {"axis": -1}, [(3, 4)], (3, 4), 60),
        ("Gelu", {"approximate": "tanh"}, [(3, 4)], (3, 4), 96),
        ("Resize", {"mode": "linear"}, [(1, 2, 4, 4)], (1, 2, 8, 8), 2 * 4 * 128),
        ("Resize", {"mode": "nearest"}, [(1, 2, 4, 4)], (1, 2, 8, 8), 0),
        ("Transpose", {"perm": (1, 0)}, [(3, 4)], (4, 3), 0),
        ("NoSuchOp", {}, [(3, 4), (5,)], (2,), 19),
    ],
)
def test_count(op: str, attributes: Attributes, operands: list[Shape], output: Shape, expected: int) -> None:
    assert count(op, attributes, operands, output) == expected


@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_of_the_rules_has_its_own_count(op: str) -> None:
    assert OPERATORS[op].flops is not None


def test_an_idiom_counts_as_its_formula() -> None:
    x, row, channel, one = (8, 16), (8, 1), (16,), ()
    steps: list[tuple[str, list[Shape], Shape]] = [
        ("ReduceMean", [x], row),
        ("Sub", [x, row], x),
        ("Mul", [x, x], x),
        ("ReduceMean", [x], row),
        ("Add", [row, one], row),
        ("Sqrt", [row], row),
        ("Div", [x, row], x),
        ("Mul", [x, channel], x),
        ("Add", [x, channel], x),
    ]
    formula = sum(count(op, {"axes": (1,)}, operands, output) for op, operands, output in steps)
    assert formula - 2 * 8 == count("LayerNormalization", {}, [x, channel, channel], x)


ROWS, COLUMNS = 8, 16


def count_rewriting(text: str) -> float:
    """A side of Table 4 over matrices, terms that are equal counted once."""
    builder, values = Builder(), dict[str, int]()

    def value_of(node: Node) -> int:
        key = str(node)
        if key not in values:
            if isinstance(node, Atom) or node.head == "Full":
                values[key] = builder.input(*([ROWS, COLUMNS] if isinstance(node, Atom) else []))
            elif node.head.startswith("Reduce"):
                values[key] = builder.op(node.head, value_of(node.items[1]), shape=(ROWS, 1), axes=(1,), keepdims=1)
            else:
                operands = [value_of(item) for item in node.items[1:] if not str(item).startswith('"')]
                values[key] = builder.op(node.head, *operands)
        return values[key]

    value_of(sexpr.read(text).forms[0])
    return sum(map(flops, builder.graph().operations))


@pytest.mark.parametrize(
    ("row", "before", "after"),
    [
        ("1", (4, 0), (4, 0)),
        ("2", (4, 0), (2, 0)),  # printed with 5 before: a term that occurs twice counts twice there
        ("3", (4, 0), (3, 0)),
        ("4", (4, 0), (3, 1)),  # 5
        ("5", (3, 0), (2, 0)),
        ("6", (2, 0), (2, 0)),
        ("7", (4, 0), (3, 0)),  # 5
        ("8", (1, 0), (1, 0)),
        ("9", (2, 0), (1, 1)),
        ("10", (2, 0), (1, 1)),
    ],
)
def test_table_4_of_dnnfusion(row: str, before: tuple[int, int], after: tuple[int, int]) -> None:
    """How often the elements of a matrix and those of a column are counted."""
    for text, (elements, sums) in ((TABLE_4[row].left, before), (TABLE_4[row].right, after)):
        assert count_rewriting(text) == elements * ROWS * COLUMNS + sums * ROWS
