"""What memory an order of sub-graph instances takes, without the network: jobs, and claims on memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from .instances import InstanceGraph, Part
from .orders import MemoryUse


@dataclass(frozen=True)
class Claim:
    """`size` bytes kept from when job `maker` runs (from the start if None) until the last of `readers` has run.

    `stays`: until after the end, whoever reads them.
    """

    size: int
    maker: int | None
    readers: tuple[int, ...]
    stays: bool = False


@dataclass(frozen=True)
class OrderProblem:
    """Jobs in an order in which they can run.

    `made` are the bytes that a job writes, those that nothing reads included; `sources` the jobs that it waits for;
    `passing` the bytes that are there all the time.
    """

    made: tuple[int, ...]
    sources: tuple[tuple[int, ...], ...]
    claims: tuple[Claim, ...]
    passing: int = 0

    def __len__(self) -> int:
        return len(self.made)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Per job, those that wait for it."""
        return _inverse(self.sources, len(self))

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """Per job, the claims that it reads."""
        return _inverse((claim.readers for claim in self.claims), len(self))

    @cached_property
    def makes(self) -> tuple[tuple[int, ...], ...]:
        """Per job, the claims that it makes."""
        return _inverse((() if claim.maker is None else (claim.maker,) for claim in self.claims), len(self))

    @cached_property
    def start(self) -> int:
        """Bytes that are there before the first job."""
        return self.passing + sum(claim.size for claim in self.claims if claim.maker is None)

    @cached_property
    def unread(self) -> tuple[int, ...]:
        """Per job, bytes that it writes and nothing reads: they are there only while it runs."""
        return tuple(
            made - sum(self.claims[c].size for c in claims) for made, claims in zip(self.made, self.makes, strict=True)
        )

    @cached_property
    def own(self) -> tuple[int, ...]:
        """Per job, the bytes of all that it reads and makes: a lower bound of the bytes while it runs, in any order."""
        return tuple(
            self.passing + made + sum(self.claims[c].size for c in reads)
            for made, reads in zip(self.made, self.reads, strict=True)
        )

    @cached_property
    def above(self) -> tuple[int, ...]:
        """Per job, the bit set of all that run before it in every order."""
        found: list[int] = []
        for sources in self.sources:
            bits = 0
            for source in sources:
                bits |= found[source] | 1 << source
            found.append(bits)
        return tuple(found)

    def uses(self, order: Iterable[int]) -> Iterator[int]:
        """Bytes that are there while each job runs."""
        left = [len(claim.readers) for claim in self.claims]
        now = self.start
        for job in order:
            now += self.made[job]
            yield now
            now -= self.unread[job]
            for number in self.reads[job]:
                left[number] -= 1
                if not left[number] and not self.claims[number].stays:
                    now -= self.claims[number].size

    def use(self, order: Iterable[int]) -> MemoryUse:
        """The most bytes at once, and the sum over the jobs."""
        uses = list(self.uses(order))
        return MemoryUse(max(uses, default=0), sum(uses))


@dataclass
class Effort:
    """Steps that may still be spent, one of about a microsecond: a limit that does not depend on the machine."""

    left: int

    def spend(self, steps: int) -> bool:
        """Take off some steps, and say whether there were that many left."""
        self.left -= steps
        return self.left >= 0

    def part(self, steps: int) -> Effort:
        """Take off some of the steps, as far as there are that many left, for a search of its own."""
        steps = max(0, min(steps, self.left))
        self.left -= steps
        return Effort(steps)


def problem_of(graph: InstanceGraph) -> OrderProblem:
    """The problem of all instances of a graph: job i is instance i."""
    made, claims = [0] * len(graph), []
    for job, instance in enumerate(graph.instances):
        shared: dict[tuple[int, ...], int] = {}
        for value, box in instance.written.items():
            size = graph.network.bytes(value, box)
            made[job] += size
            readers = graph.readers.get(Part(job, value), ())
            shared[readers] = shared.get(readers, 0) + size
        claims += [Claim(size, job, readers) for readers, size in shared.items() if readers]
    return OrderProblem(tuple(made), graph.earlier, tuple(claims))


def series(problem: OrderProblem) -> tuple[OrderProblem, ...]:
    """The problem in pieces, each of which runs wholly before the next in every order; jobs keep their sequence.

    Peaks of the pieces compare, and sums add up, to those of the whole.
    """
    cuts = [0, *_cuts(problem), len(problem)]
    ranges = list(pairwise(cuts))
    piece_of = [number for number, (first, last) in enumerate(ranges) for _ in range(first, last)]
    claims: list[list[Claim]] = [[] for _ in ranges]
    passing = [problem.passing] * len(ranges)
    for claim in problem.claims:
        _distribute(claim, piece_of, cuts, claims, passing)
    return tuple(
        OrderProblem(
            problem.made[first:last],
            tuple(tuple(s - first for s in sources if s >= first) for sources in problem.sources[first:last]),
            tuple(claims[number]),
            passing[number],
        )
        for number, (first, last) in enumerate(ranges)
    )


def _cuts(problem: OrderProblem) -> list[int]:
    """Numbers of jobs such that those before wait for none of the others, and all others for all of those before."""
    cuts: list[int] = []
    least = len(problem)
    for job in range(len(problem) - 1, 0, -1):
        above = problem.above[job]
        least = min(least, (~above & (above + 1)).bit_length() - 1)
        if least >= job:
            cuts.append(job)
    return cuts[::-1]


def _distribute(
    claim: Claim, piece_of: Sequence[int], cuts: Sequence[int], claims: list[list[Claim]], passing: list[int]
) -> None:
    """The parts of a claim in the pieces through which it lives."""
    readers: dict[int, list[int]] = {}
    for reader in claim.readers:
        readers.setdefault(piece_of[reader], []).append(reader - cuts[piece_of[reader]])
    first = 0 if claim.maker is None else piece_of[claim.maker]
    last = len(claims) - 1 if claim.stays else max(readers, default=first)
    for piece in range(first, last + 1):
        own = tuple(readers.get(piece, ()))
        stays = piece < last or claim.stays
        if piece == first and claim.maker is not None:
            claims[piece].append(Claim(claim.size, claim.maker - cuts[piece], own, stays))
        elif own:
            claims[piece].append(Claim(claim.size, None, own, stays))
        else:
            passing[piece] += claim.size


def _inverse(lists: Iterable[Sequence[int]], count: int) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in range(count)]
    for number, members in enumerate(lists):
        for member in members:
            found[member].append(number)
    return tuple(map(tuple, found))
