"""Faults of onnx's shape inference: operators that crash it, and sizes behind windows that runtimes compute otherwise.

Some operators crash the process if an operand has no type. Inference does not get them.

A pool with ``ceil_mode``: no window may begin in the pad at the end. ONNX says so since opset 22, and runtimes never
had such windows, but shape inference counts them in the older operators. Inference gets such pools without
``ceil_mode``.

A pool with SAME padding and dilations: ONNX Runtime counts the padding without the dilations, and so has fewer windows
than ONNX. With ``ceil_mode`` shape inference counts some windows too many. It gets a pool of stride 1 with as many.

A ConvTranspose with SAME padding: elements beyond ``size * stride`` are dropped, output padding included, and nothing
is added if there are fewer; shape inference adds the output padding. One with an ``output_shape`` below the size of its
operand gets no shape at all. Inference gets both with the pads that follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import onnx

from ...ir.operators.windows import WINDOWED_POOLS
from ...ir.types import TensorType
from .wellformed import ONNX_DOMAINS

_DELICATE = frozenset({"EyeLike", "RegexFullMatch", "TreeEnsemble", "DictVectorizer", "LabelEncoder"})
"""In onnx 1.19 to 1.23 the inference of these operators reads an operand's type without a check that it has one."""
_SAME = ("SAME_UPPER", "SAME_LOWER")
_REPLACED = frozenset({"auto_pad", "ceil_mode", "output_shape", "pads"})
"""Attributes that the pads replace."""


def without_delicate_nodes(model: onnx.ModelProto, types: Mapping[str, TensorType]) -> onnx.ModelProto:
    """The model without the nodes whose inference may crash this process: delicate ones with no operand in `types`.

    The types of the other delicate operands are declared, since inference of the operand itself may fail.
    """
    if not any(node.op_type in _DELICATE for node in model.graph.node):
        return model
    from .typing import dtype_of  # with onnx-ir, which takes a while to import

    safe = onnx.ModelProto()
    safe.CopyFrom(model)
    del safe.graph.node[:]
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    declared = {value.name for value in values if value.type.WhichOneof("value")}
    for node in model.graph.node:
        operand = node.input[0] if node.input else ""
        if node.op_type not in _DELICATE or operand in types:
            safe.graph.node.append(node)
        if node.op_type in _DELICATE and operand in types and operand not in declared:
            element_type = dtype_of(types[operand].dtype)
            safe.graph.value_info.append(onnx.helper.make_tensor_value_info(operand, int(element_type), None))
            declared.add(operand)
    return safe


def correct_window(nodes: Iterable[onnx.NodeProto], types: Mapping[str, TensorType]) -> bool:
    """Rewrite, in place, the first operator whose size shape inference gets wrong; False if there is none."""
    for node in nodes:
        if node.domain not in ONNX_DOMAINS or (node.op_type not in WINDOWED_POOLS and node.op_type != "ConvTranspose"):
            continue
        settings = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        operands = [types.get(name) for name in node.input]
        if node.op_type == "ConvTranspose":
            pads = _transposed_pads(settings, *operands[:2])
        else:
            pads = _pool_pads(settings, operands[0], types.get(node.output[0]))
        if pads is not None:
            _replace_attributes(node, _REPLACED, pads=pads)
            return True
        if node.op_type in WINDOWED_POOLS and _is_wrong_same(settings) and (sizes := _spatial_sizes(operands[0])):
            counts = _count_same_windows(settings, sizes)
            kernel = [size - count + 1 for size, count in zip(sizes, counts, strict=True)]
            _replace_attributes(node, {*_REPLACED, "dilations", "kernel_shape", "strides"}, kernel_shape=kernel)
            return True
    return False


def _replace_attributes(node: onnx.NodeProto, replaced: Set[str], **made: Sequence[int]) -> None:
    others = [a for a in node.attribute if a.name not in replaced]
    del node.attribute[:]
    node.attribute.extend([*others, *(onnx.helper.make_attribute(name, value) for name, value in made.items())])


def _is_wrong_same(settings: Mapping[str, Any]) -> bool:
    is_same = settings.get("auto_pad", b"NOTSET").decode() in _SAME
    return is_same and (settings.get("ceil_mode") or any(dilation > 1 for dilation in settings.get("dilations") or ()))


