"""Integers whose sign rules change, for a runtime whose products of bytes may saturate; and the cost of a quantised
model if its numbers stay unrounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...costmodels.model import CostModel
from ...engine.egraph.graph import EGraph, ENode
from ...engine.onnx.model import Model, elements
from ...ir.operation import Operation
from ...ir.operators import OPERATORS
from ...ir.operators.quantization import CONVERSIONS, INTEGER_PRODUCTS
from ...ir.types import BYTES

_LARGEST = 128
"""The most that two weights may have together: 255 times as much fits 16 bits, in which two products are added up."""


NEVER = 1e6
"""The cost of what is not to be chosen: more than any graph costs, in seconds."""


@dataclass(frozen=True)
class UnroundedCost:
    """The costs of a `model` in a graph without products of integers, whose numbers are clipped and not rounded.

    A pair of conversions of one scale is as dear as one Clip, as by the rules of the soundness ``step``.
    """

    model: CostModel
    name: str = "unrounded"
    unit: str = "s"

    def cost(self, operation: Operation) -> float:
        """The cost of a Clip for a DequantizeLinear, nothing for a QuantizeLinear."""
        if operation.op in INTEGER_PRODUCTS:
            return NEVER
        source = operation.output_type if operation.op == "QuantizeLinear" else next(iter(operation.types), None)
        is_byte = source is not None and source.dtype in BYTES
        if operation.op not in CONVERSIONS or not is_byte or operation.operand(1).elements != 1:
            return self.model.cost(operation)
        if operation.op == "QuantizeLinear":
            return 0.0
        numbers = operation.output_type
        clip = Operation.of("Clip", {}, (numbers,), numbers, operation.constant[:1])
        return self.model.cost(clip)


def have_wide_pairs(model: Model) -> bool:
    """Whether two weights of a product of integers may be so large together that their products saturate 16 bits.

    Any two of one tensor count: which of them meet is the runtime's choice.
    """
    stored = model.stored
    for node in model.graph:
        source = node.inputs[0] if node.op_type == "DequantizeLinear" and node.inputs else None
        tensor = None if source is None else stored.get(source.name or "")
        if tensor is None or len(tensor.shape) < 2 or all(map(_is_apart, node.outputs[0].consumers())):
            continue
        array = elements(tensor)
        if array.dtype == np.int8 and array.size > 1:
            largest = np.partition(np.abs(array.astype(np.int16)).ravel(), -2)[-2:]
            if int(largest.sum()) > _LARGEST:
                return True
    return False


def _is_apart(node: ir.Node) -> bool:
    """Whether no product reads what a node makes of an operand in the place of the operand itself."""
    row = OPERATORS.get(node.op_type)
    return row is not None and (row.is_elementwise or row.category == "normalization" or row.name == "Gather")


def find_unsigned_twins(egraph: EGraph, terms: Sequence[ENode]) -> frozenset[ENode]:
    """The e-nodes that make or read integers without a sign where others of the e-graph have them with one.

    None if the model, whose terms these are, makes no integers with a sign; its own e-nodes are none of them. What
    rules moved is no term of the model, so signs count wherever they are.
    """
    known = egraph.terms
    originals = {
        ENode(term.op, term.attributes, tuple(known[child] for child in term.children))
        for term in terms if term.op in CONVERSIONS and all(child in known for child in term.children)
    }  # fmt: skip
    if not originals:
        return frozenset()
    makers: list[tuple[ENode, str]] = []
    twins: set[ENode] = set()
    for class_ in egraph.classes:
        readers: dict[str, list[ENode]] = {}
        for node in class_.nodes:
            if node.op == "QuantizeLinear" and class_.type is not None:
                makers.append((node, class_.type.dtype))
            elif node.op == "DequantizeLinear" and (type_ := egraph.classes[node.children[0]].type) is not None:
                readers.setdefault(type_.dtype, []).append(node)
        twins.update(readers.get("uint8", ()) if "int8" in readers else ())
    if not any(dtype == "int8" and node in originals for node, dtype in makers):
        return frozenset()
    signed = {(node.children[:2], node.attributes) for node, dtype in makers if dtype == "int8"}
    twins.update(node for node, dtype in makers if dtype == "uint8" and (node.children[:2], node.attributes) in signed)
    return frozenset(twins - originals)


def find_lone_integers(egraph: EGraph, terms: Sequence[ENode]) -> frozenset[int]:
    """The classes of integers of the model, whose terms these are, that stand for numbers with one reader at most.

    If they have a sign, ONNX Runtime takes it from them by itself; a number that two read has a DequantizeLinear for
    each.
    """
    readers: dict[int, list[int]] = {}
    for number, term in enumerate(terms):
        for child in term.children:
            readers.setdefault(child, []).append(number)

    def is_lone(integers: int) -> bool:
        found = readers.get(integers, [])
        return len(found) == 1 and terms[found[0]].op == "DequantizeLinear" and len(readers.get(found[0], [])) <= 1

    made = [number for number, term in enumerate(terms) if term.op == "QuantizeLinear" and is_lone(number)]
    return frozenset(egraph.terms[number] for number in made if number in egraph.terms)


def find_computed_addends(egraph: EGraph) -> frozenset[int]:
    """The constants that rules compute of addends of 32 bits, which a runtime adds inside of its products."""
    known = set(egraph.terms.values())

    def is_wide(owner: int) -> bool:
        type_ = egraph.classes[owner].type
        return egraph.classes[owner].constant and type_ is not None and type_.dtype == "int32"

    def is_number(owner: int) -> bool:
        return any(node.op == "Cast" and is_wide(node.children[0]) for node in egraph.classes[owner].nodes)

    made = [owner for owner, class_ in enumerate(egraph.classes) if class_.constant and owner not in known]
    scaled = {
        owner for owner in made if any(n.op == "Mul" and is_number(n.children[0]) for n in egraph.classes[owner].nodes)
    }
    before = -1
    while len(scaled) > before:  # what is computed of them is no integer either
        before = len(scaled)
        scaled |= {
            owner for owner in made if any(not scaled.isdisjoint(n.children) for n in egraph.classes[owner].nodes)
        }
    return frozenset(scaled)
