"""The times of a model's operators in ONNX Runtime, for the profile database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import onnxruntime

from ..costmodels.device import HOST
from ..costmodels.measurement import Measurement
from ..costmodels.profile import ProfileDatabase
from ..engine.onnx.model import Model, write
from ..engine.preparation.overrides import override_shapes
from ..engine.shapes.inference import infer
from ..extract.partition.canonical_key import subgraph_key, subgraph_text
from ..extract.partition.operator_graph import operator_graph
from ..ir.graph import OperatorGraph
from ..lowering.running.onnx_runtime import OperatorSeconds, RuntimeContest


def keep_operator_times(
    contest: RuntimeContest, model: Model, file: Path, shapes: Mapping[str, tuple[int, ...]], seconds: float
) -> None:
    """Measure the operators of a model on one thread, for about `seconds` seconds.

    `file` is where the model is put to be run, `shapes` are those of the inputs that it runs on. Raises EqfuseError.
    """
    named = override_shapes(_name_nodes(model), shapes)
    write(named, file)
    graph = operator_graph(named, infer(named))
    ProfileDatabase.open().add(*_measurements(graph, contest.profile(file, seconds)))


def _measurements(graph: OperatorGraph, times: OperatorSeconds) -> Iterator[Measurement]:
    versions = {"onnxruntime": onnxruntime.__version__}
    for number, operator in enumerate(graph.operators):
        types = [graph.values[value].type for value in (*operator.inputs, *operator.outputs) if value is not None]
        key = subgraph_key(graph, (number,))
        if key is not None and operator.name in times and all(type_ is not None and type_.is_static for type_ in types):
            text = subgraph_text(graph, (number,))
            yield Measurement.of_times(key, HOST, times[operator.name], versions, subgraph=text)


def _name_nodes(model: Model) -> Model:
    """The model with another name for each node: some models give none, or one to several."""
    copy = replace(model, ir=model.ir.clone(), path=None)
    for number, node in enumerate(copy.graph):
        node.name = f"eqfuse.{number}"
    return copy
