"""From e-nodes back to ONNX nodes, at the opset of the model: the reverse of the canonical forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...costmodels.runtime import NO_RUNTIME, Runtime
from ...ir.operators import OPERATORS, RECURRENT, REDUCTIONS, Attribute, Operand, OperatorSchema
from ...ir.operators.quantization import CONVERSIONS
from ...ir.types import TensorType
from ..onnx.nodes import BODY_DOMAIN
from ..onnx.typing import dtype_of
from .graph import EMPTY_SYMBOLS, NONEMPTY_SYMBOLS, ENode
from .kernel_types import lacks_kernel
from .other_domains import parse_operator_key
from .spellings import Line, spell_out

Array = np.ndarray[Any, Any]
Types = Sequence[TensorType | None]


@dataclass(frozen=True)
class Emission:
    """A new ONNX node: each input is the index of an operand, a constant list, or None (absent).

    With `lines` it is several nodes, which spell out an operator that the opset lacks.
    """

    op_type: str
    inputs: tuple[int | Array | None, ...]
    attributes: Mapping[str, Any]
    outputs: int = 1
    domain: str = ""
    lines: tuple[Line, ...] = ()


class _Inexpressible(Exception):
    pass


def emit_node(
    node: ENode,
    operands: Types,
    output: TensorType | None,
    opset: int,
    symbols: Mapping[int, str],
    absent: int = -1,
    *,
    runs: bool = False,
    runtime: Runtime = NO_RUNTIME,
) -> Emission | None:
    """The ONNX node for `node`; None if this opset has none, or if `runs` is set and ONNX Runtime cannot run it.

    `absent` is the class of ``(Absent)``; `symbols` names the symbolic dimensions; `runtime` says which nodes
    stand for operators that the opset lacks.
    """
    if node.op == "Op":
        return _emit_named(node, absent)
    if node.op == "If":
        return Emission("If", (0, 1, 2), {}, domain=BODY_DOMAIN)
    operator = OPERATORS.get(node.op)
    if operator is None:
        return None
    literals = dict(zip((a.name for a in operator.attributes), node.attributes, strict=True))
    lines = spell_out(runtime, node.op, literals, operands, opset)
    if lines is None:
        return None
    if lines:
        return Emission(node.op, tuple(range(len(node.children))), {}, lines=lines)
    if operator.domain:
        return _emit_contributed(operator, node, literals, operands, absent)
    if _schema(node.op, opset) is None:
        return None
    try:
        inputs = _inputs(operator, node, literals, opset, absent)
        attributes = _attributes(operator, literals, opset)
        if node.op in _FORMS:
            context = _Context(literals, operands, output, opset, symbols)
            inputs, attributes = _FORMS[node.op](context, inputs, attributes)
    except _Inexpressible:
        view = _plain_view(node, operands, symbols)
        return None if view is None else emit_node(view, operands, output, opset, symbols, absent, runs=runs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    outputs = len(literals["split"]) if node.op == "Split" else operator.outputs  # type: ignore[arg-type]
    result = Emission(node.op, tuple(inputs), attributes, outputs)
    if runs and lacks_kernel(node.op, [type_.dtype if type_ is not None else "" for type_ in operands], opset):
        return None
    return result if _is_allowed(result, operands, opset) and _is_exact(operator, literals, operands) else None


def _emit_contributed(
    operator: OperatorSchema, node: ENode, literals: Mapping[str, Any], operands: Types, absent: int
) -> Emission | None:
    """An operator of a runtime's own domain; None if its kernels do not take the elements."""
    if any(type_ is not None and type_.dtype != "float32" for type_ in operands):
        return None
    inputs = _inputs(operator, node, literals, 0, absent)
    while inputs and inputs[-1] is None:
        inputs.pop()
    attributes = _attributes(operator, literals, 0)
    return Emission(operator.op_type, tuple(inputs), attributes, operator.outputs, operator.domain)


def _emit_named(node: ENode, absent: int) -> Emission | None:
    parsed = parse_operator_key(str(node.attributes[0]))
    if parsed is None:
        return None
    domain, op_type, attributes = parsed
    inputs = tuple(None if child == absent else i for i, child in enumerate(node.children))
    return Emission(op_type, inputs, attributes, domain=domain)


