"""When the instructions of a program run on a device: an event queue, in cycles.

An engine runs its instructions in program order; an instruction starts when the one before it on each of its engines
has ended, or, if the engine was not the first of a kernel's units, has been used, and all that it waits for has ended.
A compute takes the cycles of `Cost`. A transfer takes its latency, then its bytes flow at a rate that all concurrent
transfers share fairly on every link they cross. The result depends on nothing but the arguments.

More bandwidth can make a program slower: what starts earlier shares the links with what is critical (an anomaly like
those of Graham, "Bounds for certain multiprocessing anomalies", 1966). It cannot if transfers run one at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from ....costmodels.dsa_device import DsaDevice
from ..program.cost import Cost, Link
from ..program.happens_before import predecessors, users
from ..program.instructions import Barrier, Compute, Engine, IndexedTransfer, Program, Transfer


@dataclass(frozen=True)
class Timeline:
    """Per instruction, the cycles at which it starts and ends."""

    program: Program
    device: DsaDevice
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def cycles(self) -> float:
        """When the last instruction ends."""
        return max(self.ends, default=0.0)

    @cached_property
    def cost(self) -> Cost:
        """The costs that it was simulated with."""
        return Cost(self.device)

    def occupied_engines(self, index: int) -> Iterator[tuple[Engine, float, float]]:
        """The engines that an instruction occupies, from when until when."""
        instruction, start, end = self.program.instructions[index], self.starts[index], self.ends[index]
        for number, engine in enumerate(instruction.engines):
            if number and isinstance(instruction, Compute):
                yield engine, start, min(end, start + self.cost.work_cycles(instruction.work[number], engine))
            else:
                yield engine, start, end


class _Event(IntEnum):
    END = 0
    FLOW = 1
    """The latency of a transfer is over."""
    RELEASE = 2
    """A kernel has used a unit other than its first; the event's version is its number."""


_FIXED = -1
"""The version of an event that no change of rates moves."""


@dataclass(slots=True)
class _Flow:
    """Bytes still to move at `rate`, as of cycle `since`; `version` tells its last prediction from those before."""

    left: float
    route: int
    since: float
    rate: float = 0.0
    version: int = 0


@dataclass
class _Network:
    """The flows of the moment, by instruction and by route; any of the routes shares links with any other."""

    sharing: Sharing[Link]
    numbers: dict[tuple[Link, ...], int] = field(init=False)
    flows: dict[int, _Flow] = field(default_factory=dict)
    by_route: list[dict[int, _Flow]] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = {route: number for number, route in enumerate(self.sharing.routes)}
        self.by_route = [{} for _ in self.numbers]

    def add(self, index: int, wire_bytes: int, links: tuple[Link, ...], now: float) -> None:
        route = self.numbers[links]
        self.flows[index] = self.by_route[route][index] = _Flow(float(wire_bytes), route, now)
        self.sharing.counts[route] += 1

    def remove(self, index: int) -> None:
        route = self.flows.pop(index).route
        del self.by_route[route][index]
        self.sharing.counts[route] -= 1

    def new_rates(self, started: list[int]) -> Iterator[tuple[int, _Flow, float]]:
        """New rates: those of routes whose load changed them, and of flows that have just started."""
        routes = self.sharing.update()
        rates = self.sharing.rates
        for route in routes:
            for index, flow in self.by_route[route].items():
                yield index, flow, rates[route]
        for index in started:
            flow = self.flows[index]
            if flow.rate == 0.0:
                yield index, flow, rates[flow.route]


def _networks(program: Program, cost: Cost) -> dict[tuple[Link, ...], _Network]:
    """The network of each transfer by its links; networks that no chain of transfers connects share nothing."""
    movements = (each for each in program.instructions if isinstance(each, Transfer | IndexedTransfer))
    routes = {links: links for links in sorted({cost.links(each) for each in movements}, key=str)}
    bandwidth = {link: cost.bandwidth(link) for links in routes for link in links}
    networks: dict[tuple[Link, ...], _Network] = {}
    for route in routes:
        if route not in networks:
            together = connected_flows([route], routes)
            network = _Network(Sharing([each for each in routes if each in together], bandwidth))
            networks.update(dict.fromkeys(together, network))
    return networks