def share_transposed_padding(totals: Sequence[int], auto_pad: str) -> list[int]:
    """The pads of a ConvTranspose, begins and ends, that drop `totals` elements of its axes.

    ONNX Runtime gives an odd one's larger half to the begin unless ``auto_pad`` is SAME_UPPER.
    """
    begins = [total // 2 if auto_pad == "SAME_UPPER" else total - total // 2 for total in totals]
    return [*begins, *(total - begin for total, begin in zip(totals, begins, strict=True))]


def transposed_padding(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
    results: Sequence[int] = (),
) -> list[int]:
    """The elements that a ConvTranspose drops of each axis so that `results` are left, or at most `sizes` times
    strides.

    Below 0 if windows do not reach the result. For SAME padding it is the same for all sizes.
    """
    wholes = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, k, s, d, e in zip(sizes, kernel, strides, dilations, extra, strict=True)
    ]
    if results:
        return [whole - size for whole, size in zip(wholes, results, strict=True)]
    return [max(0, whole - n * s) for whole, n, s in zip(wholes, sizes, strides, strict=True)]


def _transposed_pads(
    settings: Mapping[str, Any], data: TensorType | None, weight: TensorType | None
) -> list[int] | None:
    """The pads that give the right size without ``auto_pad`` and ``output_shape``; None if inference is right, or
    nothing is known."""
    auto_pad, results = settings.get("auto_pad", b"NOTSET").decode(), settings.get("output_shape") or ()
    kernel = settings.get("kernel_shape") or _spatial_sizes(weight)
    ones = [1] * len(kernel)
    sizes = (_spatial_sizes(data) if results else ones) or ()
    extra = settings.get("output_padding") or [0] * len(kernel)
    is_wrong = any(r < n for r, n in zip(results, sizes, strict=False)) if results else any(extra)
    if not is_wrong or not (results or auto_pad in _SAME) or len(sizes) != len(kernel):
        return None
    strides, dilations = settings.get("strides") or ones, settings.get("dilations") or ones
    totals = transposed_padding(sizes, kernel, strides, dilations, extra, results[-len(kernel) :])
    return share_transposed_padding(totals, auto_pad)


def _pool_pads(settings: Mapping[str, Any], data: TensorType | None, result: TensorType | None) -> list[int] | None:
    """The pads that give the right size without ``ceil_mode``; None if the inferred size is right or unknown."""
    sizes, counts = _spatial_sizes(data), _spatial_sizes(result)
    if not settings.get("ceil_mode") or settings.get("auto_pad", b"NOTSET") != b"NOTSET" or not sizes or not counts:
        return None
    rank = len(sizes)
    strides = settings.get("strides") or [1] * rank
    dilations = settings.get("dilations") or [1] * rank
    pads = list(settings.get("pads") or [0] * (2 * rank))
    outside = [(counts[i] - 1) * strides[i] >= sizes[i] + pads[i] for i in range(rank)]
    for i in range(rank):
        if not outside[i]:
            extent = (settings["kernel_shape"][i] - 1) * dilations[i] + 1
            pads[rank + i] = max(pads[rank + i], (counts[i] - 1) * strides[i] + extent - sizes[i] - pads[i])
    return pads if any(outside) else None


def _count_same_windows(settings: Mapping[str, Any], sizes: Sequence[int]) -> list[int]:
    """How many windows of a pool with SAME padding ONNX Runtime has along each axis."""
    ones, counts = [1] * len(sizes), []
    steps = zip(settings.get("strides") or ones, settings.get("dilations") or ones, strict=True)
    for size, kernel, (stride, dilation) in zip(sizes, settings["kernel_shape"], steps, strict=True):
        missing = (kernel - 1) * (dilation - 1)
        fewer = missing // stride if settings.get("ceil_mode") else -(-missing // stride)
        counts.append(max(1, -(-size // stride) - fewer))
    return counts


def _spatial_sizes(type_: TensorType | None) -> tuple[int, ...]:
    """The dimensions behind the first two; () if one of them is unknown."""
    shape = type_.shape[2:] if type_ is not None and type_.shape is not None else ()
    return tuple(d for d in shape if isinstance(d, int)) if all(isinstance(d, int) for d in shape) else ()
