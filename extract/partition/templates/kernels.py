"""Which sets of operators are kernels on a device, and the time of each: the cheapest template that accepts it.

A kernel is one launch of one nest of loops, made by a template (templates/catalogue.py). Views at the border of a set
move nothing, so they are no part of its kernel and cost their own overhead. A set that is no kernel is divided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from ....costmodels.device import Device
from ....costmodels.scheduled import VIEW_SECONDS
from ....ir.graph import OperatorGraph
from ....support.deadlines import is_over
from ..contraction import Contraction
from ..groups import Partition
from ..structure import structure
from .catalogue import TEMPLATES
from .kernel_graph import KernelGraph
from .operator_set import Members, OperatorSet, without_border_views
from .template import Template

Measured = Callable[[Members], float | None]
"""Seconds of a kernel from the profile database, without its launch; None if it was never measured."""

_LARGEST_KERNEL = 256
"""The most operators of one kernel: computing a cost takes longer for large kernels."""


@dataclass(frozen=True)
class _KernelCost:
    """The seconds of a kernel without its launch, and the template that makes it; infinite and None if none does."""

    seconds: float
    template: Template | None


@dataclass
class KernelModel:
    """Costs of sets of operators of one graph, each computed once.

    Without `intensive`, a kernel has one anchor op at most. `threads` are those that its kernels run on, `alone` the
    operators that have no lowering; without `views_apart` a view is an operator of a kernel like others. `factors` are
    measured ratios of the time of a template's kernels to their estimate, by the template's name. A kernel that was not
    `measured` itself is estimated to take `calibration` times as long as by the device file: beside measured kernels,
    which never reach the roofline, all others would look too fast. `refused` are the structures of kernels of several
    anchor ops that the lowering has no schedule for.
    """

    graph: OperatorGraph
    device: Device
    measured: Measured | None = None
    intensive: bool = True
    calibration: float = 1.0
    factors: Mapping[str, float] = field(default_factory=dict)
    threads: int = 1
    alone: Collection[int] = ()
    views_apart: bool = True
    refused: set[Hashable] = field(default_factory=set)
    _costs: dict[Members, _KernelCost] = field(default_factory=dict)
    _cuts: dict[Members, tuple[Members, ...]] = field(default_factory=dict)

    @cached_property
    def within(self) -> KernelGraph:
        """The answers to the templates' questions about the graph."""
        return KernelGraph(self.graph, self.device, self.threads, self.views_apart, self.alone)

    # --- costs

    def partition(self, partition: Partition) -> float:
        """Seconds of one run of every sub-graph."""
        return sum(map(self.group, partition.members))

    def group(self, members: Members) -> float:
        """Seconds of a sub-graph: its kernels one after the other, each with its launch, and its views."""
        return sum(map(self.launched, self.kernels(members)))

    def launched(self, members: Members) -> float:
        """Seconds of one kernel, its launch, and the views at its border; infinite if the operators are none."""
        if len(members) == 1 and not self.within.in_place.isdisjoint(members):
            return VIEW_SECONDS
        cut = without_border_views(self.within, members)
        views = VIEW_SECONDS * (len(cut.front) + len(cut.behind))
        return views + (self.kernel(cut.core) + self.device.call_seconds if cut.core else 0.0)

    def shares(self, partition: Partition) -> tuple[float, ...]:
        """The share of each operator in the cost of a partition; they sum up to it.

        It is its own arithmetic and copying, and a part of the rest of its kernel, launch included, by the bytes that
        it moves over the border.
        """
        shares = [0.0] * len(self.graph)
        for members in partition.members:
            for kernel in self.kernels(members):
                for member, share in self._split(kernel):
                    shares[member] = share
        return tuple(shares)

    def _split(self, kernel: Members) -> Iterable[tuple[int, float]]:
        total, within = self.launched(kernel), self.within
        own = {m: self.calibration * (within.compute[m] + within.copying[m]) for m in kernel}
        rest = total - sum(own.values())
        if rest < 0.0:  # measured to be faster than the estimate of its arithmetic alone
            return ((m, own[m] * total / sum(own.values())) for m in kernel)
        operators = OperatorSet(within, kernel)
        moved = {m: self._border_bytes(m, operators) for m in kernel}
        bytes_ = sum(moved.values())
        return ((m, own[m] + (rest * moved[m] / bytes_ if bytes_ else rest / len(kernel))) for m in kernel)

    def _border_bytes(self, member: int, kernel: OperatorSet) -> int:
        """Bytes that an operator of a kernel reads from outside, or writes to it."""
        operator, sizes = self.graph.operators[member], self.within.sizes
        read = (v for v in operator.inputs if v is not None and self.graph.values[v].producer not in kernel.inside)
        return sum(sizes[v] for v in (*read, *(v for v in operator.outputs if kernel.leaves(v))))

    def bound(self) -> float:
        """Seconds below which no partition of the graph can be: every operator computed once, on its least operands.

        One launch, or one view; arithmetic, and the cost of copies beyond bytes, counted in full; no bytes. Measured
        kernels may be faster than that.
        """
        if self.measured is not None or self.factors or not len(self.graph):
            return 0.0
        moving = (m for m in range(len(self.graph)) if m not in self.within.in_place)
        return VIEW_SECONDS + sum(self.within.compute[m] + self.within.copying[m] for m in moving)

    def kernel(self, members: Members) -> float:
        """Seconds of a kernel without its launch; infinite if no template makes it."""
        return self._cost(members).seconds

    def template(self, members: Members) -> Template | None:
        """The template that makes a kernel of these operators, if one does."""
        return self._cost(members).template

    def _cost(self, members: Members) -> _KernelCost:
        if members not in self._costs:
            self._costs[members] = self._find_template(members)
        return self._costs[members]

    def _find_template(self, members: Members) -> _KernelCost:
        """The cheapest template that accepts the operators."""
        if len(members) > _LARGEST_KERNEL or (len(members) > 1 and not self._alone.isdisjoint(members)):
            return _NO_COST
        operators, best = OperatorSet(self.within, members), _NO_COST
        for template in TEMPLATES:
            if template.is_intensive and not self._may_be_intensive(operators):
                continue
            if template.accepts(operators) is None:
                seconds = self.factors.get(template.name, self.calibration) * template.cost(operators)
                best = min(best, _KernelCost(seconds, template), key=lambda cost: cost.seconds)
        if best.template is not None and self.measured is not None:
            latency = self.measured(members)
            return best if latency is None else _KernelCost(latency, best.template)
        return best

    def refuse(self, kernels: Iterable[Members]) -> None:
        """Note that there is no schedule for these kernels of several anchor ops, nor for any like them."""
        self.refused.update(structure(self.graph, members) for members in kernels)
        intensive = [m for m, cost in self._costs.items() if cost.template and cost.template.is_intensive]
        for members in intensive:
            del self._costs[members]
        self._cuts.clear()

    @cached_property
    def _alone(self) -> frozenset[int]:
        return frozenset(self.alone)

    def _may_be_intensive(self, operators: OperatorSet) -> bool:
        if not self.intensive or len(operators.anchors) < 2:
            return False
        return not self.refused or structure(self.graph, operators.members) not in self.refused

    # --- cuts

    def kernels(self, members: Members, deadline: float = inf) -> tuple[Members, ...]:
        """The kernels of a sub-graph, in the order they run, and the views between them, each by itself.

        After the deadline (time.monotonic) no further operators join.
        """
        if members not in self._cuts:
            parts = [members] if self.launched(members) < inf else _cut_into_kernels(self, members, deadline)
            self._cuts[members] = tuple(
                view_or_kernel for part in parts for view_or_kernel in without_border_views(self.within, part).parts
            )
        return self._cuts[members]

    def is_view(self, members: Members) -> bool:
        """Whether a group is no kernel but a view, or an operator whose parts are written or read in place."""
        return self.within.is_no_kernel(members)