@dataclass
class _Run:
    program: Program
    cost: Cost
    in_order: bool = True
    """Whether units that kernels only use do so in the order of the program."""
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    followers: array[int] = field(default_factory=lambda: array("q"))
    """Of each instruction, one after another, those that wait for its end."""
    first_followers: array[int] = field(default_factory=lambda: array("q"))
    """Where those of each instruction begin, and the end of all."""
    next_users: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """Instructions that start after a kernel has used a unit, by the kernel and the number of the unit."""
    networks: dict[tuple[Link, ...], _Network] = field(default_factory=dict)
    flowing: dict[int, _Network] = field(default_factory=dict)
    """Where the transfers whose latency is over have their flows."""
    queue: list[tuple[float, int, _Event, int]] = field(default_factory=list)
    """(cycle, instruction, event, version of the flow or _FIXED)."""

    def __post_init__(self) -> None:
        count, all_before = len(self.program.instructions), array("q")
        for before in predecessors(self.program):
            self.pending.append(len(before))
            all_before.extend(before)
        followed, follower = np.array(all_before, np.int64), np.repeat(np.arange(count), self.pending)
        self.followers = array("q", follower[np.argsort(followed, kind="stable")].tobytes())
        self.first_followers = array("q", [0, *np.cumsum(np.bincount(followed, minlength=count)).tolist()])
        for index, used in enumerate(users(self.program) if self.in_order else ()):
            for earlier, number in used:
                self.next_users.setdefault((earlier, number), []).append(index)
                self.pending[index] += 1
        self.starts = [0.0] * count
        self.ends = [0.0] * count
        self.networks = _networks(self.program, self.cost)

    def run(self) -> None:
        for index, pending in enumerate(self.pending):
            if pending == 0:
                self._start(index, 0.0)
        while self.queue:
            self._step(self.queue[0][0])

    def _step(self, now: float) -> None:
        """All events of one cycle, then new rates once for all flows that they touch."""
        touched: dict[int, tuple[_Network, list[int]]] = {}
        while self.queue and self.queue[0][0] <= now:
            _, index, event, version = heappop(self.queue)
            if event is _Event.FLOW:
                network = self._flow(index, now)
                touched.setdefault(id(network), (network, []))[1].append(index)
            elif event is _Event.RELEASE:
                self._count_down(self.next_users[index, version], now)
            elif version == _FIXED:
                self._end(index, now)
            elif (flowing := self.flowing.get(index)) and flowing.flows[index].version == version:
                touched.setdefault(id(flowing), (flowing, []))
                flowing.remove(index)
                del self.flowing[index]
                self._end(index, now)
        for network, started in touched.values():
            for index, flow, rate in network.new_rates(started):
                self._set_rate(index, flow, rate, now)

    def _start(self, index: int, now: float) -> None:
        self.starts[index] = now
        instruction = self.program.instructions[index]
        if isinstance(instruction, Barrier):
            self._push(now, index, _Event.END)
        elif isinstance(instruction, Compute):
            self._compute(index, instruction, now)
        else:
            self._push(now + self.cost.latency(instruction), index, _Event.FLOW)

    def _compute(self, index: int, compute: Compute, now: float) -> None:
        end = now + self.cost.compute_cycles(compute)
        self._push(end, index, _Event.END)
        for number, work in enumerate(compute.work):
            if (index, number) in self.next_users:
                used = now + self.cost.work_cycles(work, compute.engines[number])
                self._push(min(end, used), index, _Event.RELEASE, number)

    def _push(self, cycle: float, index: int, event: _Event, version: int = _FIXED) -> None:
        heappush(self.queue, (cycle, index, event, version))

    def _flow(self, index: int, now: float) -> _Network:
        movement = self.program.instructions[index]
        assert isinstance(movement, Transfer | IndexedTransfer)
        links = self.cost.links(movement)
        network = self.flowing[index] = self.networks[links]
        network.add(index, self.cost.wire_bytes(movement), links, now)
        return network

    def _end(self, index: int, now: float) -> None:
        self.ends[index] = now
        first, end = self.first_followers[index : index + 2]
        self._count_down(self.followers[first:end], now)

    def _count_down(self, followers: Iterable[int], now: float) -> None:
        """Start those that waited for nothing else."""
        for follower in followers:
            self.pending[follower] -= 1
            if self.pending[follower] == 0:
                self._start(follower, now)

    def _set_rate(self, index: int, flow: _Flow, rate: float, now: float) -> None:
        if rate == flow.rate:
            return
        flow.left = max(flow.left - flow.rate * (now - flow.since), 0.0)
        flow.rate, flow.since = rate, now
        flow.version += 1
        self._push(now + flow.left / rate, index, _Event.END, flow.version)


def simulate_time(program: Program, device: DsaDevice, *, in_order: bool = True) -> Timeline:
    """The run of a program. Raises ProgramError if the device lacks an engine, or waits name later instructions.

    Without `in_order` a unit that kernels only use, not first of their units, is never waited for: no device runs so,
    but it says in which order they would like to run (see instruction_order.py).
    """
    run = _Run(program, Cost(device), in_order)
    run.run()
    return Timeline(program, device, tuple(run.starts), tuple(run.ends))


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
