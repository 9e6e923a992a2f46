"""States that nothing reads or that never change, and unread results, are removed from Loops and Scans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import compress

import onnx_ir as ir

from .flatten import FlatModel, Region, drop_unused, make_region, region_of, replace_outputs


def simplify_loops(flat: FlatModel) -> None:
    """Drop unread results and states, and replace states that never change by their initial values.

    Changes the flat model.
    """
    for node in reversed(list(flat.graph)):  # outer ones first: an inner one may only serve what they drop
        region = region_of(node, flat.regions)
        if region is not None:
            _simplify(flat, node, region)
    drop_unused(flat)


def _simplify(flat: FlatModel, node: ir.Node, region: Region) -> None:
    first, count = region.first_state, region.states
    fixed = _replace_fixed_states(flat, node, region)
    results = node.inputs[region.inputs :]
    leading, returned = results[: region.first_result], results[region.first_result :]
    kept = [_is_read(output) and not is_fixed for output, is_fixed in zip(node.outputs, fixed, strict=False)]
    kept += [_is_read(output) for output in node.outputs[count:]]
    formals = [flat.inputs[name] for name in region.formals]
    reached = _reach([*leading, *compress(returned, kept)])
    while more := [i for i in range(count) if not kept[i] and not fixed[i] and formals[first + i] in reached]:
        for index in more:
            kept[index] = True
        reached = _reach([*leading, *compress(returned, kept)])
    slices = [formal in reached for formal in formals[count:]] if region.scan_inputs else []
    if slices and not any(slices):
        slices[0] = True  # it determines the number of iterations
    taken = [*[True] * first, *kept[:count], *slices]
    if all(taken) and all(kept):
        return
    inputs = list(compress(node.inputs[: region.inputs], taken))
    smaller = replace(
        region,
        attributes=_attributes(region, slices, kept[count:]),
        formals=tuple(compress(region.formals, taken)),
        inputs=len(inputs),
        declared=(*region.declared[: region.first_result], *compress(region.declared[region.first_result :], kept)),
    )
    number = flat.regions.index(region)
    flat.regions[number] = smaller
    inputs += [*leading, *compress(returned, kept)]
    outputs = list(compress(replace_outputs(node), kept))
    flat.graph.insert_after(node, make_region(number, smaller, inputs, outputs))
    flat.graph.remove(node)


def _replace_fixed_states(flat: FlatModel, node: ir.Node, region: Region) -> list[bool]:
    """Let readers of a state that never changes read its initial value. Returns which states these are."""
    first = region.first_state
    fixed = []
    for index in range(region.states):
        initial, formal = node.inputs[first + index], flat.inputs[region.formals[first + index]]
        returned = node.inputs[region.inputs + region.first_result + index]
        fixed.append(initial is not None and returned is not None and origin(returned) is formal)
        if fixed[-1] and initial is not None:
            formal.replace_all_uses_with(initial, replace_graph_outputs=True)
            output = node.outputs[index]
            copy = ir.node("Identity", [initial])
            copy.outputs[0].type, copy.outputs[0].shape = output.type, output.shape
            name, output.name = output.name, flat.fresh("fixed")
            copy.outputs[0].name = name
            output.replace_all_uses_with(copy.outputs[0], replace_graph_outputs=True)
            flat.graph.insert_before(node, copy)
    return fixed


def origin(value: ir.Value) -> ir.Value:
    """The value of which another is a copy."""
    producer = value.producer()
    while producer is not None and producer.op_type == "Identity" and producer.inputs[0] is not None:
        value = producer.inputs[0]
        producer = value.producer()
    return value


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _reach(values: Iterable[ir.Value | None]) -> set[ir.Value]:
    """All values from which some values are computed, they themselves included."""
    reached: set[ir.Value] = set()
    stack = [value for value in values if value is not None]
    while stack:
        value = stack.pop()
        if value in reached:
            continue
        reached.add(value)
        producer = value.producer()
        stack += [] if producer is None else [operand for operand in producer.inputs if operand is not None]
    return reached


def _attributes(region: Region, slices: Sequence[bool], scanned: Sequence[bool]) -> tuple[ir.Attr, ...]:
    """The attributes of a Scan of fewer inputs and results; a Loop has none."""
    attributes = []
    for attribute in region.attributes:
        if attribute.name == "num_scan_inputs":
            attribute = ir.AttrInt64(attribute.name, sum(slices))
        elif attribute.name in ("scan_input_axes", "scan_input_directions"):
            attribute = ir.AttrInt64s(attribute.name, list(compress(attribute.as_ints(), slices)))
        elif attribute.name in ("scan_output_axes", "scan_output_directions"):
            attribute = ir.AttrInt64s(attribute.name, list(compress(attribute.as_ints(), scanned)))
        attributes.append(attribute)
    return tuple(attributes)
