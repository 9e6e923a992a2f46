"""Reads the function of its rows that a body computes: ``values of a flat graph -> cells.Value``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from onnx_ir import serde

from ..onnx.evaluation import evaluate
from ..onnx.model import elements
from ..onnx.nodes import is_foldable, is_standard
from ..shapes.inference import Knowledge
from .cells import Array, Source, Value, concatenate
from .flatten import FlatModel, Region

ACTIVATIONS: Mapping[str, Mapping[str, float]] = {
    "Sigmoid": {}, "Tanh": {}, "Relu": {}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5}
}  # fmt: skip
"""Activations of cells, and the factors that ONNX gives them if a node does not."""


@dataclass
class CellReader:
    """Reads values of the body of one Loop or Scan; None for a value that is no function of its rows' columns."""

    flat: FlatModel
    knowledge: Knowledge
    region: Region
    slices: Mapping[str, tuple[ir.Value, int]]
    """For each formal of a Scan the value that it is a slice of, and the axis."""
    counters: frozenset[str]
    """Formals that count iterations from 0."""
    values: dict[str, Value | None] = field(default_factory=dict)
    constants: dict[str, Array | None] = field(default_factory=dict)

    def read(self, value: ir.Value | None) -> Value | None:
        """A value of the body."""
        if value is None or value.name is None:
            return None
        if value.name not in self.values:
            self.values[value.name] = None  # while it is read; graphs have no cycles
            self.values[value.name] = self._read(value)
        return self.values[value.name]

    def shape(self, value: ir.Value) -> tuple[int | str, ...] | None:
        """The shape of a value, as far as it is known."""
        type_ = self.knowledge.types.get(value.name or "")
        return None if type_ is None else type_.shape

    def constant(self, value: ir.Value | None) -> Array | None:
        """The elements of a value that depends on no input."""
        if value is None or value.name is None:
            return None
        if value.name not in self.constants:
            self.constants[value.name] = self._constant(value)
        return self.constants[value.name]

    def _constant(self, value: ir.Value) -> Array | None:
        name = value.name or ""
        if name in self.knowledge.constants:
            return self.knowledge.constants[name]
        if value.const_value is not None and value.producer() is None and not value.is_graph_input():
            return elements(value.const_value)
        node = value.producer()
        if node is None or not is_foldable(node):
            return None
        stored = node.attributes.get("value") if node.op_type == "Constant" else None
        if stored is not None:
            return elements(stored.as_tensor())
        operands = {o.name: self.constant(o) for o in node.inputs if o is not None and o.name}
        known = {operand: array for operand, array in operands.items() if array is not None}
        if len(known) < len(operands) or len(node.outputs) > 1:
            return None
        return evaluate([serde.serialize_node(node)], known, [name], self.flat.model.ir.opset_imports).get(name)

    def _read(self, value: ir.Value) -> Value | None:
        array = self.constant(value)
        if array is not None:
            is_row = array.ndim < 2 or array.shape[:-1] == (1,) * (array.ndim - 1)
            return Value({}, array.reshape(-1).astype(np.float64)) if is_row and array.dtype.kind == "f" else None
        if value.name is not None and value.name in self.slices:
            return self._read_slice(*self.slices[value.name])
        shape, node = self.shape(value), value.producer()
        if shape is None or len(shape) != 2 or not isinstance(shape[1], int):
            return None
        if node is None:
            return Value.source(Source(value.name or "", shape[1])) if value.name in self.region.formals else None
        if not is_standard(node):
            return None
        if node.op_type in ACTIVATIONS:
            given = ACTIVATIONS[node.op_type]
            factors = tuple(node.attributes.get_float(name, usual) for name, usual in given.items())
            operand = self.read(node.inputs[0])
            return None if operand is None else operand.activate(node.op_type, factors)
        reader = _READERS.get(node.op_type)
        return None if reader is None else reader(self, node, value)

    def _read_slice(self, sequence: ir.Value, axis: int) -> Value | None:
        """The matrix at a place along an axis: for a product with a constant the product of that of the factor."""
        shape, node = self.shape(sequence), sequence.producer()
        if shape is None or len(shape) != 3 or axis not in (0, 1) or not isinstance(shape[2], int):
            return None
        if node is not None and is_standard(node) and node.op_type in ("MatMul", "Add", "Identity"):
            first, *others = node.inputs
            arrays = [self.constant(value) for value in others]
            if node.op_type == "Add" and first is not None and self.constant(first) is not None:
                first, arrays = others[0], [self.constant(first)]
            array = arrays[0].astype(np.float64) if arrays and arrays[0] is not None else None
            before = self._read_slice(first, axis) if first is not None else None
            if before is not None and node.op_type == "Identity":
                return before
            if before is not None and array is not None and node.op_type == "MatMul" and array.ndim == 2:
                return before.transform(array)
            if before is not None and array is not None and node.op_type == "Add" and array.size == shape[2]:
                return before.add(Value({}, array.reshape(-1)))
        return Value.source(Source(f"{sequence.name}/{axis}", shape[2], sequence, axis))


