"""ONNX nodes as calls of e-graph constructors, in one canonical form for every opset.

A node that fits no constructor (`canonical` returns None) is opaque: the encoder keeps it unchanged.

For each operator that ONNX lets a model write in several ways, a function takes the attributes of a node, with defaults
for those it lacks, and returns those of the constructor; it raises NotEncodable if the constructor cannot hold them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ...ir.operation import VARIADIC
from ...ir.operators import OPERATORS, RECURRENT, REDUCTIONS, TO_SHAPES, Attribute, Operand, OperatorSchema
from ...ir.operators.quantization import CONVERSIONS, DEQUANTIZED, QUANTIZED, REAL
from ...ir.operators.resize import DEFAULTS as RESIZE_DEFAULTS
from ...ir.operators.windows import WINDOWED_POOLS, reach_in_padding
from ...ir.sizes import floor_divide, number
from ...ir.types import Dimension, TensorType
from ..onnx.inference_faults import share_transposed_padding, transposed_padding
from ..onnx.nodes import is_standard
from ..onnx.typing import dtype_name
from ..shapes.inference import Knowledge


class NotEncodable(Exception):
    """The node has a part that the constructor cannot hold; the message names it."""


@dataclass
class Site:
    """One node with the types and constants around it; canonical forms read it and take its attributes away."""

    node: ir.Node
    knowledge: Knowledge
    opset: int
    raw: dict[str, Any]
    keeps_auto_pad: bool = False
    """Whether pads may depend on the sizes of a call; then `auto_pad` says how, and pads are the largest ones."""
    follows_result: bool = False
    """Whether an operand that gives the shape of the result may be computed; then that shape replaces it."""
    auto_pad: str = ""

    def type_of(self, value: ir.Value | None) -> TensorType:
        """The type of a value; NotEncodable if it is unknown."""
        type_ = self.knowledge.types.get(value.name or "") if value is not None else None
        if type_ is None:
            raise NotEncodable("an operand of unknown type")
        return type_

    def shape(self, index: int = 0) -> tuple[Dimension, ...]:
        """The shape of an input, with symbols."""
        shape = self.type_of(self.input(index)).shape
        if shape is None:
            raise NotEncodable("an operand of unknown rank")
        return shape

    def output_shape(self) -> tuple[Dimension, ...]:
        """The shape of the first output, every dimension a size or a declared symbol."""
        shape = self.type_of(self.node.outputs[0]).shape
        if shape is None or any(isinstance(d, str) and d not in self.knowledge.symbols for d in shape):
            raise NotEncodable("an unknown output shape")
        return shape

    def input(self, index: int) -> ir.Value | None:
        """The input at a position; None if it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def constant(self, index: int) -> np.ndarray[Any, Any] | None:
        """The value of a constant input; None if it is absent, NotEncodable if it is computed."""
        value = self.input(index)
        if value is None:
            return None
        array = self.knowledge.constants.get(value.name or "")
        if array is None:
            raise NotEncodable(f"input {index} is not constant")
        return array

    def target(self, index: int) -> np.ndarray[Any, Any] | None:
        """The value of an input that gives the shape of the result; None if that shape replaces it."""
        value = self.input(index)
        if self.follows_result and value is not None and value.name not in self.knowledge.constants:
            self.output_shape()
            return None
        return self.constant(index)

    def axis(self, axis: int, rank: int | None = None) -> int:
        """An axis counted from 0."""
        rank = len(self.shape()) if rank is None else rank
        if not -rank <= axis < max(rank, 1):
            raise NotEncodable(f"axis {axis} outside rank {rank}")
        return axis % rank if rank else 0


Literals = dict[str, Any]
Form = Callable[[Site, Literals], Literals]


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise NotEncodable(what)


def _axis(site: Site, literals: Literals) -> Literals:
    return literals | {"axis": site.axis(literals["axis"])}


def _coerced_softmax(site: Site, literals: Literals) -> Literals:
    """Before opset 13 Softmax flattened all axes from `axis` on: it is today's if one of them is longer than 1."""
    explicit = "axis" in site.node.attributes
    axis = site.axis(literals["axis"] if explicit or site.opset >= 13 else 1)
    if site.opset < 13:
        long = [a for a, extent in enumerate(site.shape()) if a >= axis and extent != 1]
        _require(len(long) <= 1, "a Softmax over flattened axes")
        axis = long[0] if long else axis
    return literals | {"axis": axis}


