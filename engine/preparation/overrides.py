"""Changes to a model before its analysis: a newer opset for rules that need newer operators, other input shapes, other
outputs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import onnx_ir as ir
from onnx import version_converter
from onnx_ir import serde
from onnx_ir.passes.common import RemoveUnusedNodesPass

from ...ir.sizes import declared_sizes, number, parse_size, symbol
from ...support.errors import EqfuseError, UsageError, VerificationError
from ..onnx.map_outputs import map_outputs
from ..onnx.model import Model, first_line, read
from ..onnx.typing import NAMELESS, declare_type
from ..shapes.inference import infer


def raise_opset(model: Model, opset: int | None) -> Model:
    """The model at `opset`; the same model if `opset` is None or the model's own.

    Raises UsageError for an opset below the model's, one that onnx does not know, or a model it cannot convert.
    """
    if opset is None or opset == model.opset:
        return model
    if opset < model.opset:
        raise UsageError(f"--opset {opset}: {model.label} already uses opset {model.opset}")
    try:
        converted = version_converter.convert_version(serde.serialize_model(model.ir), opset)
    except Exception as error:  # the converter raises many kinds
        raise UsageError(f"--opset {opset}: onnx cannot convert {model.label}: {first_line(error)}") from None
    return replace(model, ir=serde.deserialize_model(converted))


def override_shapes(model: Model, shapes: Mapping[str, tuple[int | str, ...]]) -> Model:
    """The model with these input shapes, and without the shapes that followed from the old ones.

    Raises UsageError for a name that is no input, or a rank that does not fit.
    """
    if not shapes:
        return model
    inputs = {i.name or "": i for i in model.graph.inputs}
    for name, shape in shapes.items():
        if name not in inputs:
            raise UsageError(f"--input-shapes: {model.label} has no input {name!r}; {_advice(name, inputs)}")
        rank = inputs[name].shape
        if rank is not None and len(rank) != len(shape):
            raise UsageError(f"--input-shapes: {name} has {len(rank)} dimensions, not {len(shape)}")
    clone = model.ir.clone()
    for value in clone.graph.inputs:
        if value.name and value.name in shapes:
            value.shape = ir.Shape(shapes[value.name])
    for output in (output for node in clone.graph for output in node.outputs):
        if not output.is_graph_output():
            output.shape = None
    for output in clone.graph.outputs:
        if output.shape is not None and not output.is_graph_input():
            output.shape = ir.Shape([None] * len(output.shape))
    return replace(model, ir=clone, is_changed=True, executed=None)


@contextmanager
def blame_input_shapes(
    source: Any, shapes: Mapping[str, tuple[int | str, ...]], *, verifies: bool, seed: int, limit: float
) -> Iterator[None]:
    """Raise UsageError, within the context, for given input shapes on which the model does not run, but on its own.

    They are tried after a failure; first if the work inside never `verifies`, since nothing else would find out. The
    runs have inputs drawn from `seed` and take at most `limit` seconds.
    """

    def require_running() -> None:
        model = read(source)
        refusal = _find_refusal(override_shapes(model, shapes), seed, limit)
        if refusal and not _find_refusal(model, seed, limit):
            given = ", ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items())
            raise UsageError(f"--input-shapes {given}: {model.label} cannot have these: {refusal}; give others")

    if not shapes:
        yield
        return
    if not verifies:
        require_running()
    try:
        yield
    except UsageError:
        raise
    except EqfuseError:
        require_running()
        raise


def _find_refusal(model: Model, seed: int, limit: float) -> str:
    """Why ONNX Runtime does not run a model on drawn inputs; "" if it does."""
    from ..verification import verify  # it takes imports of its own

    try:
        verification = verify(model.source, model.source, seed=seed, precise=False, limit=limit)
    except VerificationError as error:
        return str(error)
    if verification.status != "unverified":
        return ""
    return verification.reason.removeprefix("nothing was verified, ").partition("; give real ones")[0]


def state_dimensions(model: Model, facts: Sequence[str]) -> Model:
    """The model with the user's facts about the dynamic dimensions of its inputs: `H=32k` (any name for the factor, and
    `32*k + 16` is possible, too), `N=4`, `N>=1`.

    A dimension takes the name of the expression that it equals, so that drawn inputs keep to it. Raises
    UsageError for a fact of another form, or about a dimension that no input has.
    """
    lowest = dict(model.lowest)
    names: dict[str, int | str] = {}
    for fact in facts:
        match = _FACT.fullmatch(fact)
        size = parse_size(match[3]) if match is not None else None
        if match is None or size is None:
            raise UsageError(f"--dim: {fact!r} is no fact such as H=32k, N=4 or N>=1")
        name, bound = match[1], size.number
        if match[2] == "=":
            names[name] = str(size) if bound is None else bound
            if len(size.terms) > 2 or (bound is None and len(size.names()) != 1) or (bound is not None and bound < 0):
                raise UsageError(f"--dim: {fact!r}: a size is a number, or a multiple of one name and a number more")
        elif bound is None:
            raise UsageError(f"--dim: {fact!r}: the bound has to be a number")
        elif bound <= 1:
            lowest[name] = bound
        else:
            names[name] = str(symbol(f"{name}_more") + number(bound))
    shapes = {i.name or "": dimension_names(i) for i in model.graph.inputs if i.shape is not None}
    free = {d for shape in shapes.values() for d in shape if isinstance(d, str)}
    for name in (*names, *lowest):
        if name not in free:
            raise UsageError(f"--dim: {model.label} has no dimension {name!r}; {_advice(name, sorted(free))}")
    changed = {i: tuple(names.get(d, d) if isinstance(d, str) else d for d in shape) for i, shape in shapes.items()}
    model = replace(model, lowest=tuple(sorted(lowest.items())))
    return override_shapes(model, {i: shape for i, shape in changed.items() if shape != shapes[i]})


_FACT = re.compile(r"\s*(.+?)\s*(>=|=)\s*(.+?)\s*")


def require_dimensions(model: Model, option: str, names: Iterable[str]) -> None:
    """Raise UsageError for a name that is no dynamic dimension of an input of the model."""
    given = (value for value in model.graph.inputs if value.name not in model.graph.initializers)
    declared = declared_sizes(d for value in given for d in dimension_names(value) if isinstance(d, str))
    free = sorted({name for size in declared.values() for name in size.names()})
    for name in names:
        if name not in free:
            advice = _advice(name, free) if free else "all its dimensions are fixed"
            raise UsageError(f"--{option}: {model.label} has no dynamic dimension {name!r}; {advice}")


def dimension_names(value: ir.Value) -> tuple[int | str, ...]:
    """The dimensions of an input; one without a name gets that of inference."""
    return tuple(
        d
        if isinstance(d, int) and d >= 0
        else f"{value.name}.{axis}"
        if str(d) in ("None", "", NAMELESS, "-1")
        else str(d)
        for axis, d in enumerate(value.shape or ())
    )


def _advice(name: str, names: Collection[str]) -> str:
    near = get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}"


def keep_outputs(model: Model, names: Sequence[str]) -> Model:
    """The model with these values as its outputs, in this order, and without the nodes and weights that none of them
    needs and the inputs that only these nodes read.

    Raises UsageError for a name that no operator of the main graph computes.
    """
    if not names:
        return model
    clone = model.ir.clone()
    graph = clone.graph
    computed = {output.name: output for node in graph for output in node.outputs if output.name}
    tensors = {each.declared.name: each.tensor for each in map_outputs(graph)}
    names = [tensors.get(name, name) for name in names]
    for name in names:
        if name not in computed:
            outputs = [output.name or "" for output in graph.outputs]
            advice = _advice(name, computed if get_close_matches(name, computed, 1) else outputs)
            raise UsageError(f"--outputs: {model.label} computes no value {name!r}; {advice}")
    kept = [computed[name] for name in dict.fromkeys(names)]
    if any(value.type is None or value.shape is None for value in kept):
        types = infer(model).types
        for value in kept:
            declare_type(value, types.get(value.name or ""))
    unused = [value for value in graph.inputs if not value.uses()]
    graph.outputs[:] = kept
    RemoveUnusedNodesPass()(clone)
    left = [value for value in graph.inputs if value.uses() or value in unused]
    for value in set(graph.inputs) - set(left):
        graph.initializers.pop(value.name or "", None)
    graph.inputs[:] = left
    return replace(model, ir=clone, is_changed=True, executed=None)