Reader = Callable[[CellReader, ir.Node, ir.Value], Value | None]


def _identity(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    return reader.read(node.inputs[0])


def _multiply_matrix(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    left, right = reader.read(node.inputs[0]), reader.constant(node.inputs[1])
    if left is None or right is None or right.ndim != 2 or left.bias.size != right.shape[0]:
        return None
    return left.transform(right.astype(np.float64))


def _gemm(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    left, right = reader.read(node.inputs[0]), reader.constant(node.inputs[1])
    if left is None or right is None or node.attributes.get_int("transA", 0) == 1:
        return None
    matrix = (right.T if node.attributes.get_int("transB", 0) == 1 else right).astype(np.float64)
    if left.bias.size != matrix.shape[0]:
        return None
    product = left.transform(matrix * node.attributes.get_float("alpha", 1.0))
    added_value = node.inputs[2] if len(node.inputs) > 2 else None
    if added_value is None:
        return product
    added = reader.read(added_value)
    scaled = None if added is None else added.scale(np.full(1, node.attributes.get_float("beta", 1.0)))
    return None if scaled is None else product.add(scaled)


def _operands(reader: CellReader, node: ir.Node) -> list[Value] | None:
    """The operands of an operator by elements, of which only constants are repeated along columns."""
    values = [reader.read(value) for value in node.inputs]
    known = [value for value in values if value is not None]
    widths = {value.bias.size for value in known if not (value.is_constant and value.bias.size == 1)}
    return known if len(known) == len(values) and len(widths) <= 1 else None


def _add(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    operands = _operands(reader, node)
    return None if operands is None else operands[0].add(operands[1])


def _subtract(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    operands = _operands(reader, node)
    return None if operands is None else operands[0].add(operands[1].negate())


def _multiply(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    operands = _operands(reader, node)
    return None if operands is None else operands[0].multiply(operands[1])


def _negate(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    value = reader.read(node.inputs[0])
    return None if value is None else value.negate()


def _concat(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    operands = [reader.read(value) for value in node.inputs]
    known = [value for value in operands if value is not None]
    if node.attributes.get_int("axis", 0) not in (1, -1) or len(known) < len(operands):
        return None
    is_full = all(value.matrices or value.products for value in known)
    return concatenate(known) if is_full else None


def _split(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    whole = reader.read(node.inputs[0])
    if whole is None or node.attributes.get_int("axis", 0) not in (1, -1):
        return None
    widths = [shape[1] if (shape := reader.shape(output)) and len(shape) == 2 else None for output in node.outputs]
    numbers = [width for width in widths if isinstance(width, int)]
    if len(numbers) < len(widths) or sum(numbers) != whole.bias.size:
        return None
    place = list(node.outputs).index(result)
    return whole.columns(sum(numbers[:place]), sum(numbers[: place + 1]))


def _slice(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    whole = reader.read(node.inputs[0])
    if whole is None:
        return None
    bounds = [_integers(reader, node, *each) for each in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps"))]
    starts, ends, axes, steps = bounds
    if starts is None or ends is None or len(starts) != 1 or axes not in ([1], [-1]) or steps not in (None, [1]):
        return None
    first, end, _ = slice(starts[0], ends[0]).indices(whole.bias.size)
    return whole.columns(first, end) if first < end else None


def _integers(reader: CellReader, node: ir.Node, place: int, name: str) -> list[int] | None:
    """A list of integers that old versions of an operator have as an attribute."""
    if name in node.attributes:
        return list(node.attributes[name].as_ints())
    array = reader.constant(node.inputs[place]) if len(node.inputs) > place else None
    return None if array is None else [int(each) for each in array.reshape(-1)]


def _gather(reader: CellReader, node: ir.Node, result: ir.Value) -> Value | None:
    """The matrix of this iteration."""
    sequence, index = node.inputs
    if sequence is None or index is None or not _is_count(reader, index) or reader.shape(index) != ():
        return None
    shape = reader.shape(sequence)
    axis = node.attributes.get_int("axis", 0)
    return None if shape is None else reader._read_slice(sequence, axis % len(shape))


def _is_count(reader: CellReader, value: ir.Value) -> bool:
    """Whether a value is the number of the iteration."""
    node = value.producer()
    while node is not None and node.op_type in ("Identity", "Cast") and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value.name in reader.counters


_READERS: Mapping[str, Reader] = {
    "Identity": _identity, "MatMul": _multiply_matrix, "Gemm": _gemm, "Add": _add, "Sub": _subtract, "Mul": _multiply,
    "Neg": _negate, "Concat": _concat, "Split": _split, "Slice": _slice, "Gather": _gather,
}  # fmt: skip


def is_sequence_of(names: Sequence[str], value: Value) -> bool:
    """Whether an affine value reads nothing but sequences and states of these names."""
    return value.is_affine and all(s.sequence is not None or s.name in names for s in value.matrices)
