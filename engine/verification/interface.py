"""Whether a candidate can take the place of the original: the same inputs and outputs."""

from __future__ import annotations

import onnx

from .structure import fed_inputs


def interface_difference(original: onnx.GraphProto, candidate: onnx.GraphProto) -> str | None:
    """One line on the first difference that a caller would notice, or None. Shapes are left to the runs."""
    wanted, found = [value.name for value in original.output], [value.name for value in candidate.output]
    if wanted != found:
        return f"the outputs are {found} instead of {wanted}"
    required = {value.name: value for value in fed_inputs(original)}
    declared = {value.name: value for value in candidate.input}
    missing = [name for name in required if name not in declared]
    if missing:
        return f"the candidate lacks the input(s) {missing}"
    added = [value.name for value in fed_inputs(candidate) if value.name not in required]
    if added:
        return f"the candidate needs the additional input(s) {added}"
    return next((text for name in required if (text := _type_change(required[name], declared[name]))), None)


def _type_change(wanted: onnx.ValueInfoProto, found: onnx.ValueInfoProto) -> str | None:
    before, after = wanted.type.tensor_type.elem_type, found.type.tensor_type.elem_type
    if before == after:
        return None
    names = onnx.TensorProto.DataType.Name
    return f"input {wanted.name!r} is of type {names(after)} instead of {names(before)}"
