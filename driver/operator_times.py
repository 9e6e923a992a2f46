"""The times of a model's operators in ONNX Runtime, for the profile database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import onnxruntime

from ..costmodels.device import HOST
from ..costmodels.measurement import Measurement
from ..costmodels.profile import ProfileDatabase
from ..engine.onnx.inference import Knowledge
from ..engine.onnx.model import Model, write
from ..engine.summary import knowledge_of_result
from ..extract.partition.canonical_key import subgraph_key, subgraph_text
from ..extract.partition.operator_graph import operator_graph
from ..ir.graph import OperatorGraph
from ..ir.operation import dimension_size
from ..lowering.running.onnx_runtime import OperatorSeconds, RuntimeContest


@dataclass(frozen=True)
class OperatorTimes:
    """Times of operators on one thread of this machine. `file` is where a model is put to be run, `shapes` are those of
    the inputs that all models run on, those of `original`."""

    contest: RuntimeContest
    file: Path
    original: Model
    shapes: Mapping[str, tuple[int, ...]]

    def keep(self, model: Model, knowledge: Knowledge, seconds: float) -> None:
        """Measure the operators of a model for about that long. Raises EqfuseError."""
        named = _name_nodes(model)
        write(named, self.file)
        times = self.contest.profile(self.file, seconds)
        graph = operator_graph(named, knowledge_of_result(named, knowledge))
        ProfileDatabase.open().add(*self.measurements(graph, times))

    def measurements(self, graph: OperatorGraph, times: OperatorSeconds) -> Iterator[Measurement]:
        """Those of operators whose symbolic dimensions had the sizes that prices assume."""
        versions = {"onnxruntime": onnxruntime.__version__}
        for number, operator in enumerate(graph.operators):
            key = subgraph_key(graph, (number,))
            if key is not None and operator.name in times and self._has_assumed_sizes(graph, number):
                seconds, text = times[operator.name], subgraph_text(graph, (number,))
                yield Measurement.of_times(key, HOST, seconds, versions, subgraph=text)

    def _has_assumed_sizes(self, graph: OperatorGraph, number: int) -> bool:
        operator = graph.operators[number]
        types = [graph.values[value].type for value in (*operator.inputs, *operator.outputs) if value is not None]
        shapes = [type_.shape if type_ is not None else None for type_ in types]
        return all(
            shape is not None and all(self._sizes.get(d) == dimension_size(d) for d in shape if isinstance(d, str))
            for shape in shapes
        )

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """The size that each symbolic dimension of an input had."""
        sizes: dict[str, int] = {}
        for value in self.original.graph.inputs:
            for dimension, size in zip(value.shape or (), self.shapes.get(value.name or "", ()), strict=False):
                if not isinstance(dimension, int) and dimension.value is not None:
                    sizes[dimension.value] = size
        return sizes


def _name_nodes(model: Model) -> Model:
    """The model with another name for each node: some models give none, or one to several."""
    copy = replace(model, ir=model.ir.clone(), path=None)
    for number, node in enumerate(copy.graph):
        node.name = f"eqfuse.{number}"
    return copy
