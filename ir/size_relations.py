"""Relations between sizes that have to hold for a model to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .sizes import ONE, Size

MOST_ELEMENTS = 2**31 - 1
"""Elements of the largest tensor: kernels count them in 32 bits."""
RelationName = Literal["equal", "least", "most", "broadcast"]


@dataclass(frozen=True)
class Relation:
    """`left` is equal to `right`, at least that, at most that, or (broadcast) equal to it or 1."""

    left: Size
    name: RelationName
    right: Size

    @property
    def text(self) -> str:
        """The complaint if it does not hold."""
        wrong = {"equal": "is not", "least": "is below", "most": "is above", "broadcast": "is neither 1 nor"}
        return f"a size of {self.left} {wrong[self.name]} {self.right}"

    def names(self) -> frozenset[str]:
        """The sizes that it is about."""
        return self.left.names() | self.right.names()

    @property
    def is_open(self) -> bool:
        """Whether it depends on the sizes of a call."""
        is_number = self.left.number is not None and self.right.number is not None
        return self.left != self.right and not is_number and not (self.name == "broadcast" and self.left == ONE)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is true of these sizes, or does not depend on them alone."""
        try:
            left, right = self.left.value(sizes.__getitem__), self.right.value(sizes.__getitem__)
        except KeyError:  # a size that depends on the values of inputs
            return True
        except ZeroDivisionError:
            return False
        if self.name in ("least", "most"):
            return left >= right if self.name == "least" else left <= right
        return left == right or (self.name == "broadcast" and left == 1)
