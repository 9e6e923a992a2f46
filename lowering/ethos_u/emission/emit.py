"""From an ONNX graph with conversions (QuantizeLinear, DequantizeLinear) to TOSA.

Operators between conversions are kept as numbers that nothing computes yet. At a QuantizeLinear the expression in front
of it decides what computes its integers:

    products                  CONV2D, DEPTHWISE_CONV2D, sums of 32 bits and one RESCALE, its bounds the activation's
    functions of one operand  TABLE with the 256 results
    sums and products of two  ADD and MUL on integers of 32 bits, and RESCALE
    what only moves elements  the same on integers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....ir.graph import Operator, OperatorGraph
from ....ir.operators import ELEMENTWISE, OPERATORS, Unsupported, evaluate
from ...base.errors import LoweringError
from ...base.ports import Port
from ..tosa.graph import Array, Builder, Graph
from .constants import ConstantReader
from .moves import is_move, move
from .normalizations import NORMALIZATIONS, normalize
from .products import WEIGHTED_SUMS, Sums, is_map_mean, scaled_channels, sums_of
from .reductions import SUMS, add_up, largest_places
from .requantize import Target, add_integers, multiply_integers, rescale
from .resizing import interpolate
from .values import Constant, Integers, Number, Value, memory_order, refuse

_CLAMPS = frozenset({"Relu", "Clip", "Max", "Min"})
_INTEGER_TYPES = ("int8", "uint8")
_SIGN = 128
"""What is taken from an integer without a sign: the NPU computes with signed ones."""


@dataclass(frozen=True)
class Wire:
    """An input or output of the NPU's program: its tensor, and the model's input or output that it stands for.

    An integer q of it stands for (q - zero) * scale. The axes of the model's lie in memory in this `order`. `offset` is
    added to the integers of the model, if these are integers themselves; `is_number` says that they are floats.
    """

    tensor: str
    port: str
    scale: float
    zero: int
    order: tuple[int, ...]
    is_number: bool
    offset: int = 0


@dataclass(frozen=True)
class Emitted:
    """A model as TOSA. `rounded` are the tensors that hold the result of each QuantizeLinear, by its name in ONNX, with
    the order of its axes and what was taken from its integers."""

    graph: Graph
    inputs: tuple[Wire, ...]
    outputs: tuple[Wire, ...]
    rounded: Mapping[str, Wire]


def emit(graph: OperatorGraph, constants: ConstantReader, ports: Sequence[Port], outputs: Sequence[Port]) -> Emitted:
    """Raises LoweringError, one line that names the node, for what the NPU cannot compute."""
    ops = {operator.op for operator in graph.operators}
    if not ops & {"QuantizeLinear", "DequantizeLinear"}:
        raise LoweringError(
            "the model computes with floats, and the NPU only with integers of 8 bits; quantise it first: "
            "onnxruntime.quantization.quantize_static with calibration data (docs/ethos-u.md)"
        )
    return _Emission(graph, constants, ports).run(outputs)


@dataclass(frozen=True)
class Border:
    """Where a model leaves the NPU: `outputs` are the values that the NPU computes for a processor or for the caller,
    `left` the outputs of the model that a processor computes, from `read`; `operators` are its operators without
    conversions, and `reason` says why the first of them is none for the NPU."""

    outputs: tuple[str, ...]
    left: tuple[str, ...]
    read: tuple[str, ...]
    operators: tuple[str, ...]
    reason: str


def find_border(
    graph: OperatorGraph, constants: ConstantReader, ports: Sequence[Port], outputs: Sequence[Port],
    avoided: Mapping[str, str],
) -> Border | None:  # fmt: skip
    """The border in front of everything that the NPU does not compute; None if it computes nothing.

    `avoided` are nodes that it does not compute on this device, each with the reason.
    """
    return _Emission(graph, constants, ports, avoided, is_patient=True).border(outputs)


class _Emission:
    """With `is_patient`, an operator that the NPU does not compute, and those that need it, are only noted."""

    def __init__(
        self, graph: OperatorGraph, constants: ConstantReader, ports: Sequence[Port],
        avoided: Mapping[str, str] | None = None, *, is_patient: bool = False,
    ) -> None:  # fmt: skip
        self._graph, self._constants, self._builder = graph, constants, Builder()
        self._avoided = avoided or {}
        self._is_patient = is_patient
        self._refused: dict[int, str] = {}
        self._ports = {port.name: port for port in ports}
        self._values: dict[int, Value] = {}
        self._wires: dict[str, Wire] = {}
        self._rounded: dict[str, Wire] = {}
        self._requests: dict[tuple[int, float, int], Integers] = {}

    def run(self, outputs: Sequence[Port]) -> Emitted:
        for operator in self._graph.operators:
            self._add(operator)
        wires, tensors = [], []
        numbers = {value.name: place for place, value in enumerate(self._graph.values)}
        for port in outputs:
            value = self._values.get(numbers.get(port.name, -1))
            if isinstance(value, Number) and value.op == "ArgMax":
                data = self._integers_of(value.operands[0], value)
                integers, is_number = largest_places(self._builder, value, data), False
            elif (behind := self._integers(value)) is not None:
                integers, is_number = behind, True
            elif isinstance(value, Integers):
                integers, is_number = value, False
            else:
                node = f"node {value.node!r} ({value.op})" if isinstance(value, Number) else "a constant"
                raise LoweringError(
                    f"output {port.name!r} is made by {node} without a QuantizeLinear behind it; quantise the output, "
                    "too, or compile the model up to the last QuantizeLinear with --outputs NAME"
                )
            integers = self._in_order(integers)
            tensors.append(integers.tensor)
            offset = _SIGN if port.dtype == "uint8" and not is_number else 0
            wires.append(Wire("", port.name, integers.scale, integers.zero, integers.order, is_number, -offset))
        graph = self._builder.finish(tensors)
        named = tuple(replace(wire, tensor=name) for wire, name in zip(wires, graph.outputs, strict=True))
        kept = {name: wire for name, wire in self._rounded.items() if wire.tensor in graph.tensors}
        return Emitted(graph, tuple(self._wires.values()), named, kept)

    def border(self, outputs: Sequence[Port]) -> Border | None:
        for operator in self._graph.operators:
            self._add(operator)
        numbers = {value.name: place for place, value in enumerate(self._graph.values)}
        producers = {output: operator for operator in self._graph.operators for output in operator.outputs}
        left = [port.name for port in outputs if not self._is_computed(numbers[port.name])]
        npu = [port.name for port in outputs if port.name not in left]
        read: dict[str, None] = {}
        operators: dict[str, None] = {}
        waiting = [numbers[name] for name in left]
        seen: set[int] = set()
        while waiting:
            place = waiting.pop()
            if place in seen or place not in producers:
                if self._graph.values[place].name in self._ports:
                    read[self._graph.values[place].name] = None
                continue
            seen.add(place)
            value = self._values.get(place)
            if place not in self._refused and isinstance(value, Integers) and value.columns is None:
                read[self._graph.values[place].name] = None
                continue
            operator = producers[place]
            if operator.op not in ("QuantizeLinear", "DequantizeLinear"):
                operators[f"{operator.name} ({operator.op})"] = None
            waiting += [each for each in operator.inputs if each is not None]
        on_npu = [name for name in read if name not in self._ports]
        if not on_npu:
            return None
        reasons = [self._refused[place] for place in sorted(self._refused)]
        reason = reasons[0] if reasons else f"output {left[0]!r} has no QuantizeLinear behind it"
        return Border((*npu, *on_npu), tuple(left), tuple(read), tuple(operators)[::-1], reason)

    def _is_computed(self, place: int) -> bool:
        """Whether the NPU can give a value to the caller."""
        value = self._values.get(place)
        if place in self._refused or value is None:
            return False
        is_largest = isinstance(value, Number) and value.op == "ArgMax"
        return isinstance(value, Integers) or is_largest or self._integers(value) is not None

    def _in_order(self, integers: Integers) -> Integers:
        if integers.columns is None:
            return integers
        columns = integers.columns
        raise LoweringError(f"an output is a flattened feature map of {columns.size} elements; leave the Flatten out")

    def _add(self, operator: Operator) -> None:
        if not self._is_patient:
            self._compute_operator(operator)
            return
        known = [self._refused[each] for each in operator.inputs if each in self._refused]
        try:
            if not known:
                self._compute_operator(operator)
                return
        except LoweringError as error:
            known = [str(error)]
        self._refused |= dict.fromkeys(operator.outputs, known[0])

    def _compute_operator(self, operator: Operator) -> None:
        graph = self._graph
        if operator.name in self._avoided:
            raise LoweringError(f"node {operator.name!r} ({operator.op}): {self._avoided[operator.name]}")
        operands = tuple(None if v is None else self._value(v) for v in operator.inputs)
        result = graph.values[operator.outputs[0]]
        if operator.is_opaque or (len(operator.outputs) > 1 and operator.op != "Split"):
            raise LoweringError(f"node {operator.name!r} ({operator.op}): the NPU has no such operator")
        for place, output in enumerate(operator.outputs):
            shape = _shape(graph.values[output].type, operator)
            self._values[output] = self._result(operator, operands, shape, result.name, place)

    def _value(self, place: int) -> Value:
        if place not in self._values:
            value = self._graph.values[place]
            if value.name in self._ports:
                shape = _shape(value.type, None)
                self._values[place] = Number("Input", (), {"name": value.name}, shape, value.name)
            else:
                self._values[place] = self._constants.constant(value.name)
        return self._values[place]

    def _result(
        self, operator: Operator, operands: tuple[Value | None, ...], shape: tuple[int, ...], name: str, place: int
    ) -> Value:
        if operator.op == "QuantizeLinear":
            return self._quantise(operator, operands, name)
        if operator.op == "DequantizeLinear":
            return self._dequantise(operator, operands, shape)
        attributes = {**operator.attributes, "output": place}
        first = operands[0]
        if isinstance(first, Integers) and is_move(operator.op, attributes):  # integers moved between conversions
            return move(self._builder, Number(operator.op, operands, attributes, shape, operator.name), operands)
        return Number(operator.op, operands, attributes, shape, operator.name)

    def _dequantise(self, operator: Operator, operands: tuple[Value | None, ...], shape: tuple[int, ...]) -> Value:
        scale, zero = self._parameters(operator, operands)
        integers = operands[0]
        if isinstance(integers, Number) and integers.op == "Input":
            integers = self._input(str(integers.attributes["name"]), integers.shape, scale, zero, is_number=False)
        if not isinstance(integers, Integers):
            made = f"{integers.op} makes its operand" if isinstance(integers, Number) else "its operand is a constant"
            raise LoweringError(
                f"node {operator.name!r} (DequantizeLinear): {made}, and the NPU has no such operator on integers of 8 "
                "bits here; --outputs NAME and other inputs leave that part of the model out"
            )
        return Number("DequantizeLinear", (replace(integers, scale=scale, zero=zero),), {}, shape, operator.name)

    def _parameters(self, operator: Operator, operands: tuple[Value | None, ...]) -> tuple[float, int]:
        """Scale, and zero point as the NPU has it: that of signed integers."""
        given = [each for each in operands[1:3] if each is not None]
        if not all(isinstance(each, Constant) and each.numbers.size == 1 for each in given):
            raise LoweringError(
                f"node {operator.name!r} ({operator.op}): the NPU needs one scale and zero point that are known"
            )
        scale = 1.0 if operands[1] is None else float(operands[1].numbers.reshape(()))  # type: ignore[union-attr]
        zero = operands[2].numbers if len(operands) > 2 and isinstance(operands[2], Constant) else np.zeros((), "uint8")
        if zero.dtype.name not in _INTEGER_TYPES:
            raise LoweringError(f"node {operator.name!r} ({operator.op}): {zero.dtype} is no type of the NPU here")
        return scale, int(zero.reshape(())) - (_SIGN if zero.dtype.name == "uint8" else 0)

    def _quantise(self, operator: Operator, operands: tuple[Value | None, ...], name: str) -> Value:
        scale, zero = self._parameters(operator, operands)
        source, unsigned = operands[0], len(operands) < 3 or _dtype(operands[2]) == "uint8"
        if isinstance(source, Number) and source.op == "Input":
            integers = self._input(str(source.attributes["name"]), source.shape, scale, zero, is_number=True)
        else:
            integers = self._round(*_without_affine(source, scale, zero))
        wire = Wire(integers.tensor.name, name, scale, zero, integers.order, False, -_SIGN if unsigned else 0)
        if integers.columns is None:
            self._rounded[name] = wire
        return integers

    def _input(self, name: str, shape: tuple[int, ...], scale: float, zero: int, *, is_number: bool) -> Integers:
        order = memory_order(len(shape), is_map=len(shape) == 4)
        offset = -_SIGN if not is_number and self._ports[name].dtype == "uint8" else 0
        wire = Wire(name, name, scale, zero, order, is_number, offset)
        key = f"{name} {scale} {zero}"
        if key not in self._wires:
            tensor = self._builder.input(name, "int8", [shape[axis] for axis in order])
            self._wires[key] = replace(wire, tensor=tensor.name)
        tensor_name = self._wires[key].tensor
        return Integers(self._builder.tensor(tensor_name), shape, order, scale, zero)

    def _round(self, value: Value | None, target: Target) -> Integers:
        """The integers of a number: see above."""
        if not isinstance(value, Number):
            raise LoweringError("a QuantizeLinear of a constant that is no weight; fold it first")
        key = (id(value), target.scale, target.zero)
        if key not in self._requests or target.is_bounded:
            self._requests[key] = self._compute(value, target)
        return self._requests[key]

    def _compute(self, value: Number, target: Target) -> Integers:
        builder = self._builder
        if value.op == "DequantizeLinear":
            integers = value.operands[0]
            assert isinstance(integers, Integers)
            return rescale(builder, integers, target)
        if value.op in _CLAMPS and (bounds := _bounds(value)) is not None:
            operand, low, high = bounds
            return self._round(operand, target.bounded(low, high))
        if value.op in NORMALIZATIONS:
            return normalize(builder, value, [self._or_constant(each, value) for each in value.operands], target)
        if value.op in SUMS and not is_map_mean(value):
            return add_up(builder, value, self._integers_of(value.operands[0], value), target)
        sums = self._sums(value)
        if sums is not None:
            return sums.round(builder, target)
        if is_move(value.op, value.attributes):
            return self._moved(value, target)
        if value.op == "Resize":
            return interpolate(builder, value, self._integers_of(value.operands[0], value), target)
        if value.op in ELEMENTWISE:
            return self._elementwise(value, target)
        raise LoweringError(f"node {value.node!r} ({value.op}): the NPU has no such operator on integers of 8 bits")

    def _moved(self, value: Number, target: Target) -> Integers:
        """Integers that are only moved: before they are scaled if they have a scale, else behind it."""
        numbers = [each for each in value.operands if isinstance(each, Number)]
        if len(numbers) == 1 and (own := self._integers(numbers[0])) is not None:
            moved = move(self._builder, value, (own, *value.operands[1:]))
            return rescale(self._builder, moved, target)
        operands = tuple(
            self._round(each, target.unbounded) if isinstance(each, Number) else each for each in value.operands
        )
        return rescale(self._builder, move(self._builder, value, operands), target)

    def _integers(self, value: Value | None) -> Integers | None:
        """The integers that a number was made from, if it only moves them; None for others."""
        if not isinstance(value, Number):
            return None
        if value.op == "DequantizeLinear":
            integers = value.operands[0]
            assert isinstance(integers, Integers)
            return integers
        if is_move(value.op, value.attributes) and value.op != "Concat":
            own = self._integers(value.operands[0])
            return None if own is None else move(self._builder, value, (own, *value.operands[1:]))
        return None

    def _sums(self, value: Number) -> Sums | None:
        """Sums of 32 bits that a number is proportional to, with the scales and what is added behind them."""
        if value.op in WEIGHTED_SUMS and (value.op not in SUMS or is_map_mean(value)):
            return sums_of(self._builder, value, [self._or_constant(each, value) for each in value.operands])
        if value.op == "Cast" and isinstance(value.operands[0], Number):
            return self._sums(value.operands[0])
        if value.op == "BatchNormalization":
            return self._normalised(value)
        if value.op in ("Add", "Mul", "Sub", "Div") and len(value.operands) == 2:
            left, right = value.operands
            if isinstance(left, Constant) and value.op in ("Add", "Mul"):
                left, right = right, left
            if isinstance(left, Number) and isinstance(right, Constant) and (inner := self._sums(left)) is not None:
                return inner.then(value.op, right.numbers)
        return None

    def _normalised(self, value: Number) -> Sums | None:
        """A BatchNormalization, whose parameters are known, behind sums or of integers."""
        data, *parameters = value.operands
        numbers = [each.numbers.astype(np.float64) for each in parameters if isinstance(each, Constant)]
        if len(numbers) < len(parameters):
            raise refuse(value, "its parameters are no constants")
        scale, bias, mean, variance = numbers
        factors = scale / np.sqrt(variance + value.attributes["epsilon"])
        offsets = bias - mean * factors
        inner = self._sums(data) if isinstance(data, Number) and (factors > 0).all() else None
        if inner is None:
            integers = self._integers_of(data, value)
            return scaled_channels(self._builder, value, integers, factors, offsets)
        along = (-1, *(1,) * (len(value.shape) - 2))
        scaled = inner.then("Mul", factors.reshape(along))
        return None if scaled is None else scaled.then("Add", offsets.reshape(along))

    def _or_constant(self, value: Value | None, reader: Number) -> Integers | Constant | None:
        return value if isinstance(value, Integers | Constant) else self._operand(value, reader)

    def _integers_of(self, value: Value | None, reader: Number) -> Integers:
        integers = value if isinstance(value, Integers) else self._operand(value, reader)
        if integers is None or integers.columns is not None:
            raise LoweringError(f"node {reader.node!r} ({reader.op}): its operand is no quantised feature map")
        return integers

    def _operand(self, value: Value | None, reader: Number) -> Integers | None:
        if value is None:
            return None
        integers = self._integers(value)
        if integers is None:
            op = value.op if isinstance(value, Number) else "a constant"
            raise LoweringError(
                f"node {reader.node!r} ({reader.op}): reads the result of {op} as a float; quantise what is between "
                "them: the NPU needs integers of 8 bits"
            )
        return integers

    def _elementwise(self, value: Number, target: Target) -> Integers:
        builder, sources = self._builder, self._sources(value)
        if sources is not None and len(sources) == 1:
            source = sources[0]
            table = self._table(value, source, target)
            tensor = builder.constant(table, "int8", "table")
            result = builder.add("TABLE", [source.tensor, tensor], "int8", source.tensor.shape, value.node)
            return replace(source, tensor=result, scale=target.scale, zero=target.zero)
        if value.op in ("Add", "Sub", "Mul") and len(value.operands) == 2:
            left, right = (self._two(each, value) for each in value.operands)
            if value.op == "Mul":
                return multiply_integers(builder, left, right, target, value)
            return add_integers(builder, left, right, target, value)
        raise LoweringError(
            f"node {value.node!r} ({value.op}): is no function of one quantised operand, and no sum or product of two"
        )

    def _two(self, value: Value | None, reader: Number) -> Integers:
        if isinstance(value, Constant):
            return self._constants.integers(self._builder, value, reader)
        integers = self._operand(value, reader)
        assert integers is not None, "both operands are there"
        return integers

    def _sources(self, value: Value | None) -> list[Integers] | None:
        """The distinct integers that an elementwise expression depends on, constants being single numbers; None if
        anything else is in it."""
        if value is None:
            return []
        if isinstance(value, Constant):
            return [] if value.numbers.size == 1 else None
        if isinstance(value, Number) and value.op == "DequantizeLinear":
            assert isinstance(value.operands[0], Integers)
            return [value.operands[0]]
        if not isinstance(value, Number) or value.op not in ELEMENTWISE:
            return None
        found: dict[int, Integers] = {}
        for operand in value.operands:
            inner = self._sources(operand)
            if inner is None:
                return None
            found |= {id(each.tensor): each for each in inner}
        return list(found.values())

    def _table(self, value: Number, source: Integers, target: Target) -> Array:
        """The rounded results for all 256 integers."""
        numbers = (np.arange(-128, 128) - source.zero).astype(np.float32) * np.float32(source.scale)
        results = _evaluate(value, numbers)
        with np.errstate(invalid="ignore"):
            quotient = np.rint(results.astype(np.float32) / np.float32(target.scale))
        quotient = np.nan_to_num(quotient, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        low, high = target.limits
        table: Array = np.clip(quotient + target.zero, low, high).astype(np.int8)
        return table


def _without_affine(value: Value | None, scale: float, zero: int) -> tuple[Value | None, Target]:
    """A number that is to be rounded, without its factors and the whole steps that are added to it: these belong to the
    scale and to the zero point."""
    while isinstance(value, Number) and value.op in ("Add", "Mul", "Div") and len(value.operands) == 2:
        inner, constant = value.operands
        if value.op != "Div" and isinstance(inner, Constant):
            inner, constant = constant, inner
        if not isinstance(inner, Number) or not isinstance(constant, Constant) or constant.numbers.size != 1:
            break
        number = float(constant.numbers.reshape(()))
        if value.op == "Add":
            steps = number / scale
            if steps != round(steps) or not -_SIGN <= zero + steps < _SIGN:
                break
            zero += round(steps)
        elif 0 < number < np.inf:
            scale = scale * number if value.op == "Div" else scale / number
        else:
            break
        value = inner
    return value, Target(scale, zero)


def _evaluate(value: Value | None, numbers: Array) -> Any:
    if isinstance(value, Constant):
        return value.numbers.reshape(())
    if not isinstance(value, Number):
        return None
    if value.op == "DequantizeLinear":
        return numbers
    schema = OPERATORS[value.op]
    operands: list[Any] = [_evaluate(each, numbers) for each in value.operands]
    operands += [None] * (len(schema.operands) - len(operands))
    if len(operands) > len(schema.operands):
        raise LoweringError(f"node {value.node!r} ({value.op}): has more operands than two")
    try:
        return evaluate(value.op, [*operands, *(value.attributes[each.name] for each in schema.attributes)])
    except (Unsupported, KeyError) as error:
        raise LoweringError(f"node {value.node!r} ({value.op}): cannot be written as a table: {error}") from None


def _bounds(value: Number) -> tuple[Value | None, float, float] | None:
    """The operand that an activation limits, and the limits; None for one whose limits are not known."""
    if value.op == "Relu":
        return value.operands[0], 0.0, float("inf")
    if value.op == "Clip":
        given = (*value.operands[1:], None, None)
        low, high = _limit(given[0], -np.inf), _limit(given[1], np.inf)
        return None if low is None or high is None else (value.operands[0], low, high)
    operands = sorted(value.operands, key=lambda each: isinstance(each, Constant))
    if len(operands) != 2 or not isinstance(operands[1], Constant) or operands[1].numbers.size != 1:
        return None
    limit = float(operands[1].numbers.reshape(()))
    return (operands[0], limit, np.inf) if value.op == "Max" else (operands[0], -np.inf, limit)


def _limit(value: Value | None, default: float) -> float | None:
    """The bound that an operand gives; None if it is not known."""
    if value is None:
        return default
    return float(value.numbers.reshape(())) if isinstance(value, Constant) and value.numbers.size == 1 else None


def _dtype(value: Value | None) -> str:
    return value.numbers.dtype.name if isinstance(value, Constant) else "uint8"


def _shape(type_: Any, operator: Operator | None) -> tuple[int, ...]:
    if type_ is None or type_.shape is None or not type_.is_static:
        where = f"node {operator.name!r} ({operator.op})" if operator else "an input"
        raise LoweringError(f"{where}: its shape is not known; fix the shapes of inputs by --input-shapes")
    return tuple(type_.shape)