@dataclass(frozen=True)
class _Context:
    literals: Mapping[str, Any]
    operands: Types
    output: TensorType | None
    opset: int
    symbols: Mapping[int, str]


Inputs = list[int | Array | None]
Attributes = dict[str, Any]


def _inputs(
    operator: OperatorSchema, node: ENode, literals: Mapping[str, Any], opset: int, absent: int
) -> Inputs:
    inputs: Inputs = []
    position = 0
    for argument in operator.arguments:
        if isinstance(argument, Operand):
            inputs.append(None if node.children[position] == absent else position)
            position += 1
        elif _is_input(argument, opset):
            inputs.append(np.asarray(literals[argument.name], np.int64))
    return inputs


def _is_input(attribute: Attribute, opset: int) -> bool:
    return attribute.input_since is not None and opset >= attribute.input_since


def _attributes(operator: OperatorSchema, literals: Mapping[str, Any], opset: int) -> Attributes:
    return {
        a.name: list(literals[a.name]) if a.kind == "Ints" else literals[a.name]
        for a in operator.attributes
        if not _is_input(a, opset) and not _is_default(a, literals[a.name])
    }


def _is_default(attribute: Attribute, value: Any) -> bool:
    if isinstance(attribute.default, float):
        return bool(np.float32(attribute.default) == value)
    return attribute.default is not None and attribute.default == value and attribute.name != "axis"


# --- operators whose canonical form differs from ONNX's


