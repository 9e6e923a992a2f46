"""The loops of a fused kernel, from the index maps of its operators.

Each axis of each value is a product of loops, outermost first. Operators say which axes are one loop (an element-wise
operator: all of them; a Reshape: after both sides are split at the same places), and which loops have to run to their
end inside a tile because a value would otherwise be computed more than once, which AGO (section III.B) says happens
when the downstream operator reuses the value and has two or more tiles. So a depthwise convolution that reads a
computed value keeps its feature map whole and tiles its channels; a pointwise one or a matrix product tiles rows and
keeps its output channels whole (Fig. 7); a Softmax keeps its axis. The other loops can be tiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

Axis = tuple[int, ...]
"""Loops, outermost first; none for an axis of one element."""
Axes = tuple[Axis, ...]


class Misaligned(Exception):
    """Two axes that are split at different places: no common loops."""


class Loops:
    """A set of loops that can be united, and split into two."""

    def __init__(self) -> None:
        self._extent: list[int] = []
        self._parent: list[int] = []
        self._parts: dict[int, Axis] = {}
        self._complete: set[int] = set()

    def axis(self, extent: int) -> Axis:
        """A new axis; none if it has one element."""
        if extent == 1:
            return ()
        self._extent.append(extent)
        self._parent.append(len(self._parent))
        return (len(self._parent) - 1,)

    def axes(self, extents: Iterable[int]) -> Axes:
        """New axes."""
        return tuple(map(self.axis, extents))

    def resolve(self, axis: Axis) -> Axis:
        """The current loops of an axis."""
        loops: list[int] = []
        for loop in axis:
            root = self._root(loop)
            parts = self._parts.get(root)
            loops += (root,) if parts is None else self.resolve(parts)
        return tuple(loops)

    def size(self, axis: Axis) -> int:
        """Number of elements along an axis."""
        return prod(self._extent[loop] for loop in self.resolve(axis))

    def complete(self, *axes: Axis) -> None:
        """These loops run to their end inside a tile."""
        for axis in axes:
            self._complete.update(self.resolve(axis))

    def tiled(self, axes: Axes) -> set[int]:
        """The loops of a value that can be tiled."""
        return {loop for axis in axes for loop in self.resolve(axis)} - self._complete

    def tile(self, axes: Axes) -> int:
        """Elements of a value inside one tile: the extents of its complete loops."""
        loops = {loop for axis in axes for loop in self.resolve(axis)}
        return prod(self._extent[loop] for loop in loops if loop in self._complete)

    def unite(self, first: Axis, second: Axis) -> None:
        """Make two axes of the same size one. Raises Misaligned."""
        left, right = list(self.resolve(first)), list(self.resolve(second))
        while left and right:
            a, b = self._take_loop(left), self._take_loop(right)
            large, small = self._extent[a], self._extent[b]
            if large == small:
                self._join(a, b)
            elif large > small:
                left.append(self._cut(a, small)[0])
                self._join(self._parts[a][1], b)
            else:
                right.append(self._cut(b, large)[0])
                self._join(a, self._parts[b][1])
        if left or right:
            raise Misaligned

    def regroup(self, axes: Axes, extents: Sequence[int]) -> Axes:
        """The axes of a Reshape to `extents`: the same loops in the same order, split if they have to be. Raises
        Misaligned."""
        left = [loop for axis in axes for loop in self.resolve(axis)]
        result: list[Axis] = []
        for extent in reversed(extents):
            taken: list[int] = []
            while extent > 1:
                if not left:
                    raise Misaligned
                loop = self._take_loop(left)
                if extent % self._extent[loop]:
                    outer, loop = self._cut(loop, extent)
                    left.append(outer)
                taken.insert(0, loop)
                extent //= self._extent[loop]
            result.insert(0, tuple(taken))
        if left:
            raise Misaligned
        return tuple(result)

    def _take_loop(self, loops: list[int]) -> int:
        """The innermost loop, removed from the list; loops that were split meanwhile count as their parts."""
        loops[-1:] = self.resolve((loops[-1],))
        return loops.pop()

    def _root(self, loop: int) -> int:
        while self._parent[loop] != loop:
            self._parent[loop] = loop = self._parent[self._parent[loop]]
        return loop

    def _join(self, first: int, second: int) -> None:
        a, b = self._root(first), self._root(second)
        if a == b:
            return
        if a in self._parts or b in self._parts:
            self.unite(self._parts.get(a, (a,)), self._parts.get(b, (b,)))
            return
        self._parent[b] = a
        if b in self._complete:
            self._complete.add(a)

    def _cut(self, loop: int, inner: int) -> Axis:
        """Split a loop into two, the inner one of that extent."""
        extent = self._extent[loop]
        if inner < 2 or extent % inner:
            raise Misaligned
        parts = self.axis(extent // inner) + self.axis(inner)
        self._parts[loop] = parts
        if loop in self._complete:
            self._complete.update(parts)
        return parts
