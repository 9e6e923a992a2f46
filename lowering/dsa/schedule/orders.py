"""Orders of sub-graph instances: breadth first, and depth first by Algorithm 3 (GraphTurbo, OSDI 2023, section 3.3)."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .instances import InstanceGraph, Part

Order = tuple[int, ...]
"""All instances, each after those that it waits for."""


def bfs_order(graph: InstanceGraph) -> Order:
    """Breadth first (Fig. 7a): in the order in which they become ready."""
    waiting = [len(sources) for sources in graph.earlier]
    ready = deque(index for index, count in enumerate(waiting) if not count)
    order: list[int] = []
    while ready:
        index = ready.popleft()
        order.append(index)
        for user in graph.later[index]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return tuple(order)


def dfs_order(graph: InstanceGraph) -> Order:
    """Depth first, by Algorithm 3.

    The list `ready` holds instances that wait for nothing, and those some of whose producers have been ordered. Its
    last element with no in-degree is ordered next. Here `place` is the position at which an instance was pushed, and
    the elements with no in-degree lie in a heap, the last one first.
    """
    indegree = [len(sources) for sources in graph.earlier]
    place: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    for index, count in enumerate(indegree):
        if not count:
            place[index] = len(place)
            heapq.heappush(heap, (-place[index], index))
    order: list[int] = []
    while heap:
        _, index = heapq.heappop(heap)
        order.append(index)
        for user in graph.later[index]:
            place.setdefault(user, len(place))
            indegree[user] -= 1
            if not indegree[user]:
                heapq.heappush(heap, (-place[user], user))
    return tuple(order)


@dataclass(frozen=True, order=True)
class MemoryUse:
    """How much an order keeps between instances: the most bytes at once, then bytes summed over its steps."""

    peak: int
    total: int


def memory_use(graph: InstanceGraph, order: Sequence[int]) -> MemoryUse:
    """Bytes that outputs of instances take while instances run, from when they are made until they are last read.

    What the instance that runs needs for itself is left out: it is the same in every order.
    """
    step = {index: number for number, index in enumerate(order)}
    changes = [0] * (len(order) + 1)
    for index, instance in enumerate(graph.instances):
        for value, box in instance.written.items():
            last = max((step[user] for user in graph.readers.get(Part(index, value), ())), default=step[index])
            changes[step[index]] += graph.network.bytes(value, box)
            changes[last + 1] -= graph.network.bytes(value, box)
    peak = total = now = 0
    for change in changes:
        now += change
        peak, total = max(peak, now), total + now
    return MemoryUse(peak, total)


def better_order(graph: InstanceGraph) -> Order:
    """The one of BFS and DFS that uses less memory; DFS if they are equal."""
    return min((dfs_order(graph), bfs_order(graph)), key=lambda order: memory_use(graph, order))
