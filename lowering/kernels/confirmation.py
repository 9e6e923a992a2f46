"""What the search for kernels asks the lowering: which operators it has, and which kernels have a schedule."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import takewhile

from ...engine.onnx.model import Model
from ...extract.partition.groups import Partition
from ...extract.partition.search.confirmation import Confirm
from ...extract.partition.templates.operator_set import Members
from ...ir.graph import OperatorGraph
from ..base.target import Target
from ..base.weights import Weights
from .map_copies import copy_maps, is_copy


@dataclass(frozen=True)
class ProcessorKernels:
    """The lowering for a processor: kernels apart from views, several anchor ops in one where a rule fits them."""

    target: Target

    @property
    def threads(self) -> int:
        """The threads that a kernel runs on."""
        return self.target.threads

    @property
    def views_apart(self) -> bool:
        """Whether a view is a step between kernels, which moves nothing."""
        return True

    def list_alone(self, graph: OperatorGraph) -> Collection[int]:
        """The operators that have no lowering."""
        from ..compute import has_lowering  # which imports TVM

        return [index for index, operator in enumerate(graph.operators) if not has_lowering(operator, graph.at_call)]

    def confirm(self, model: Model) -> Confirm:
        """The test whether the schedule rules fit kernels of a model's graph."""
        weights = Weights(model)
        answers: dict[tuple[str, str], bool] = {}

        def list_refused(partition: Partition, kernels: Mapping[Members, str]) -> Collection[Members]:
            if not kernels:
                return ()
            from .prim_funcs import DistinctKernels, ScheduleCheck

            graph, groups = copy_maps(partition.graph.at_call, partition.members)
            copies = sum(1 for _ in takewhile(is_copy, graph.operators))
            as_lowered = dict(zip(partition.members, groups[copies:], strict=False))
            fits = ScheduleCheck(DistinctKernels.of(graph, groups, weights), self.target, answers)
            return [members for members, rule in kernels.items() if not fits(as_lowered[members], rule)]

        return list_refused