def _flatten(site: Site, literals: Literals) -> Literals:
    axis, rank = literals["axis"], len(site.shape())
    return literals | {"axis": axis + rank if axis < 0 else axis}


def _same_pads(site: Site, literals: Literals, lower: bool) -> tuple[int, ...]:
    begins: list[int] = []
    ends: list[int] = []
    op = site.node.op_type
    for dimension, kernel, stride, dilation in zip(
        site.shape()[2:], literals["kernel_shape"], literals["strides"], literals["dilations"], strict=True
    ):
        extent, reach = (kernel - 1) * dilation, reach_in_padding(op, kernel, dilation)
        remainder = _remainder(site, dimension, stride)
        sizes = range(1, stride + 1) if remainder is None else [remainder]  # pads depend on no more of a size
        totals = [(-(-n // stride) - 1) * stride - n + reach for n in sizes]
        is_cut = op in WINDOWED_POOLS and min(totals) < (0 if dilation > 1 else -1 - lower)
        _require(not is_cut, "a stride so long that SAME padding is negative")
        totals = [max(total, 0) for total in totals]
        before = [total - total // 2 if lower else total // 2 for total in totals]
        is_fixed = len(set(before if reach > extent else totals)) == 1
        _require(is_fixed or site.keeps_auto_pad, "auto_pad that depends on a symbolic dimension")
        site.auto_pad = site.auto_pad if is_fixed else "SAME_LOWER" if lower else "SAME_UPPER"
        begins.append(max(before))
        # A dynamic size takes the largest end: if padding counts all that windows reach, no window begins in it, and
        # the last one ends where it has to.
        ends.append(max(total - begin for total, begin in zip(totals, before, strict=True)))
    return (*begins, *ends)


def _remainder(site: Site, dimension: Dimension, stride: int) -> int | None:
    """The remainder of a dimension, from 1 to the divisor; None if it is dynamic."""
    size = site.knowledge.symbolic.declared.size_of(dimension)
    rest = None if size is None else (size - floor_divide(size, number(stride)).scale(stride)).number
    return None if rest is None else rest or stride


def _window(site: Site, literals: Literals) -> Literals:
    spatial = len(literals["kernel_shape"])
    for name in ("strides", "dilations"):
        literals[name] = literals[name] or (1,) * spatial
    auto = site.raw.pop("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        literals["pads"] = _same_pads(site, literals, auto == "SAME_LOWER")
    literals["pads"] = literals["pads"] or (0,) * (2 * spatial)
    return literals


def _convolution(site: Site, literals: Literals) -> Literals:
    kernel = site.shape(1)[2:]
    literals["kernel_shape"] = literals["kernel_shape"] or kernel
    _require(literals["kernel_shape"] == kernel, "a kernel_shape that its weights do not have")
    return _window(site, literals)


def _transposed_convolution(site: Site, literals: Literals) -> Literals:
    auto_pad, given = site.raw.pop("auto_pad", "NOTSET"), site.raw.pop("output_shape", ())
    literals = _convolution(site, literals)
    kernel, strides, dilations = (literals[name] for name in ("kernel_shape", "strides", "dilations"))
    extra = literals["output_padding"] = literals["output_padding"] or (0,) * len(kernel)
    if auto_pad == "VALID" and not given:
        literals["pads"] = (0,) * (2 * len(kernel))
    if given or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [size if isinstance(size, int) else 1 for size in site.shape()[2:]]
        is_fixed = not any(isinstance(size, str) for size in site.shape()[2:])
        _require(is_fixed or not given, "an output_shape that is cut out of a symbolic dimension")
        totals = transposed_padding(sizes, kernel, strides, dilations, extra, given[-len(kernel) :])
        _require(min(totals) >= 0, "an output_shape that windows do not reach")
        literals["pads"] = tuple(share_transposed_padding(totals, auto_pad))
    return literals


def _batch_normalization(site: Site, literals: Literals) -> Literals:
    site.raw.pop("momentum", None)  # of training only
    _require(site.raw.pop("training_mode", 0) == 0, "training")
    return literals


def _group_normalization(site: Site, literals: Literals) -> Literals:
    _require(site.opset >= 21, "scale and bias per group")  # per channel since opset 21
    return literals


def _reduction(site: Site, literals: Literals) -> Literals:
    rank = len(site.shape())
    axes = literals["axes"]
    keep_all = site.raw.pop("noop_with_empty_axes", 0)
    _require(bool(axes) or not keep_all, "a reduction over no axis")
    axes = tuple(sorted({site.axis(a) for a in axes})) if axes else tuple(range(rank))
    return _keep_axes(literals | {"axes": axes})


def _keep_axes(literals: Literals) -> Literals:
    """ONNX keeps reduced axes if the attribute is 1, not if it is any other number than 0."""
    return literals | {"keepdims": int(literals["keepdims"] == 1)}


def _position(site: Site, literals: Literals) -> Literals:
    return _keep_axes(_axis(site, literals))


def _cumulative(site: Site, literals: Literals) -> Literals:
    return literals | {"axis": tuple(site.axis(a) for a in literals["axis"])}


def _target_shape(site: Site, literals: Literals) -> Literals:
    """The whole result. No constant can replace a target that is still computed (engine/preparation/arguments.py)."""
    site.raw.pop("allowzero", None)
    return literals | {"shape": site.output_shape()}


def _squeeze(site: Site, literals: Literals) -> Literals:
    shape = site.shape()
    axes = literals["axes"]
    if axes is None:
        _require(all(isinstance(d, int) for d in shape), "a Squeeze of unknown axes")
        axes = tuple(a for a, d in enumerate(shape) if d == 1)
    _require(bool(axes) or literals["axes"] is None, "a Squeeze of no axes, which some runtimes take for all")
    return literals | {"axes": tuple(sorted(site.axis(a) for a in axes))}


def _unsqueeze(site: Site, literals: Literals) -> Literals:
    rank = len(site.shape()) + len(literals["axes"])
    return literals | {"axes": tuple(sorted(site.axis(a, rank) for a in literals["axes"]))}


def _transpose(site: Site, literals: Literals) -> Literals:
    axes = range(len(site.shape()))
    perm = literals["perm"] if "perm" in site.node.attributes else tuple(reversed(axes))
    _require(sorted(perm) == list(axes), "a perm that is no permutation")
    return literals | {"perm": perm}


_NO_END = 2**31 - 1
"""Exporters write this end of a slice, or that of 64 bits, if it reaches the end of an axis of unknown size."""


def _slice(site: Site, literals: Literals) -> Literals:
    shape = site.shape()
    starts, ends = literals["starts"], literals["ends"]
    is_computed = ends is None and site.follows_result
    if is_computed and starts is not None and min(starts) >= 0:
        ends = (_NO_END,) * len(starts)
    _require(starts is not None and ends is not None, "a Slice of opset 9, with attributes")
    axes = tuple(site.axis(a) for a in literals["axes"] or range(len(starts)))
    steps = literals["steps"] or (1,) * len(starts)
    _require(all(s > 0 for s in steps) and len(set(axes)) == len(axes), "a reversed or repeated slice")
    bounds = []
    for start, end, axis, step in sorted(zip(starts, ends, axes, steps, strict=True), key=lambda s: s[2]):
        size = shape[axis]
        if start == 0 and step == 1 and end >= _NO_END and not is_computed:
            continue
        if isinstance(size, int) and not is_computed:
            first, last, _ = slice(start, end, step).indices(size)
        elif (start, end, step) == (0, 1, 1) and size in site.knowledge.nonempty:
            first, last = 0, 1
        elif site.follows_result:  # the shape of the result says where the slice ends
            first, last = start, _NO_END
        else:
            raise NotEncodable("a slice of a symbolic dimension")
        bounds.append((first, max(first, last), axis, step))
    columns = zip(*bounds, strict=True) if bounds else ((), (), (), ())
    return dict(zip(("starts", "ends", "axes", "steps"), (tuple(c) for c in columns), strict=True))


def _tile(site: Site, literals: Literals) -> Literals:
    """Without repeats, if the shape of the result gives them."""
    is_computed = literals["repeats"] is None and site.follows_result
    return literals | ({"repeats": ()} if is_computed else {})


def _pad(site: Site, literals: Literals) -> Literals:
    rank = len(site.shape())
    axes = site.constant(3)
    pads = literals["pads"]
    _require(pads is not None, "a Pad of opset 10, with attributes")
    if axes is not None:
        some = [int(a) % rank for a in np.atleast_1d(axes)]
        sides = [dict(zip(some, half, strict=True)) for half in (pads[: len(some)], pads[len(some) :])]
        pads = tuple(side.get(a, 0) for side in sides for a in range(rank))
    _require(len(pads) == 2 * rank, "pads that do not fit the rank")
    return literals | {"pads": pads}


def _split(site: Site, literals: Literals) -> Literals:
    axis = site.axis(literals["axis"])
    site.raw.pop("num_outputs", None)
    _require(isinstance(site.shape()[axis], int), "a split of an axis of unknown size")
    sizes = []
    for output in site.node.outputs:
        shape = site.type_of(output).shape
        _require(shape is not None and isinstance(shape[axis], int), "a split of unknown sizes")
        sizes.append(shape[axis] if shape else 0)
    return literals | {"axis": axis, "split": tuple(sizes)}


def _resize(site: Site, literals: Literals) -> Literals:
    """Everything but the mode goes into one string: rules look at the mode, and at single settings by substring.

    A Resize without scales and sizes follows from the shapes of its operand and result.
    """
    _require(site.opset >= 11, "the Resize of opset 10")
    mode = literals["mode"] or "nearest"
    config = {k: list(v) if isinstance(v, (list, tuple)) else v for k, v in site.raw.items()}
    site.raw.clear()
    stretches = config.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    for position, name in ((1, "roi"), (2, "scales"), (3, "sizes")):
        array = site.target(position) if name == "sizes" and stretches else site.constant(position)
        if array is not None and array.size:
            config[name] = array.tolist()
    crops = config.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    read = {"nearest_mode": mode == "nearest", "cubic_coeff_a": mode == "cubic", "roi": crops}
    config = {k: v for k, v in config.items() if read.get(k, True) and RESIZE_DEFAULTS.get(k) != v}
    return {"mode": mode, "config": json.dumps(config, sort_keys=True)}


def _recurrence(site: Site, literals: Literals) -> Literals:
    """Attributes that few models give go into one string, without those that have their default values."""
    directions, *_, hidden = site.shape(2)
    _require(isinstance(directions, int), "a number of directions that a call decides")
    _require(literals["hidden_size"] in (None, hidden), "another size")
    config = {k: list(v) if isinstance(v, (list, tuple)) else v for k, v in site.raw.items()}
    site.raw.clear()
    config = {k: v for k, v in config.items() if v not in (0, [])}
    return literals | {"hidden_size": hidden, "config": json.dumps(config, sort_keys=True)}


def _quantization(site: Site, literals: Literals) -> Literals:
    """Scale and zero point are one for all elements, whatever the axis is then, or one for each position of it."""
    operand, scale, made = site.type_of(site.input(0)), site.type_of(site.input(1)), site.type_of(site.node.outputs[0])
    is_made = site.node.op_type == "QuantizeLinear"
    real, whole = (operand, made) if is_made else (made, operand)
    for name, default in (("block_size", 0), ("precision", 0), ("saturate", 1), ("output_dtype", 0)):
        value = site.raw.pop(name, default)
        _require(value == default or (name == "output_dtype" and site.input(2) is not None), f"a special {name}")
    _require(whole.dtype in (QUANTIZED if is_made else DEQUANTIZED), "integers of other bits")
    _require(real.dtype == scale.dtype and real.dtype in REAL, "types that differ")
    shapes = [site.shape(place) for place in (1, 2) if site.input(place) is not None]
    if all(set(shape) <= {1} for shape in shapes):
        return literals | {"axis": 1}
    axis = site.axis(literals["axis"])
    _require(all(shape == (site.shape()[axis],) for shape in shapes), "scales for blocks")
    return literals | {"axis": axis}


def _require_zero_point(site: Site, place: int, size: Dimension) -> None:
    """It is one number, or has one for each position of an axis of this size."""
    if site.input(place) is not None:
        shape = site.shape(place)
        _require(set(shape) <= {1} or shape == (size,), "zero points that do not fit")


def _integer_convolution(site: Site, literals: Literals) -> Literals:
    _require_zero_point(site, 2, 1)
    _require_zero_point(site, 3, site.shape(1)[0])
    return _convolution(site, literals)


def _integer_product(site: Site, literals: Literals) -> Literals:
    left, right = site.shape(0), site.shape(1)
    _require_zero_point(site, 2, left[-2] if len(left) > 1 else 1)
    _require_zero_point(site, 3, right[-1] if len(right) > 1 else 1)
    return literals


def _cast(site: Site, literals: Literals) -> Literals:
    _require(site.raw.pop("saturate", 1) == 1 and site.raw.pop("round_mode", "up") == "up", "a special rounding")
    return literals | {"to": dtype_name(ir.DataType(literals["to"]))}


FORMS: dict[str, Form] = {
    "Softmax": _coerced_softmax,
    "LogSoftmax": _coerced_softmax,
    "Hardmax": _coerced_softmax,
    "Flatten": _flatten,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "ConvInteger": _integer_convolution,
    "MatMulInteger": _integer_product,
    **dict.fromkeys(CONVERSIONS, _quantization),
    **dict.fromkeys(("AveragePool", "MaxPool"), _window),
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "CumSum": _cumulative,
    **dict.fromkeys(TO_SHAPES, _target_shape),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Slice": _slice,
    "Tile": _tile,
    "Pad": _pad,
    "Split": _split,
    "Resize": _resize,
    "Cast": _cast,
    **dict.fromkeys(RECURRENT, _recurrence),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("ArgMax", "ArgMin"), _position),
}
_PLACED = frozenset(o.name for o in OPERATORS.values() if any(a.name == "axis" for a in o.attributes)) - FORMS.keys()
FORMS.update(dict.fromkeys(_PLACED, _axis))


Literal = int | float | str | tuple[Dimension, ...]


@dataclass(frozen=True)
class Call:
    """A constructor with its arguments: operands by value name (None: absent), literals in canonical form.

    Dimensions inside a literal may still be symbols; the encoder numbers them.
    """

    operator: OperatorSchema
    operands: tuple[str | None, ...]
    attributes: tuple[Literal, ...]
    auto_pad: str = ""
    """How the pads of a call follow from its sizes, if they do; `attributes` have the largest ones."""


_ROWS = {(operator.domain, operator.op_type): operator for operator in OPERATORS.values()}


def canonical(
    node: ir.Node, knowledge: Knowledge, opset: int, *, keeps_auto_pad: bool = False, follows_result: bool = False
) -> Call | None:
    """The node as a call, or None if it is opaque.

    A window whose pads depend on the sizes of a call is opaque, unless its `auto_pad` is kept; so is an operator with
    an operand that computes the shape of its result, unless it `follows_result`, the shape that inference gives it.
    """
    op_type = "Add" if node.op_type == "Sum" and len(node.inputs) == 2 else node.op_type
    operator = _ROWS.get(("" if is_standard(node) else node.domain, op_type))
    if operator is None or not _fits(node, operator):
        return None
    attributes = {n: a.value for n, a in node.attributes.items()}
    site = Site(node, knowledge, opset, attributes, keeps_auto_pad, follows_result)
    try:
        literals = _literals(site, operator)
    except NotEncodable:
        return None
    if site.raw or any(literals[a.name] is None for a in operator.attributes):
        return None
    values = tuple(literals[a.name] for a in operator.attributes)
    return Call(operator, _operands(site, operator), values, site.auto_pad)


_SAY_RESULT = frozenset({"shape", "ends", "repeats"})
"""Attributes that follow from the shape of the result: the target of a Reshape or Expand, the ends of a Slice."""
_FURTHER_INPUTS = VARIADIC | {"Pad", "Resize"}
"""Operators whose canonical form, or the encoder, handles inputs beyond their signature."""


def _fits(node: ir.Node, operator: OperatorSchema) -> bool:
    given = [o for o in node.outputs if o.name]
    if not given or (operator.sort == "T" and (len(given) > 1 or not node.outputs[0].name)):
        return False
    if operator.name in VARIADIC and None in node.inputs:
        return False
    inputs = sum(_is_input(a) for a in operator.arguments)
    return len(node.inputs) <= inputs or operator.name in _FURTHER_INPUTS


def _literals(site: Site, operator: OperatorSchema) -> dict[str, Any]:
    literals = {a.name: _literal(site, a) for a in operator.attributes}
    form = FORMS.get(operator.name)
    return form(site, literals) if form else literals


def _literal(site: Site, attribute: Attribute) -> Literal | None:
    if attribute.input_since is not None and site.opset >= attribute.input_since:
        says_result = attribute.name in _SAY_RESULT
        array = site.target(attribute.position) if says_result else site.constant(attribute.position)
        return None if array is None else tuple(int(v) for v in np.atleast_1d(array).ravel())
    value = site.raw.pop(attribute.name, attribute.default)
    if value is None:
        return None
    if attribute.kind == "f64":
        return float(np.float32(value))
    return tuple(value) if attribute.kind == "Ints" else value


def _operands(site: Site, operator: OperatorSchema) -> tuple[str | None, ...]:
    names = []
    for position, argument in enumerate(a for a in operator.arguments if _is_input(a)):
        if isinstance(argument, Operand):
            value = site.input(position)
            names.append(value.name if value is not None else None)
    return tuple(names)


def _is_input(argument: Operand | Attribute) -> bool:
    return isinstance(argument, Operand) or argument.input_since is not None
