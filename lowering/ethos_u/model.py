"""A bundle for an Ethos-U: its files, and running its program as TOSA in numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...ir.operators import evaluate
from ...support.json_types import JsonFieldError, convert_json
from ..base.errors import BundleError
from ..bundle.bundle import read_whole_bundle
from ..bundle.loaded import LoadedModel, fit_input
from .emission.emit import Wire
from .tosa.evaluation import evaluate_graph
from .tosa.graph import Array, Graph, Operator, Tensor

TOSA, GRAPH, CONSTANTS = "model.tosa", "graph.json", "constants.npz"
PROCESSOR_MODEL, FRONT_MODEL = "cpu.onnx", "front.onnx"
"""What a processor computes behind the NPU, and in front of it."""


@dataclass(frozen=True)
class Figures:
    """Vela's estimate for one choice of a graph and a setting, which is in words."""

    choice: str
    cycles: int
    sram: int
    memory: Mapping[str, int]
    npu_operators: int
    cpu_operators: int


@dataclass(frozen=True)
class ProcessorPart:
    """What a processor computes behind the NPU, or in front of it: `operators` that the NPU does not have, from the
    values `read`.

    `reason` says why the first is left to it; `target` is the processor that the C project in the folder `cpu`, or
    `front`, is for.
    """

    target: str
    operators: tuple[str, ...]
    read: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Section:
    """What the manifest of a bundle says of its program for an Ethos-U: its field `ethos_u`.

    `chosen` are the figures of the program, `plain` those of Vela's defaults on the model as exported; `candidates`
    counts the programs that Vela made for the choice, `refused` has a line for each that it did not make.
    """

    device: str
    vela: str
    system: str
    memory_mode: str
    inputs: tuple[Wire, ...]
    outputs: tuple[Wire, ...]
    chosen: Figures
    plain: Figures
    candidates: int
    refused: tuple[str, ...] = ()
    processor: ProcessorPart | None = None
    front: ProcessorPart | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the manifest."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content


def section_of(data: Mapping[str, Any] | None, label: str) -> Section:
    """The section of which `data` is `as_dict`. Raises BundleError, which names the field, for anything else."""
    if data is None:
        raise BundleError(f"{label}: holds no program for an Ethos-U")
    try:
        return convert_json(dict(data), Section)
    except JsonFieldError as error:
        raise BundleError(f"{label}: field ethos_u.{error.path}: {error.problem}; compile the model again") from None


def write_graph(folder: Path, graph: Graph) -> None:
    """Write a graph as this package reads it."""
    content = {
        "operators": [asdict(each) for each in graph.operators],
        "tensors": [[t.name, t.dtype, list(t.shape), t.data is not None] for t in graph.tensors.values()],
        "inputs": graph.inputs,
        "outputs": graph.outputs,
    }
    (folder / GRAPH).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    constants = [t.data for t in graph.tensors.values() if t.data is not None]
    np.savez(folder / CONSTANTS, *constants)


def read_graph(folder: Path) -> Graph:
    """The graph in a bundle. Raises BundleError if it cannot be read."""
    try:
        content = json.loads((folder / GRAPH).read_text(encoding="utf-8"))
        with np.load(folder / CONSTANTS) as stored:
            constants = iter([stored[f"arr_{number}"] for number in range(len(stored.files))])
        tensors = {
            name: Tensor(name, dtype, tuple(shape), next(constants) if is_constant else None)
            for name, dtype, shape, is_constant in content["tensors"]
        }
        operators = tuple(
            Operator(each["op"], tuple(each["inputs"]), each["output"], {
                name: tuple(value) if isinstance(value, list) else value for name, value in each["attributes"].items()
            })
            for each in content["operators"]
        )  # fmt: skip
        return Graph(operators, tensors, tuple(content["inputs"]), tuple(content["outputs"]))
    except (OSError, ValueError, LookupError, TypeError, StopIteration) as error:
        raise BundleError(f"{folder / GRAPH}: cannot be read ({error}); compile the model again") from None


def integers_for(wires: Sequence[Wire], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs of the program, in its layout, for those of the model."""
    return {wire.tensor: _to_integers(wire, feeds[wire.port]) for wire in wires}


def _to_integers(wire: Wire, array: Array) -> Array:
    if wire.is_number:
        scale, zero = np.asarray(wire.scale, np.float32), np.asarray(wire.zero, np.int8)
        integers = np.asarray(evaluate("QuantizeLinear", (array.astype(np.float32), scale, zero, 0)))
    else:
        integers = array.astype(np.int64) + wire.offset
    return np.ascontiguousarray(integers.astype(np.int8).transpose(wire.order))


def numbers_of(wire: Wire, array: Array) -> Array:
    """An output of the model, for the program's in its layout; integers without their sign have 64 bits."""
    plain = array.transpose(np.argsort(wire.order)).astype(np.int64)
    if wire.is_number:
        result: Array = (plain - wire.zero).astype(np.float32) * np.float32(wire.scale)
        return result
    return plain - wire.offset


class TosaModel(LoadedModel):
    """A bundle whose program is evaluated as TOSA: with the bits of the NPU, not with its speed."""

    def __init__(self, path: Path) -> None:
        """Load the bundle. Raises BundleError if it is damaged."""
        self.path = path
        self.manifest = read_whole_bundle(path)
        self.section = section_of(self.manifest.ethos_u, str(path))

    @cached_property
    def _graph(self) -> Graph:
        return read_graph(self.path)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out; the processor's part in ONNX Runtime."""
        self._check_names(inputs)
        feeds = {port.name: fit_input(port, inputs[port.name]) for port in self.inputs}
        if (front := self.section.front) is not None:
            feeds |= run_onnx((self.path / FRONT_MODEL).read_bytes(), feeds, front.outputs)
        results = outputs_from(self._graph, self.section.inputs, self.section.outputs, feeds)
        if (part := self.section.processor) is not None:
            given = {name: feeds[name] if name in feeds else results[name] for name in part.read}
            results |= run_onnx((self.path / PROCESSOR_MODEL).read_bytes(), given, part.outputs)
        made = {**feeds, **results}
        return {port.name: made[port.name].astype(np.dtype(port.dtype)) for port in self.outputs}


def outputs_from(
    graph: Graph, inputs: Sequence[Wire], outputs: Sequence[Wire], feeds: Mapping[str, Array]
) -> dict[str, Array]:
    """What the NPU computes of the inputs of the model, by the names of the model's values."""
    results = evaluate_graph(graph, integers_for(inputs, feeds))
    return {wire.port: _as_value(wire, results[wire.tensor]) for wire in outputs}


def _as_value(wire: Wire, array: Array) -> Array:
    numbers = numbers_of(wire, array)
    if wire.is_number or array.dtype != np.int8:
        return numbers
    return numbers.astype(np.uint8 if wire.offset else np.int8)


def run_onnx(content: bytes, feeds: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """Results of ONNX Runtime.

    Without optimisations, as the operators are defined: its own kernels of quantised operators round in other ways, and
    that of AveragePool divides by other counts.
    """
    import onnx

    from ...engine.onnx.runtime_values import open_session

    session = open_session(onnx.ModelProto.FromString(content))
    wanted = {each.name for each in session.get_inputs()}
    results = session.run([*names], {name: array for name, array in feeds.items() if name in wanted})
    return dict(zip(names, results, strict=True))
