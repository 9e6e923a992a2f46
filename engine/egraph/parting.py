"""Operators written in forms that a runtime does not recognise, because the kernel that it would make takes longer.

    DequantizeLinear, Softmax, QuantizeLinear => DequantizeLinear, Softmax, Sum, QuantizeLinear

A Sum of one operand copies it: ONNX Runtime makes no QLinearSoftmax of what stands before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ...costmodels.runtime import Quantised, Runtime
from ..onnx.nodes import is_standard
from .graph import EGraph
from .plan import PlanStep

_COPY = "Sum"
_STEPS = 255
"""The steps between the least and the largest integer of 8 bits."""


def other_names(plan: Sequence[PlanStep], egraph: EGraph, runtime: Runtime) -> dict[int, str]:
    """The operators of other names as which classes are written, so that the runtime does not fuse them."""
    steps = {step.owner: step for step in plan}
    names: dict[int, str] = {}
    for step in plan:
        source = steps.get(step.operands[0]) if step.operands else None
        for apart in runtime.apart:
            if source is not None and step.node.op in apart.before and source.node.op == apart.operator:
                shapes = {None if (type_ := egraph.classes[c].type) is None else type_.shape for c in source.operands}
                if len(shapes) == 1 and None not in shapes:
                    names[source.owner] = apart.write
    return names


def part_units(nodes: Sequence[ir.Node], quantised: Quantised, name: Callable[[str], str]) -> list[ir.Node]:
    """The nodes, with copies between conversions and operators that take longer as units with them.

    `name` makes a name that nothing has.
    """
    result: list[ir.Node] = []
    for node in nodes:
        if not _is_unit(node, quantised):
            result.append(node)
            continue
        value = node.outputs[0]
        readers = list(value.uses())
        copy = ir.node(_COPY, [value], name=name(_COPY))
        output = copy.outputs[0]
        output.name, output.type, output.shape = name("value"), value.type, value.shape
        for reader in readers:
            reader.node.replace_input_with(reader.idx, output)
        result += [node, copy]
    return result


def _is_unit(node: ir.Node, quantised: Quantised) -> bool:
    parted = next((each for each in quantised.apart if each.operator == node.op_type), None)
    if parted is None or not is_standard(node) or not node.inputs:
        return False
    value, source = node.outputs[0], _dequantisation(node.inputs[0], quantised)
    if source is None or value.is_graph_output() or not _is_quantised(value, quantised):
        return False
    return math.isinf(parted.widest) or _width(source) <= parted.widest


def _width(node: ir.Node) -> float:
    """How far apart the numbers are that a DequantizeLinear makes; infinite if it is not known."""
    scale = node.inputs[1]
    tensor = None if scale is None else ir.convenience.get_const_tensor(scale)
    return math.inf if tensor is None else _STEPS * float(np.max(tensor.numpy()))


def _dequantisation(value: ir.Value | None, quantised: Quantised) -> ir.Node | None:
    """The DequantizeLinear from which a value comes, moved at most; None if there is none."""
    node = None if value is None else value.producer()
    if node is None or not is_standard(node):
        return None
    if node.op_type == "DequantizeLinear":
        return node
    return _dequantisation(node.inputs[0], quantised) if node.op_type in quantised.moving else None


def _is_quantised(value: ir.Value, quantised: Quantised) -> bool:
    return any(
        use.node.op_type == "QuantizeLinear"
        or (use.node.op_type in quantised.moving and use.idx == 0 and _is_quantised(use.node.outputs[0], quantised))
        for use in value.uses()
        if is_standard(use.node)
    )
