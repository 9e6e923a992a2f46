"""SPLIT and JOIN (AGO, section V): kernels of one anchor op, by CLUSTER, and which run as one if that is faster.

A `Join` replaces some kernels of one anchor op by one that has several, by intensive fusion (section III-B), and by
what it leaves over. Each is tuned apart first; once they are stable, the joined kernel begins with their schedules,
composed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from ...extract.partition.baselines.clustering import split
from ...extract.partition.templates.kernels import KernelModel
from ...ir.graph import OperatorGraph
from ...support.directed_graphs import CycleError, topological_order
from ..base.decisions import Decisions, DecisionSite
from ..kernels.prim_funcs import ScheduleCheck
from .tasks import Members

WORTH_TRYING = 1.1
"""Two kernels are joined on trial if the joined one is estimated to take at most this many times as long: measured
times are seldom farther from their estimates, and every joined kernel takes trials from all others."""
SCHEDULED_APART = "tile"
"""The site that every product or window of a kernel has."""


@dataclass(frozen=True)
class Join:
    """Kernels `apart`, and the ones that replace them: the joined one, and the rests of others."""

    apart: tuple[Members, ...]
    whole: Members
    rest: tuple[Members, ...] = ()

    @property
    def together(self) -> tuple[Members, ...]:
        """The kernels that replace them."""
        return (self.whole, *self.rest)

    def saving(self, seconds: Callable[[Members], float]) -> float:
        """Seconds that are saved, by those of each kernel; minus infinity if one of the joined never ran."""
        together = sum(map(seconds, self.together))
        return sum(map(seconds, self.apart)) - together if together < inf else -inf


def split_kernels(fits: ScheduleCheck, kernels: Sequence[Members]) -> tuple[tuple[Members, ...], tuple[Join, ...]]:
    """The kernels, those of several anchor ops cut into ones of one, and the joins that undo these cuts.

    They are cut into the mini-sub-graphs of CLUSTER, or into the kernels of the cost model if these are cheaper.
    """
    conventional = _kernel_costs(fits, intensive=False)

    def cut(kernel: Members) -> tuple[Members, ...]:
        minis = tuple(part for mini in split(fits.kernels.graph, kernel) for part in conventional.kernels(mini))
        return min((minis, conventional.kernels(kernel)), key=lambda parts: sum(map(conventional.launched, parts)))

    parts = {kernel: cut(kernel) for kernel in kernels}
    joins = tuple(Join(apart, kernel) for kernel, apart in parts.items() if len(apart) > 1)
    return tuple(part for kernel in kernels for part in parts[kernel]), joins


def other_joins(fits: ScheduleCheck, apart: Sequence[Members], known: Iterable[Join]) -> Iterator[Join]:
    """Every other join of two kernels that a template and a schedule make and that may be faster. They may overlap."""
    graph, costs = fits.kernels.graph, _kernel_costs(fits, intensive=True)
    home = {member: kernel for kernel in apart for member in kernel}
    wholes = {join.whole for join in known}
    for first in apart:
        for second in dict.fromkeys(home[reader] for m in first for reader in graph.successors[m]):
            whole = tuple(sorted({*first, *second}))
            template = costs.template(whole) if second != first and whole not in wholes else None
            if template is None or template.rule is None or not fits(whole, template.rule):
                continue
            if costs.launched(whole) <= WORTH_TRYING * (costs.launched(first) + costs.launched(second)):
                wholes.add(whole)
                yield Join((first, second), whole)


def _kernel_costs(fits: ScheduleCheck, *, intensive: bool) -> KernelModel:
    target = fits.target
    return KernelModel(fits.kernels.graph, target.device, intensive=intensive, threads=target.threads)


def best_joins(joins: Iterable[Join], seconds: Callable[[Members], float]) -> tuple[Join, ...]:
    """The joins that save time, what saves most first, each kernel in one of them at most."""
    taken: set[Members] = set()
    chosen: list[Join] = []
    for join in sorted(joins, key=lambda join: -join.saving(seconds)):
        if join.saving(seconds) > 0.0 and taken.isdisjoint(join.apart):
            taken.update(join.apart)
            chosen.append(join)
    return tuple(chosen)


def with_joins(fits: ScheduleCheck, apart: Sequence[Members], joins: Iterable[Join]) -> tuple[Members, ...]:
    """The kernels with these joined, in an order in which they can run; a join that has none is left out."""
    kernels = list(apart)
    for join in joins:
        changed = [*(kernel for kernel in kernels if kernel not in join.apart), *join.together]
        kernels = order_kernels(fits.kernels.graph, changed) or kernels
    return tuple(kernels)


def order_kernels(graph: OperatorGraph, kernels: Sequence[Members]) -> list[Members] | None:
    """Kernels after those they read from, otherwise as their first operators come; None if that cannot be."""
    home = {member: kernel for kernel in kernels for member in kernel}
    readers = {k: {home[s] for m in k for s in graph.successors[m] if s in home} - {k} for k in kernels}
    try:
        return topological_order(readers, key=tuple)
    except CycleError:
        return None


def compose_schedules(sites: Sequence[DecisionSite], parts: Sequence[Decisions]) -> dict[str, str]:
    """The schedule of a joined kernel that is composed of those of its parts, at the sites that offer their decisions.

    `sites` are those of the joined kernel, named by scopes (``first.tile``); `parts` are what was decided for the
    products and windows of the parts, in their order: that of the scopes' names, whichever a rule asks first. A tile is
    the same whatever its axes are called.
    """
    scopes = sorted({site.name.rpartition(".")[0] for site in sites if "." in site.name})
    of_scope = dict(zip(scopes, parts, strict=False))
    composed: dict[str, str] = {}
    for site in sites:
        scope, _, name = site.name.rpartition(".")
        wanted = of_scope.get(scope, {}).get(name)
        label = next((o.label for o in site.options if wanted is not None and _alike(o.label, wanted)), None)
        if label is not None:
            composed[site.name] = label
    return composed


def _alike(label: str, wanted: str) -> bool:
    return label == wanted or label.split()[-1] == wanted.split()[-1]
