"""Operators that ONNX defines by other ones, as local functions: ``Model -> Model``.

Attention, losses, windows and others are functions in ONNX's standard. Those that no row of the operator table
describes become calls of local functions, which are put in place like those of the model itself. So do some operators
of classical machine learning (`classical_functions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import defs
from onnx_ir import serde

from ...ir.operators import OPERATORS
from ...ir.types import TensorType
from ..onnx.model import Model
from ..onnx.nodes import RANDOM_OPERATORS, is_standard
from ..onnx.typing import type_proto
from ..shapes.classical import is_classical
from .classical_functions import classical_function, is_expandable_classical
from .einsum import einsum_function

DOMAIN = "eqfuse.expanded"
EINSUM, CLIP, STFT, NORMALIZATION = "Einsum", "Clip", "STFT", "MeanVarianceNormalization"
_LONGEST_FRAME = 2048
"""Elements of a frame of an STFT at most whose waves are constants: 17 MB of them."""
_BOUNDS = (("Max", "min"), ("Min", "max"))
"""The operators that a Clip before opset 11 stands for, each with its attribute."""
_BROADCASTING = 8
"""The opset since which Max and Min repeat a number."""
_MEAN_AXES_INPUT = 18
"""The opset since which the axes of ReduceMean are an input."""
_AXES_INPUT = 13
"""The opset since which Constant takes lists of integers, and all operators have the forms used here."""
_KEPT = RANDOM_OPERATORS | {"DynamicQuantizeLinear", "Range", "SequenceMap"}
"""Operators that stay: their parts are of no use to anyone."""


def list_expandable(model: Model) -> list[ir.Node]:
    """The nodes that ONNX defines by other operators, and the operator table does not describe."""
    return [node for node in model.ir.graph.all_nodes() if _is_expandable(node)]


def expand_operators(model: Model, types: Mapping[str, TensorType]) -> Model:
    """A model in which the expandable nodes are calls of local functions, as far as the types of their inputs tell."""
    result = Model(model.ir.clone(), model.path, lowest=model.lowest)
    for number, node in enumerate(list_expandable(result)):
        function = _function_of(node, model.opset, types)
        if function is None:
            continue
        function.domain, function.name = DOMAIN, f"{node.op_type}_{number}"
        computed = {output for inner in function.node for output in inner.output}
        while function.output and function.output[-1] not in computed:  # what this node does not ask for
            del function.output[-1]
        if not computed.issuperset(function.output):
            continue
        defined = serde.deserialize_function(function)
        result.ir.functions[defined.identifier()] = defined
        result.ir.opset_imports.setdefault(DOMAIN, 1)
        for domain, version in defined.opset_imports.items():
            result.ir.opset_imports.setdefault(domain, version)
        if is_standard(node):
            node.attributes.update({a.name: a for a in _defaults(node, model.opset) if a.name not in node.attributes})
        for name in [name for name in node.attributes if name not in defined.attributes]:
            del node.attributes[name]
        node.domain, node.op_type = DOMAIN, defined.name
    return result


def _is_expandable(node: ir.Node) -> bool:
    if is_expandable_classical(node):
        return True
    if is_standard(node) and node.op_type in (EINSUM, STFT, NORMALIZATION):
        return True
    if is_standard(node) and node.op_type == CLIP and node.attributes:
        return True
    if not is_standard(node) or node.op_type in OPERATORS or node.op_type in _KEPT or not defs.has(node.op_type):
        return False
    schema: Any = defs.get_schema(node.op_type)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _function_of(node: ir.Node, opset: int, types: Mapping[str, TensorType]) -> onnx.FunctionProto | None:
    """The function of a node, for the model's version; None where ONNX has none for it."""
    if is_classical(node):
        return classical_function(node, opset, types.get(node.inputs[0].name or "") if node.inputs[0] else None)
    if node.op_type == EINSUM:
        return _einsum_of(node, opset, types)
    if node.op_type == STFT:
        return _stft_of(node, opset, types)
    if node.op_type == CLIP:
        return _clip_of(node, opset, types)
    if node.op_type == NORMALIZATION:
        return _normalization_of(node, opset)
    schema: Any = defs.get_schema(node.op_type, opset)  # onnx leaves methods out of its stub
    function = onnx.FunctionProto()
    versions = [v for v in schema.function_opset_versions if v <= opset]
    if versions:
        function.ParseFromString(schema.get_function_with_opset_version(max(versions)))
        return function if _fits(function, opset) else None
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    operands = [_type(value, types) for value in node.inputs]
    if not versions or None in operands:
        return None
    content = [t.SerializeToString() for t in operands if t is not None]
    call = serde.serialize_node(node).SerializeToString()
    function.ParseFromString(schema.get_context_dependent_function_with_opset_version(max(versions), call, content))
    return function if _fits(function, opset) else None


def _einsum_of(node: ir.Node, opset: int, types: Mapping[str, TensorType]) -> onnx.FunctionProto | None:
    """An Einsum as products; None where the shape of an operand is not known, or there are no such products."""
    operands = [types.get(value.name or "") for value in node.inputs if value is not None]
    shapes = [type_.shape for type_ in operands if type_ is not None and type_.shape is not None]
    if len(shapes) < len(node.inputs):
        return None
    return einsum_function(node.attributes["equation"].as_string(), shapes, opset)