_NO_COST = _KernelCost(inf, None)


def _cut_into_kernels(model: KernelModel, members: Members, deadline: float) -> Iterable[Members]:
    """The kernels of a sub-graph, in an order in which they can run: each operator joins the kernels that it reads
    from, those that save the most bytes first, if that is possible and costs no more, until the deadline comes."""
    graph = model.graph
    place = {member: position for position, member in enumerate(members)}
    groups = Contraction([[place[user] for user in graph.successors[m] if user in place] for m in members])
    content: dict[int, Members] = {position: (member,) for position, member in enumerate(members)}
    for position, member in enumerate(members):
        if is_over(deadline):
            break
        sources = [p for p in graph.predecessors[member] if p in place]
        for source in sorted(sources, key=lambda p: (-graph.output_bytes(p), p)):
            first, second = groups.group(place[source]), groups.group(position)
            one, other = content[first], content[second]
            if first == second or not groups.can_merge(first, second):
                continue
            both = tuple(sorted(one + other))
            if model.launched(both) <= model.launched(one) + model.launched(other):
                groups.merge(first, second)
                content[first] = both
    order: dict[int, None] = {}
    stack = [(label, False) for label in reversed(groups.labels)]
    while stack:
        group, is_ready = stack.pop()
        if is_ready:
            order[group] = None
        elif group not in order:
            sources = [p for m in content[group] for p in graph.predecessors[m] if p in place]
            needed = {groups.group(place[source]) for source in sources} - {group}
            stack += [(group, True), *((label, False) for label in sorted(needed, reverse=True))]
    return (content[group] for group in order)
