"""Addresses in one memory for buffers whose lifetimes are known: first fit in order of their starts.

What lives long goes to the bottom and what passes through to the top, so that they do not break up each other's room.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """`size` bytes from time `start` to `end`, inclusive. A shorter life is enough where the longer does not fit."""

    key: Hashable
    size: int
    start: int
    end: int
    is_passing: bool = False
    least: tuple[int, int] | None = None


class NoRoomError(Exception):
    """Requests that found no room, in order of their starts, each beside those that did."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = tuple(requests)
        first = requests[0]
        super().__init__(f"no {first.size} bytes in one piece at time {first.start}")


def assign(requests: Iterable[Request], capacity: int, alignment: int) -> dict[Hashable, int]:
    """Addresses such that buffers that live at once do not overlap. Raises NoRoomError."""
    wanted = [_aligned(request, alignment) for request in requests]
    try:
        return _assigned(wanted, capacity)
    except NoRoomError:
        short = (Request(r.key, r.size, *r.least, r.is_passing) if r.least else r for r in wanted)
        return _assigned(short, capacity)


def _aligned(request: Request, alignment: int) -> Request:
    size = -(-request.size // alignment) * alignment
    return Request(request.key, size, request.start, request.end, request.is_passing, request.least)


def _assigned(requests: Iterable[Request], capacity: int) -> dict[Hashable, int]:
    found: dict[Hashable, int] = {}
    without: list[Request] = []
    live: list[tuple[int, int, int]] = []
    """(address, end address, end of life), ascending."""
    for request in sorted(requests, key=lambda r: (r.start, r.is_passing, -r.end, -r.size)):
        live = [each for each in live if each[2] >= request.start]
        address = _place(live, request, capacity)
        if address is None:
            without.append(request)
            continue
        found[request.key] = address
        live.append((address, address + request.size, request.end))
        live.sort()
    if without:
        raise NoRoomError(without)
    return found


def _place(live: list[tuple[int, int, int]], request: Request, capacity: int) -> int | None:
    gaps = [gap for gap in _gaps(live, capacity) if gap[1] - gap[0] >= request.size]
    if not gaps:
        return None
    return gaps[-1][1] - request.size if request.is_passing else gaps[0][0]


def _gaps(live: list[tuple[int, int, int]], capacity: int) -> Iterator[tuple[int, int]]:
    end = 0
    for start, stop, _ in live:
        if start > end:
            yield end, start
        end = max(end, stop)
    if capacity > end:
        yield end, capacity
