"""Fair sharing of links by progressive filling: max-min fairness (Bertsekas and Gallager, "Data Networks", 6.5.2)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

Flow = TypeVar("Flow", bound=Hashable)
LinkName = TypeVar("LinkName", bound=Hashable)

_KEPT = 1 << 15
"""The most loads whose rates a Sharing remembers."""


def fair_rates(
    flows: Mapping[Flow, Sequence[LinkName]],
    bandwidth: Mapping[LinkName, float],
    counts: Mapping[Flow, int] | None = None,
) -> dict[Flow, float]:
    """The rate of each flow over all of its links: all grow together, and stop at the first link that is full.

    Every flow needs at least one link; no rate can grow without taking from a smaller or equal one. If `counts` are
    given, a flow stands for that many, and its rate is that of one of them.
    """
    weight = counts if counts is not None else dict.fromkeys(flows, 1)
    users: dict[LinkName, list[Flow]] = {}
    number: dict[LinkName, int] = {}
    for flow, links in flows.items():
        for link in links:
            users.setdefault(link, []).append(flow)
            number[link] = number.get(link, 0) + weight[flow]
    left = {link: bandwidth[link] for link in users}
    rates: dict[Flow, float] = {}
    while number:
        share, fullest = _fullest(left, number)
        for flow in users[fullest]:
            if flow not in rates:
                rates[flow] = share
                _take(flows[flow], weight[flow], share, number, left)
    return rates


def _fullest(left: Mapping[LinkName, float], number: Mapping[LinkName, int]) -> tuple[float, LinkName]:
    """The first of the links that give the least to each flow."""
    shares = [left[link] / count for link, count in number.items()]
    share = min(shares)
    return share, list(number)[shares.index(share)]


def _take(
    links: Sequence[LinkName], count: int, share: float, number: dict[LinkName, int], left: dict[LinkName, float]
) -> None:
    for link in links:
        if number[link] == count:
            del number[link]
        else:
            number[link] -= count
            left[link] = max(left[link] - count * share, 0.0)


def connected_flows(start: Sequence[Flow], flows: Mapping[Flow, Sequence[LinkName]]) -> dict[Flow, Sequence[LinkName]]:
    """The flows that share a link with one of `start`, directly or through others, `start` included."""
    by_link: dict[LinkName, list[Flow]] = {}
    for flow, links in flows.items():
        for link in links:
            by_link.setdefault(link, []).append(flow)
    reached = {flow: flows[flow] for flow in start if flow in flows}
    queue = list(reached)
    for flow in queue:
        for link in flows[flow]:
            new = [each for each in by_link.pop(link, ()) if each not in reached]
            reached.update((each, flows[each]) for each in new)
            queue.extend(new)
    return reached


Route = tuple[LinkName, ...]


class Sharing(Generic[LinkName]):
    """How many flows take each of the `routes`, which are connected by links, and the rate of one on each.

    Flows of one route have one rate, and how many take each route decides all rates: a load that comes back costs
    nothing.
    """

    def __init__(self, routes: Iterable[Route[LinkName]], bandwidth: Mapping[LinkName, float]) -> None:
        self.routes = tuple(routes)
        self.counts = [0] * len(self.routes)
        self.rates: tuple[float, ...] = (0.0,) * len(self.routes)
        self._bandwidth = bandwidth
        self._kept = lru_cache(maxsize=_KEPT)(self._fair)

    def update(self) -> list[int]:
        """Brings `rates` up to date with `counts`, which their owner changes; returns the routes of new rates."""
        old, self.rates = self.rates, self._kept(tuple(self.counts))
        if old is self.rates:
            return []
        return [place for place, (was, rate) in enumerate(zip(old, self.rates, strict=True)) if rate != was]

    def _fair(self, counts: tuple[int, ...]) -> tuple[float, ...]:
        taken = {place: count for place, count in enumerate(counts) if count}
        rates = fair_rates({place: self.routes[place] for place in taken}, self._bandwidth, taken)
        return tuple([rates.get(place, 0.0) for place in range(len(counts))])
