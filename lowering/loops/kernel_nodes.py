"""Nodes that are compiled kernels, among those that are loops: ``Y = kernel(X, W)``."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

KERNEL_DOMAIN = "eqfuse.kernel"
"""The domain of kernels; the type of a node is the kernel's symbol."""
_DTYPES, _SHAPE = "dtypes", "shape_"


def make_kernel_node(
    symbol: str, inputs: Sequence[str], outputs: Sequence[str], dtypes: Sequence[str], shapes: Sequence[Sequence[int]]
) -> onnx.NodeProto:
    """The node of a kernel whose results have these element types and shapes in memory."""
    node = helper.make_node(symbol, inputs, outputs, domain=KERNEL_DOMAIN)
    node.attribute.append(helper.make_attribute(_DTYPES, list(dtypes)))
    for number, shape in enumerate(shapes):
        kind = onnx.AttributeProto.INTS
        node.attribute.append(helper.make_attribute(f"{_SHAPE}{number}", list(shape), attr_type=kind))
    return node


def result_dtypes(node: onnx.NodeProto) -> list[str]:
    """The element types of a kernel's results."""
    attributes = {a.name: a for a in node.attribute}
    return [text.decode() for text in attributes[_DTYPES].strings]


def result_shapes(node: onnx.NodeProto) -> list[tuple[int, ...]]:
    """The shapes of a kernel's results."""
    attributes = {a.name: a for a in node.attribute}
    return [tuple(attributes[f"{_SHAPE}{number}"].ints) for number in range(len(node.output))]
