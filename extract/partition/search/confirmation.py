"""Kernels that the lowering confirms: only a schedule that fits decides whether several anchor ops can be one
kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Protocol

from ....engine.onnx.model import Model
from ....ir.graph import OperatorGraph
from ....support.deadlines import seconds_left
from ..groups import Partition
from ..templates.kernels import KernelModel
from ..templates.operator_set import Members
from .methods import cut_into_kernels, improve_kernels
from .windows import Allowed

Confirm = Callable[[Partition, Mapping[Members, str]], Collection[Members]]
"""Given kernels of a partition, each with the rule of its schedule, returns those that the rule does not fit."""


class Lowering(Protocol):
    """The part that compiles the kernels, for the questions that only it can answer."""

    @property
    def threads(self) -> int:
        """The threads that a kernel runs on."""
        ...

    @property
    def views_apart(self) -> bool:
        """Whether a view is a step between kernels, which moves nothing."""
        ...

    def list_alone(self, graph: OperatorGraph) -> Collection[int]:
        """The operators that have no lowering, so that no kernel may hold them with others."""
        ...

    def confirm(self, model: Model) -> Confirm:
        """The test whether kernels of a model's graph have the schedules that they were chosen for."""
        ...


def confirm_kernels(
    partition: Partition,
    model: KernelModel,
    confirm: Confirm,
    time_limit: float,
    allowed: Allowed = lambda members: True,
) -> Partition:
    """The partition without kernels that are refused: the graph around one is partitioned again while there is time.

    The model refuses such kernels from then on.
    """
    deadline = time.monotonic() + time_limit
    while refused := confirm(partition, _list_intensive(partition, model)):
        model.refuse(refused)
        around = {member for members in refused for member in members}
        partition = cut_into_kernels(partition, model)
        improved = improve_kernels(partition, model, seconds_left(deadline), allowed, around).partition
        partition = replace(cut_into_kernels(improved, model), method=partition.method)
    return partition


def _list_intensive(partition: Partition, model: KernelModel) -> Mapping[Members, str]:
    """The kernels of several anchor ops, with the rules of their schedules."""
    templates = ((members, model.template(members)) for members in partition.members)
    return {members: template.rule for members, template in templates if template is not None and template.rule}


def kernels_of_groups(drawn: Partition, model: KernelModel, time_limit: float) -> Partition:
    """Each group of a partition as one kernel if a template makes it, and otherwise as the cheapest kernels; views
    at their borders are groups by themselves."""
    around = {m for members in drawn.members if not _is_kernel(members, model) for m in members}
    start, allowed = cut_into_kernels(drawn, model), within_groups(drawn, model)
    improved = improve_kernels(start, model, time_limit, allowed, around).partition
    return replace(cut_into_kernels(improved, model), method=drawn.method)


def within_groups(drawn: Partition, model: KernelModel) -> Allowed:
    """Whether operators are in one group of a partition, one that is no kernel."""
    return lambda members: (
        len({drawn.group[m] for m in members}) == 1 and not _is_kernel(drawn.members[drawn.group[members[0]]], model)
    )


def _is_kernel(members: Members, model: KernelModel) -> bool:
    return model.launched(members) < float("inf")


def count_as_drawn(drawn: Partition, kernels: Partition, model: KernelModel) -> int:
    """How many groups of a partition stay one kernel, or none, apart from views at their border."""
    of_group: dict[int, int] = {}
    for members in kernels.members:
        if not model.is_view(members):
            of_group[drawn.group[members[0]]] = of_group.get(drawn.group[members[0]], 0) + 1
    return sum(of_group.get(group, 0) <= 1 for group in range(drawn.count))
