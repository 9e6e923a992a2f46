"""Parts of a model: what computes some values from others, and the smallest part for which a command fails."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from ..engine.onnx.model import Model, read, write
from ..engine.onnx.nodes import has_body
from ..engine.onnx.typing import declare_type
from ..engine.shapes.inference import infer
from ..ir.types import TensorType
from ..support.errors import EqfuseError, UsageError
from ..support.minimal_failure import minimal_failure
from ..support.processes.program import ToolError, run_program
from ..support.scratch import scratch_folder

_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})
PLACEHOLDER = "{}"
"""What stands for the model in a command."""


def extract_part(model: Path, start: Sequence[str], end: Sequence[str], output: Path) -> int:
    """Write the part that computes the values `end` from the values `start`, and return the number of its nodes.

    Without names, `start` are the inputs of the model and `end` its outputs. Raises UsageError for a value that the
    model does not have, and if `start` does not suffice to compute `end`.
    """
    source = read(model)
    types, graph = infer(source).types, source.ir.clone().graph
    values = ir.convenience.create_value_mapping(graph, include_subgraphs=False)
    for name in (*start, *end):
        if name not in values:
            advice = "take the name of an output of one of its nodes"
            raise UsageError(f"{model}: has no value {name!r} in its main graph; {advice}")
        declare_type(values[name], types.get(name))
    inputs = [values[name] for name in start] or list(graph.inputs)
    outputs = [values[name] for name in end] or list(graph.outputs)
    try:
        part = ir.convenience.extract(graph, inputs, outputs)
    except ValueError:
        given = ", ".join(repr(value.name) for value in inputs)
        wanted = ", ".join(repr(value.name) for value in outputs)
        raise UsageError(f"{model}: {given} do not suffice to compute {wanted}; name more values by --from") from None
    write(Model(_with_graph(source.ir, part)), output)
    return len(part)


@dataclass(frozen=True)
class Front:
    """The operators in front of the first conversions to integers, the inputs that they read, and the values of theirs
    that others read; `model` is all else, which has these values as inputs."""

    operators: tuple[str, ...]
    read: tuple[str, ...]
    made: tuple[str, ...]
    model: Model


def front_of(model: Model) -> Front | None:
    """What has to run before any conversion to integers; None if there is nothing, or if nothing is converted."""
    constant = {*model.graph.initializers}
    early = {value.name for value in model.graph.inputs if value.name not in constant}
    operators, inside, rest = [], [], []
    for node in model.graph:
        read_names = [value.name for value in node.inputs if value is not None and value.name]
        names = [value.name for value in node.outputs if value.name]
        if {*read_names} <= constant:
            constant.update(names)
        elif node.op_type not in _CONVERSIONS and {*read_names} <= constant | early and not has_body(node):
            early.update(names)
            inside.append(node)
            operators.append(f"{node.name} ({node.op_type})")
        else:
            rest.append(node)
    computed = {value.name for node in inside for value in node.outputs}
    wanted = {value.name for node in rest for value in node.inputs if value is not None}
    made = [name for name in computed if name in wanted | {output.name for output in model.graph.outputs}]
    if not any(name in wanted for name in made) or not any(node.op_type in _CONVERSIONS for node in rest):
        return None
    inputs = [value.name for value in model.graph.inputs if value.name not in constant]
    read_by_front = {value.name for node in inside for value in node.inputs if value is not None}
    left = [output.name for output in model.graph.outputs if output.name not in computed]
    start = [name for name in (*made, *inputs) if name in wanted]
    needed = tuple(name for name in inputs if name and name in read_by_front)
    return Front(tuple(operators), needed, tuple(filter(None, made)), cut_out(model, start, left))


def with_known_values(model: Model) -> Model:
    """The model with stored values in the place of nodes whose results follow from shapes: no part has to compute them,
    or to hand them to another."""
    known = infer(model).constants
    changed = model.ir.clone()
    graph = changed.graph
    results = {output.name for output in graph.outputs}
    for node in [*graph]:
        names = [output.name for output in node.outputs if output.name]
        if all(name in known and name not in results for name in names):
            for name, output in zip(names, filter(lambda each: each.name, node.outputs), strict=True):
                tensor = ir.tensor(known[name])
                stored = ir.Value(name=name, type=output.type, shape=output.shape, const_value=tensor)
                output.name = None
                output.replace_all_uses_with(stored)
                graph.register_initializer(stored)
            graph.remove(node, safe=True)
    return replace(model, ir=changed, is_changed=True)


def cut_out(model: Model, start: Sequence[str | None], end: Sequence[str | None]) -> Model:
    """The part that computes the values `end` from the values `start`. Raises UsageError as `extract_part` does."""
    with scratch_folder("part") as scratch:
        whole, part = (Path(scratch) / name for name in ("model.onnx", "part.onnx"))
        write(model, whole)
        extract_part(whole, [*filter(None, start)], [*filter(None, end)], part)
        return read(part)


@dataclass(frozen=True)
class Reduced:
    """The smallest part that still fails: its nodes, those of the model, and the runs of the command."""

    nodes: int
    of: int
    runs: int


def reduce_model(
    model: Path, command: str, output: Path, says: str = "", limit: float = 600.0,
    observer: Callable[[str], None] | None = None,
) -> Reduced:  # fmt: skip
    """Write the smallest part of a model for which a command fails: none of its nodes can be left out.

    The command is run with the path of a part in the place of ``{}``, or behind it. It fails if its exit code is not 0,
    and its output has the text `says`; each run has `limit` seconds, and one that takes longer does not fail. Values
    that a part reads and does not compute are its inputs. Raises EqfuseError if the command does not fail for the
    model itself.
    """
    source = read(model)
    types, count = infer(source).types, len(source.graph)
    runs = 0
    with scratch_folder("reduce") as folder:
        candidate = Path(folder) / "part.onnx"

        def fails(kept: Sequence[int]) -> bool:
            nonlocal runs
            part = _part_of(source.ir, frozenset(kept), types)
            if part is None:
                return False
            runs += 1
            if observer is not None:
                observer(f"run {runs}: {len(kept)} nodes")
            write(Model(part), candidate)
            return _fails(command, candidate, says, limit)

        if not fails(range(count)):
            said = f" and say {says!r}" if says else ""
            raise EqfuseError(f"{model}: the command does not end with an exit code above 0{said} on the whole model")
        needed = minimal_failure(fails, range(count))
        part = _part_of(source.ir, frozenset(needed), types)
        assert part is not None
        write(Model(part), output)
    return Reduced(len(needed), count, runs)


def _fails(command: str, model: Path, says: str, limit: float) -> bool:
    words = shlex.split(command)
    if not words:
        raise UsageError("the command is empty; say what to run, with {} for the model")
    words = [word.replace(PLACEHOLDER, str(model)) for word in words]
    if PLACEHOLDER not in command:
        words.append(str(model))
    try:
        run_program(words, limit)
    except ToolError as error:
        if not error.status and not error.timed_out:
            raise UsageError(str(error)) from None
        return not error.timed_out and says in error.printed
    return False


def _part_of(model: ir.Model, kept: Collection[int], types: Mapping[str, TensorType]) -> ir.Model | None:
    """The nodes of these numbers; None if the type of a value that they read from others is not known."""
    clone = model.clone()
    graph, nodes = clone.graph, list(clone.graph)
    results = {value.name for value in graph.outputs}
    graph.outputs.clear()
    for number in reversed([number for number in range(len(nodes)) if number not in kept]):
        for value in nodes[number].outputs:
            if not value.uses():
                continue
            if value.name is None or value.name not in types:
                return None
            outside = ir.Value(name=value.name)
            declare_type(outside, types[value.name])
            ir.convenience.replace_all_uses_with(value, outside)
            graph.inputs.append(outside)
        graph.remove(nodes[number], safe=True)
    for node in graph:
        for value in node.outputs:
            if value.name and (value.name in results or not value.uses()):
                declare_type(value, types.get(value.name))
                graph.outputs.append(value)
    for value in list(graph.inputs):
        if not value.uses() and value.name not in graph.initializers:
            graph.inputs.remove(value)
    for name in [name for name, value in graph.initializers.items() if not value.uses()]:
        del graph.initializers[name]
    return clone if graph.outputs and all(value.type is not None for value in graph.outputs) else None


def _with_graph(model: ir.Model, graph: ir.Graph) -> ir.Model:
    """A model that is this one in all but its graph."""
    return ir.Model(
        graph, ir_version=model.ir_version, producer_name=model.producer_name, functions=tuple(model.functions.values())
    )
