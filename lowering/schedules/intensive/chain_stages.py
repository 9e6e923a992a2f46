"""Chains of blocks that can be computed for one tile of rows after the other, nothing twice."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import prod

from tvm import s_tir, tirx

from ..preparation import is_cheap, is_direct
from ..stages import FUNCTION, Access, Stage, consumers, is_parameter, is_product_sum, may_inline, stage, stages, walk


@dataclass(frozen=True)
class Link:
    """A block of a chain. `axes` are its iterators along the chain's axes, of which the last is the rows'."""

    stage: Stage
    axes: tuple[int, ...]
    is_row_wise: bool

    @property
    def name(self) -> str:
        """The buffer that it writes; unique in a function."""
        return self.stage.write.name

    @property
    def row(self) -> int:
        """The iterator along the rows."""
        return self.axes[-1]

    @property
    def is_product(self) -> bool:
        """Whether it multiplies matrices."""
        return is_product_sum(self.stage)


@dataclass(frozen=True)
class Chain:
    """Blocks in running order, each depends on the first; the last one makes the function's only output.

    A product is followed by its epilogue, which reads it element by element; what is neither is row-wise, and among
    such blocks that follow each other is a reduction. Invariant: along the chain's axes each block needs of the others
    exactly what is at the same place.
    """

    links: tuple[Link, ...]

    @property
    def products(self) -> tuple[Link, ...]:
        """The products, in order."""
        return tuple(link for link in self.links if link.is_product)

    @property
    def last(self) -> Link:
        """The block that makes the output."""
        return self.links[-1]

    @property
    def rows(self) -> int:
        """The extent of the axis that is cut into tiles."""
        return self.last.stage.extents[self.last.row]

    @property
    def copies(self) -> int:
        """How many such rows there are, along the chain's other axes."""
        return prod(self.last.stage.extents[i] for i in self.last.axes[:-1])

    @property
    def kept_elements(self) -> int:
        """Elements of a row that later blocks of the chain read: of what epilogues make, and of what products read."""
        read = {read.name for product in self.products for read in product.stage.reads}
        kept = [x for x in self.links[:-1] if not x.is_product and (x.name in read or not x.is_row_wise)]
        return sum(prod(e for i, e in enumerate(x.stage.extents) if i not in x.axes) for x in kept)

    @property
    def shared_elements(self) -> int:
        """Elements of what the products read besides rows: other matrices, which every tile reads as a whole."""
        others = [(p, read) for p in self.products for read in p.stage.reads if p.row not in read.used()]
        return sum(prod(p.stage.extents[i] for i in read.used() if i not in p.axes) for p, read in others)

    def epilogue(self, product: Link) -> Link:
        """The block that reads the product."""
        return self.links[self.links.index(product) + 1]

    def row_wise_groups(self) -> list[tuple[Link, ...]]:
        """Runs of row-wise blocks."""
        runs = groupby(self.links, key=lambda link: link.is_row_wise)
        return [tuple(run) for is_row_wise, run in runs if is_row_wise]


def find_chain(schedule: s_tir.Schedule) -> Chain | None:
    """Inlines what it can; None where the function is no chain with a product and, after it, another reduction."""
    first = next((s for s in stages(schedule) if is_product_sum(s)), None)
    if first is None or sum(bool(s.reduced) for s in stages(schedule)) < 2:
        return None
    _inline(schedule, first)
    if not is_product_sum(stage(schedule, first.block)):
        return None
    for product in [s for s in stages(schedule) if is_product_sum(s)]:
        if _epilogue(schedule, product) is None:
            schedule.cache_write(product.block, 0, "global")
    everything = stages(schedule)
    body = _dependents(everything)
    if sum(bool(s.reduced) for s in body) != sum(bool(s.reduced) for s in everything):
        return None
    outputs = [s for s in body if is_parameter(schedule.mod[FUNCTION], s.write.buffer)]
    if len(outputs) != 1 or outputs[0] is not body[-1] or any(s.has_booleans() for s in body):
        return None
    return _chain(schedule, body)