def _stft_of(node: ir.Node, opset: int, types: Mapping[str, TensorType]) -> onnx.FunctionProto | None:
    """A short-time Fourier transform of real numbers as a convolution: ``Y[f, k] = sum of X[f*s + t] * W[k, t]``.

    None where step, window or the length of a frame is computed, and for signals of complex numbers.
    """
    signal = types.get(node.inputs[0].name or "") if node.inputs[0] is not None else None
    step, window, length = (_constant(node, place) for place in (1, 2, 3))
    given = (len(node.inputs) > place and node.inputs[place] is not None for place in (2, 3))
    is_known = all((array is not None) == there for array, there in zip((window, length), given, strict=True))
    if step is None or not is_known or (window is None and length is None):
        return None
    count = int(length.item()) if length is not None else window.size if window is not None else 0
    if signal is None or signal.shape is None or len(signal.shape) != 3 or signal.shape[2] != 1 or opset < _AXES_INPUT:
        return None
    if not 0 < count <= _LONGEST_FRAME or step.item() < 1:
        return None
    onesided = node.attributes["onesided"].as_int() if "onesided" in node.attributes else 1
    bins = count // 2 + 1 if onesided else count
    angles = 2 * np.pi * (np.arange(bins)[:, None] * np.arange(count) % count) / count
    weighting = np.ones(count) if window is None else np.pad(window.ravel(), (0, count))[:count].astype(np.float64)
    waves = (np.stack([np.cos(angles), -np.sin(angles)]) * weighting).reshape(2 * bins, 1, count)
    stored = onnx.numpy_helper.from_array(waves.astype(signal.dtype), "waves")
    make = onnx.helper.make_node
    steps = [
        make("Constant", [], ["waves"], value=stored),
        make("Constant", [], ["parts"], value_ints=[0, 2, bins, -1]),
        make("Transpose", ["signal"], ["row"], perm=[0, 2, 1]),
        make("Conv", ["row", "waves"], ["sums"], strides=[int(step.item())]),
        make("Reshape", ["sums", "parts"], ["split"]),
        make("Transpose", ["split"], ["y"], perm=[0, 3, 2, 1]),
    ]
    names = ["signal", "step", "window", "length"][: len(node.inputs)]
    return onnx.helper.make_function(DOMAIN, STFT, names, ["y"], steps, [onnx.helper.make_opsetid("", opset)])


def _constant(node: ir.Node, place: int) -> np.ndarray[Any, Any] | None:
    """The value of an input that is stored; None where it is computed or absent."""
    value = node.inputs[place] if len(node.inputs) > place else None
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def _normalization_of(node: ir.Node, opset: int) -> onnx.FunctionProto:
    """A normalisation to the mean 0 and the variance 1 as ONNX Runtime computes it: `d / sqrt(mean(d * d))` of the
    deviations `d` from the mean, where ONNX's own function subtracts squares, and loses most digits by that."""
    axes = list(node.attributes["axes"].as_ints()) if "axes" in node.attributes else list(_NORMALIZED_AXES)
    make, mean_inputs, attributes = onnx.helper.make_node, ["axes"], dict[str, Any]()
    steps = [make("Constant", [], ["axes"], value=onnx.numpy_helper.from_array(np.asarray(axes, np.int64)))]
    if opset < _MEAN_AXES_INPUT:
        steps, mean_inputs, attributes = [], [], {"axes": axes}
    steps += [
        make("ReduceMean", ["x", *mean_inputs], ["mean"], **attributes),
        make("Sub", ["x", "mean"], ["deviation"]),
        make("Mul", ["deviation", "deviation"], ["square"]),
        make("ReduceMean", ["square", *mean_inputs], ["variance"], **attributes),
        make("Sqrt", ["variance"], ["spread"]),
        make("Div", ["deviation", "spread"], ["y"]),
    ]
    return onnx.helper.make_function(
        DOMAIN, NORMALIZATION, ["x"], ["y"], steps, [onnx.helper.make_opsetid("", opset)]
    )


_NORMALIZED_AXES = 0, 2, 3
"""What a MeanVarianceNormalization takes together if it does not say."""


def _clip_of(node: ir.Node, opset: int, types: Mapping[str, TensorType]) -> onnx.FunctionProto | None:
    """A Clip whose bounds are attributes as a maximum and a minimum; None where these do not broadcast."""
    type_ = _type(node.inputs[0], types)
    if type_ is None or opset < _BROADCASTING:
        return None
    dtype, value, steps = onnx.helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type), "x", []
    for operator, name in _BOUNDS:
        if name in node.attributes:
            bound = onnx.numpy_helper.from_array(np.asarray(node.attributes[name].as_float(), dtype), name)
            steps.append(onnx.helper.make_node("Constant", [], [name], value=bound))
            steps.append(onnx.helper.make_node(operator, [value, name], [value := f"{name}_bounded"]))
    steps.append(onnx.helper.make_node("Identity", [value], ["y"]))
    return onnx.helper.make_function(DOMAIN, CLIP, ["x"], ["y"], steps, [onnx.helper.make_opsetid("", opset)])


def _fits(function: onnx.FunctionProto, opset: int) -> bool:
    """Whether the operators of a function mean the same in the model's version; it is then said to be of this one."""
    for entry in function.opset_import:
        if entry.domain:
            continue
        for node in function.node:
            if node.domain == "" and (
                defs.get_schema(node.op_type, entry.version).since_version
                != defs.get_schema(node.op_type, opset).since_version
            ):
                return False
        entry.version = opset
    return True


def _type(value: ir.Value | None, types: Mapping[str, TensorType]) -> onnx.TypeProto | None:
    """The type of an input, an empty one where it is absent; None where it is not known."""
    if value is None:
        return onnx.TypeProto()
    type_ = types.get(value.name or "")
    return None if type_ is None else type_proto(type_)


def _defaults(node: ir.Node, opset: int) -> list[ir.Attr]:
    attributes = defs.get_schema(node.op_type, opset).attributes.values()
    return [serde.deserialize_attribute(a.default_value) for a in attributes if a.default_value.type]