def _reshape(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    source = context.operands[0].shape if context.operands[0] else None
    target, free = [], 0
    for axis, size in enumerate(context.literals["shape"]):
        symbol = context.symbols.get(size)
        if symbol is None:
            target.append(size)
        elif source is not None and axis < len(source) and source[axis] == symbol:
            target.append(0)
        else:
            target.append(-1)
            free += 1
    if free > 1 or (0 in context.literals["shape"]):
        raise _Inexpressible
    copied = [size for size, place in zip(context.literals["shape"], target, strict=True) if place == 0]
    if free and any(size > NONEMPTY_SYMBOLS for size in copied):  # a tensor without elements is refused
        node = ENode("Reshape", (context.literals["shape"],), (0,))
        is_said = any(NONEMPTY_SYMBOLS / 2 < size < EMPTY_SYMBOLS for size in copied)
        if is_said or _plain_view(node, context.operands, context.symbols) is not None:
            raise _Inexpressible
    return [0, np.asarray(target, np.int64)], attributes


def _plain_view(node: ENode, operands: Types, symbols: Mapping[int, str]) -> ENode | None:
    """A Reshape that only drops or only adds dimensions of 1, or joins all but the first, as the operator that does so
    for any other sizes."""
    source = operands[0].shape if node.op == "Reshape" and operands[0] is not None else None
    if source is None:
        return None
    result = tuple(symbols.get(size, size) for size in node.attributes[0])  # type: ignore[arg-type, union-attr]
    if len(result) == 2 < len(source) and result[0] == source[0]:
        return ENode("Flatten", (1,), node.children)
    op, longer, shorter = ("Squeeze", source, result) if len(source) > len(result) else ("Unsqueeze", result, source)
    axes: list[int] = []
    for axis, size in enumerate(longer):
        if shorter[axis - len(axes) : axis - len(axes) + 1] != (size,):
            if size != 1:
                return None
            axes.append(axis)
    return ENode(op, (tuple(axes),), node.children) if len(longer) - len(axes) == len(shorter) and axes else None


def _expand(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    source = context.operands[0].shape if context.operands[0] else None
    target = context.literals["shape"]
    if any(size in context.symbols for size in target) and source is None:
        raise _Inexpressible
    sizes = []
    for axis, size in enumerate(target):
        symbol = context.symbols.get(size)
        aligned = axis - len(target) + len(source or ())
        if symbol is not None and not (source and aligned >= 0 and source[aligned] == symbol):
            raise _Inexpressible
        sizes.append(1 if symbol else size)
    return [0, np.asarray(sizes, np.int64)], attributes


def _squeeze(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    if not context.literals["axes"]:  # no axis to some runtimes, every axis of one element to others
        raise _Inexpressible
    return inputs, attributes


def _reduction(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    source = context.operands[0]
    if not context.literals["axes"] and not (source is not None and source.shape == ()):  # ONNX would take every axis
        raise _Inexpressible
    return inputs, attributes


def _cast(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    return inputs, {"to": int(dtype_of(context.literals["to"]))}


def _cumulative(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    return [0, np.asarray(context.literals["axis"][0], np.int64)], attributes


def _softmax(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    shape = context.output.shape if context.output else None
    if context.opset < 13 and (shape is None or any(d != 1 for d in shape[context.literals["axis"] + 1 :])):
        raise _Inexpressible  # it would run over all axes from that axis on
    return inputs, {"axis": context.literals["axis"]}


def _group_normalization(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    if context.opset < 21:
        raise _Inexpressible
    return inputs, attributes


def _resize(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    config = json.loads(context.literals["config"])
    arrays = {"roi": np.float32, "scales": np.float32, "sizes": np.int64}
    extra = [np.asarray(config.pop(n), d) if n in config else None for n, d in arrays.items()]
    if context.opset < 13:  # there roi and scales may be empty, but not absent
        extra[:2] = [np.empty(0, np.float32) if e is None else e for e in extra[:2]]
    return [0, *extra], {"mode": context.literals["mode"], **config}


def _recurrence(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    config = json.loads(context.literals["config"])
    return inputs, {**{n: v for n, v in attributes.items() if n != "config"}, **config}


def _average_pool(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    dilated = any(d != 1 for d in context.literals["dilations"])
    return inputs, {n: v for n, v in attributes.items() if n != "dilations" or dilated}  # not before opset 19


def _quantization(context: _Context, inputs: Inputs, attributes: Attributes) -> tuple[Inputs, Attributes]:
    parameters = (type_.shape for type_ in context.operands[1:] if type_ is not None)
    is_listed = any(shape is None or not set(shape) <= {1} for shape in parameters)
    if inputs[1] is None and context.operands[0] is not None:
        inputs = [inputs[0], np.ones((), context.operands[0].dtype), *inputs[2:]]
    return inputs, attributes if is_listed else {}  # the axis says nothing then, and opset 10 has none


_FORMS: dict[str, Callable[[_Context, Inputs, Attributes], tuple[Inputs, Attributes]]] = {
    "Reshape": _reshape,
    "Expand": _expand,
    "Squeeze": _squeeze,
    **dict.fromkeys(REDUCTIONS, _reduction),
    "Cast": _cast,
    "CumSum": _cumulative,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Hardmax": _softmax,
    "GroupNormalization": _group_normalization,
    "Resize": _resize,
    "AveragePool": _average_pool,
    **dict.fromkeys(CONVERSIONS, _quantization),
    **dict.fromkeys(RECURRENT, _recurrence),
}


# --- what the opset allows


@cache
def _schema(op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else schema


@cache
def _allowed_types(op_type: str, opset: int) -> frozenset[str]:
    """The types of the first operand by the constraints, since `schema.inputs[0].types` fails in onnx 1.20."""
    schema = _schema(op_type, opset)
    if schema is None or not schema.inputs:
        return frozenset()
    constraints = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    first = schema.inputs[0].type_str
    return frozenset(constraints.get(first, [first]))


def _is_allowed(node: Emission, operands: Types, opset: int) -> bool:
    schema = _schema(node.op_type, opset)
    if schema is None or len(node.inputs) > schema.max_input or len(node.inputs) < schema.min_input:
        return False
    if any(name not in schema.attributes for name in node.attributes):
        return False
    first = operands[0] if operands else None
    return first is None or _onnx_type(first.dtype) in _allowed_types(node.op_type, opset)


def _is_exact(operator: OperatorSchema, literals: Mapping[str, Any], operands: Types) -> bool:
    """Whether attributes, which ONNX stores as float32, are exact enough for float64 operands."""
    if not any(type_ is not None and type_.dtype == "float64" for type_ in operands):
        return True
    return all(float(np.float32(literals[a.name])) == literals[a.name] for a in operator.attributes if a.kind == "f64")


@cache
def _onnx_type(dtype: str) -> str:
    name = {ir.DataType.FLOAT: "float", ir.DataType.DOUBLE: "double"}.get(dtype_of(dtype), dtype)
    return f"tensor({name.replace('float8_', 'float8')})"