def _inline(schedule: s_tir.Schedule, first: Stage) -> None:
    """Inlines prologues of products, and point-wise blocks into others; what a reduction reads stays."""
    for current in stages(schedule):
        if current.reduced or is_parameter(schedule.mod[FUNCTION], current.write.buffer):
            continue
        everything = stages(schedule)
        users = consumers(everything, current)
        depends = any(s.write.name == current.write.name for s in _dependents(everything))
        alike = len(users) == 1 and users[0].extents == current.extents
        wanted = not any(s.reduced for s in users) and (alike or _is_free(current)) if depends else is_cheap(current)
        if wanted and may_inline(everything, current):
            schedule.compute_inline(current.block)


def _is_free(current: Stage) -> bool:
    """Whether to compute it again at every use: no functions, no divisions."""
    return is_cheap(current) and not any(isinstance(part, tirx.Div) for part in walk(current.value))


def _dependents(everything: list[Stage]) -> list[Stage]:
    """The first product and all that depends on it."""
    first = next(n for n, s in enumerate(everything) if is_product_sum(s))
    found = [everything[first]]
    for current in everything[first + 1 :]:
        if {r.name for r in current.reads} & {s.write.name for s in found}:
            found.append(current)
    return found


def _epilogue(schedule: s_tir.Schedule, product: Stage) -> Stage | None:
    after = consumers(stages(schedule), product)
    return after[0] if len(after) == 1 and is_direct(after[0], product) else None


def _chain(schedule: s_tir.Schedule, body: list[Stage]) -> Chain | None:
    axes = _common_axes(body)
    products = [s for s in body if is_product_sum(s)]
    tiled = [a for a in axes if all(_is_row(p, axes[a][p.write.name]) for p in products)]
    if not tiled:
        return None
    row = next((a for a in reversed(tiled) if body[-1].extents[a] > 1), tiled[-1])
    order = [*(a for a in axes if a != row), row]
    epilogues = {e.write.name for p in products if (e := _epilogue(schedule, p)) is not None}
    if len(epilogues) != len(products):
        return None
    links = tuple(
        Link(s, tuple(axes[a][s.write.name] for a in order), s not in products and s.write.name not in epilogues)
        for s in body
    )
    chain = Chain(links)
    follow = all(links[n + 1].name in epilogues for n, link in enumerate(links) if link.is_product)
    reducing = all(any(link.stage.reduced for link in group) for group in chain.row_wise_groups())
    return chain if follow and reducing and any(s.reduced for s in body[1:]) else None


def _is_row(product: Stage, iterator: int) -> bool:
    """Whether one operand alone has the iterator."""
    return sum(iterator in read.used() for read in product.reads) == 1


def _common_axes(body: list[Stage]) -> dict[int, dict[str, int]]:
    """Axes that all blocks have: by the last block's iterator, the iterator of each block, by its buffer's name."""
    last = body[-1]
    found: dict[str, dict[int, int]] = {last.write.name: {i: i for i in last.spatial}}
    for current in reversed(body[:-1]):
        seen = [
            _passed(read, found[user.write.name], current, user)
            for user in consumers(body, current)
            for read in user.reads
            if read.name == current.write.name
        ]
        first = seen[0] if seen else {}
        found[current.write.name] = {a: i for a, i in first.items() if all(s.get(a) == i for s in seen)}
    common = [a for a in last.spatial if all(a in own for own in found.values())]
    return {a: {name: own[a] for name, own in found.items()} for a in common}


def _passed(read: Access, axes: dict[int, int], producer: Stage, user: Stage) -> dict[int, int]:
    """The axes whose iterator in `user` alone is the index of a whole dimension that `producer` runs along."""
    axis_of = {iterator: axis for axis, iterator in axes.items()}
    passed: dict[int, int] = {}
    for used, index, written in zip(read.iterators, read.indices, producer.write.iterators, strict=True):
        if len(used) != 1 or len(written) != 1 or not isinstance(index, tirx.Var):
            continue
        (outer,), (inner,) = used, written
        if outer in axis_of and user.extents[outer] == producer.extents[inner]:
            passed[axis_of[outer]] = inner
    return passed
