"""Ifs and Loops whose way is known: the branch that is taken, or the one iteration, in their place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ..onnx.nodes import branches, is_flat_if, is_standard
from ..shapes.inference import Knowledge
from .flatten import FlatModel, Region, drop_unused, region_of, replace_outputs


def resolve_constants(flat: FlatModel, knowledge: Knowledge) -> bool:
    """Put branches in the place of Ifs of a constant condition, and the iteration in that of Loops that run once.

    Changes the flat model. Returns whether there were any.
    """
    changes = False
    for node in list(flat.graph):
        region = region_of(node, flat.regions)
        if is_flat_if(node):
            condition = _element(node.inputs[0], knowledge)
            if condition is not None:
                replace_by_branch(flat, node, 0 if condition else 1)
                changes = True
        elif region is not None and region.op_type == "Loop":
            changes |= _resolve_loop(flat, node, region, knowledge)
    if changes:
        drop_unused(flat)
    return changes


def replace_by_branch(flat: FlatModel, node: ir.Node, branch: int) -> None:
    """Put the first or the second branch in the place of an If."""
    flat.open_scope(flat.branches[node.outputs[0].name or ""][branch])
    _replace(flat, node, branches(node)[branch])


def make_ranges_scalar(flat: FlatModel, knowledge: Knowledge) -> bool:
    """Give every Range scalars: ONNX Runtime takes vectors of one element, too, but only if an If hides their rank.

    Changes the flat model. Returns whether there were any.
    """
    changes = False
    for node in list(flat.graph):
        for index, value in enumerate(node.inputs if node.op_type == "Range" and is_standard(node) else ()):
            type_ = knowledge.types.get(value.name or "") if value is not None else None
            if value is not None and type_ is not None and type_.shape == (1,):
                shape = _constant(flat, node, np.asarray([], np.int64))
                node.replace_input_with(index, _insert(flat, node, ir.node("Reshape", [value, shape])))
                changes = True
    return changes


def _element(value: ir.Value | None, knowledge: Knowledge) -> int | None:
    array = None if value is None else knowledge.constants.get(value.name or "")
    return int(array.item()) if array is not None and array.size == 1 else None


def _resolve_loop(flat: FlatModel, node: ir.Node, region: Region, knowledge: Knowledge) -> bool:
    limit, condition = (_element(value, knowledge) for value in node.inputs[:2])
    begins = node.inputs[1] is None or bool(condition)
    states = [value for value in node.inputs[2 : region.inputs] if value is not None]
    results = [value for value in node.inputs[region.inputs :] if value is not None]
    stops = _element(results[0], knowledge) == 0
    never = (condition is not None and not condition) or (limit is not None and limit <= 0)
    if never and len(node.outputs) == region.states:
        _replace(flat, node, states)
        return True
    if never or not begins or not (limit == 1 or (stops and (node.inputs[0] is None or limit is not None))):
        return False
    iteration, going = (_constant(flat, flat.graph[0], array) for array in (np.asarray(0), np.asarray(True)))
    for formal, value in zip(region.formals, (iteration, going, *states), strict=True):
        flat.inputs[formal].replace_all_uses_with(value, replace_graph_outputs=True)
    flat.open_scope(region.scope)
    rows = [value for value in node.inputs[region.inputs :] if value is not None]  # formals among them are replaced
    scanned = [_row(flat, node, value) for value in rows[1 + region.states :]]
    _replace(flat, node, [*rows[1 : 1 + region.states], *scanned])
    return True


def _constant(flat: FlatModel, before: ir.Node, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> ir.Value:
    """A constant in front of a node."""
    node = ir.node("Constant", [], attributes={"value": ir.tensor(array)})
    return _insert(flat, before, node)


def _row(flat: FlatModel, before: ir.Node, value: ir.Value) -> ir.Value:
    """A value as the only row of a tensor."""
    if flat.model.opset < 13:
        return _insert(flat, before, ir.node("Unsqueeze", [value], attributes={"axes": [0]}))
    axes = _constant(flat, before, np.asarray([0]))
    return _insert(flat, before, ir.node("Unsqueeze", [value, axes]))


def _insert(flat: FlatModel, before: ir.Node, node: ir.Node) -> ir.Value:
    value = node.outputs[0]
    value.name = flat.fresh(node.op_type)
    flat.graph.insert_before(before, node)
    return value


def _replace(flat: FlatModel, node: ir.Node, values: Sequence[ir.Value]) -> None:
    """Make values the outputs of a node, which keep their names."""
    for output, value in zip(replace_outputs(node), values, strict=True):
        flat.graph.insert_before(node, ir.Node("", "Identity", [value], outputs=[output]))
    flat.graph.remove(node)
