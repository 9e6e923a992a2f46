"""Integers whose sign rules change, for a runtime whose products of bytes may saturate."""

from __future__ import annotations

import numpy as np

from ...engine.egraph.graph import EGraph, ENode
from ...engine.onnx.model import Model, elements

_LARGEST = 128
"""The most that two weights may have together: 255 times as much fits 16 bits, in which two products are added up."""


def have_wide_pairs(model: Model) -> bool:
    """Whether two weights of a product of integers may be so large together that their products saturate 16 bits.

    Any two of one tensor count: which of them meet is the runtime's choice.
    """
    stored = model.stored
    for node in model.graph:
        source = node.inputs[0] if node.op_type == "DequantizeLinear" and node.inputs else None
        tensor = None if source is None else stored.get(source.name or "")
        if tensor is None or len(tensor.shape) < 2:
            continue
        array = elements(tensor)
        if array.dtype == np.int8 and array.size > 1:
            largest = np.partition(np.abs(array.astype(np.int16)).ravel(), -2)[-2:]
            if int(largest.sum()) > _LARGEST:
                return True
    return False


def find_unsigned_twins(egraph: EGraph) -> frozenset[ENode]:
    """The e-nodes that quantise to integers without a sign what others of the e-graph quantise to ones with it."""
    quantizers = [
        (node, class_.type.dtype)
        for class_ in egraph.classes
        if class_.type is not None
        for node in class_.nodes
        if node.op == "QuantizeLinear"
    ]
    signed = {(node.children[:2], node.attributes) for node, dtype in quantizers if dtype == "int8"}
    return frozenset(
        node for node, dtype in quantizers if dtype == "uint8" and (node.children[:2], node.attributes) in signed
    )
