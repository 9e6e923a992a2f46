"""JOIN (AGO, section V): which mini-sub-graphs may run as one kernel, and whether that is faster as measured.

A model is split in kernels of one anchor op. A `Join` replaces some of them by one that has several, by intensive
fusion (section III-B), and by what it leaves over. Each is tuned apart first; where they are stable, the joined kernel
begins with their schedules, composed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from ..kernels.convolution_pairs import join_pairs, list_candidates
from ..kernels.prim_funcs import ScheduleCheck
from ..kernels.product_chains import join_chains, order_kernels
from ..schedules.decisions import Decisions, DecisionSite
from .tasks import Members

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
        """What replaces them."""
        return (self.whole, *self.rest)

    def saving(self, seconds: Callable[[Members], float]) -> float:
        """Seconds that are saved, by those of each kernel; minus infinity where one of the joined never ran."""
        together = sum(map(seconds, self.together))
        return sum(map(seconds, self.apart)) - together if together < inf else -inf


def possible_joins(fits: ScheduleCheck, apart: Sequence[Members]) -> tuple[Join, ...]:
    """Every join that there is a schedule for: those that the device model advises, then other pairs that fit.

    They may overlap: a kernel can be in several.
    """
    graph, device, threads = fits.kernels.graph, fits.target.device, fits.target.threads
    advised = join_chains(graph, join_pairs(graph, apart, device, fits), device, threads, fits)
    joins = [*_differences(apart, advised)]
    wholes = {join.whole for join in joins}
    for pair in list_candidates(graph, apart, device):
        if pair.members not in wholes and fits(pair.members):
            joins.append(Join((pair.first, pair.second), pair.members))
            wholes.add(pair.members)
    return tuple(joins)


def _differences(apart: Sequence[Members], after: Sequence[Members]) -> Iterable[Join]:
    """What was joined between two cuts of a graph, one join for each connected part."""
    gone = [kernel for kernel in apart if kernel not in set(after)]
    new = [kernel for kernel in after if kernel not in set(apart)]
    while new:
        parts: list[Members] = []
        together, growing = [new.pop()], True
        while growing:
            inside = {member for kernel in (*parts, *together) for member in kernel}
            more = [kernel for kernel in gone if not inside.isdisjoint(kernel)]
            also = [kernel for kernel in new if not inside.isdisjoint(kernel)]
            gone = [kernel for kernel in gone if kernel not in more]
            new = [kernel for kernel in new if kernel not in also]
            parts, together, growing = parts + more, together + also, bool(more or also)
        whole = max(together, key=len)
        yield Join(tuple(sorted(parts)), whole, tuple(kernel for kernel in together if kernel != whole))


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


def compose_schedules(sites: Sequence[DecisionSite], parts: Sequence[Decisions]) -> dict[str, str]:
    """The schedule of a joined kernel that is composed of those of its parts: where their decisions are options.

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
