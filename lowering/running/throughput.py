"""Several clients that call one model at once: how many calls a second it serves, and how long each takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from threading import Barrier
from typing import Any

from .turns import Middle, quantile

SLICE = 0.25
"""Seconds for which one contestant serves before the next one does, unless a call of each client takes longer."""


@dataclass(frozen=True)
class Service:
    """Calls of all clients during one slice: the seconds of each, and of the slice."""

    calls: tuple[float, ...]
    seconds: float

    @property
    def rate(self) -> float:
        """Calls a second."""
        return len(self.calls) / self.seconds


@dataclass(frozen=True)
class Throughput:
    """Calls a second, slice by slice, and the seconds that half of the calls, and 99 of 100, took at most."""

    rate: Middle
    p50: float
    p99: float

    @staticmethod
    def of(services: list[Service]) -> Throughput:
        """The throughput in at least one slice."""
        calls = [seconds for service in services for seconds in service.calls]
        return Throughput(Middle.of([service.rate for service in services]), median(calls), quantile(calls, 0.99))


def serve_in_turns(contestants: Mapping[str, Callable[[], Any]], clients: int, slices: int) -> dict[str, list[Service]]:
    """The services of each contestant to this number of clients, in slices that take turns. The order is reversed every
    other time, so that other work on the machine meets all alike."""
    order = list(contestants.items())
    services: dict[str, list[Service]] = {name: [] for name in contestants}
    with ThreadPoolExecutor(clients) as pool:
        for _, call in order:
            _serve(pool, call, clients)
        for _ in range(slices):
            for name, call in order:
                services[name].append(_serve(pool, call, clients))
            order.reverse()
    return services


def _serve(pool: ThreadPoolExecutor, call: Callable[[], Any], clients: int) -> Service:
    barrier = Barrier(clients)
    started = time.perf_counter()
    done = [pool.submit(_call_again_and_again, call, barrier) for _ in range(clients)]
    calls = tuple(seconds for each in done for seconds in each.result())
    return Service(calls, time.perf_counter() - started)


def _call_again_and_again(call: Callable[[], Any], barrier: Barrier) -> list[float]:
    """The seconds of the calls of one client, at least one."""
    barrier.wait()
    calls: list[float] = []
    end = time.perf_counter() + SLICE
    while not calls or time.perf_counter() < end:
        before = time.perf_counter()
        call()
        calls.append(time.perf_counter() - before)
    return calls
