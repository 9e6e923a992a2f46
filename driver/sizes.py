"""What users say of the sizes of free dimensions: typical ones, and ranges of those that occur."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from ..support.options import OptionError

MOST_SPECIAL = 8
"""Kernels are compiled for each combination of the sizes in ranges where there are at most this many."""
_FACT = re.compile(r"\s*(.+?)\s*=\s*(\d+)(?:\.\.(\d+)(?::(\d+))?)?\s*")


@dataclass(frozen=True)
class Sizes:
    """The `typical` size of dimensions, by name, and the `ranges` of those that are said to occur."""

    typical: Mapping[str, int]
    ranges: Mapping[str, range]

    @staticmethod
    def of(typical: Iterable[str], ranges: Iterable[str]) -> Sizes:
        """From texts: `H=640`, and `H=32..1280:32`. Raises OptionError for another form."""
        numbers = {name: values.start for name, values in _parse("typical", typical)}
        occurring = dict(_parse("range", ranges))
        for name, values in occurring.items():
            numbers.setdefault(name, values[len(values) // 2])
            if numbers[name] not in values:
                raise OptionError("typical", f"{name}={numbers[name]} is not in the range {name}={_text(values)}")
        return Sizes(numbers, occurring)

    def list_special(self, assumed: Mapping[str, int]) -> tuple[Mapping[str, int], ...]:
        """Sizes of all dimensions that kernels of their own are worthwhile for; `assumed` ones of those not named.

        The typical ones come first.
        """
        if not self.typical:
            return ()
        whole = {**assumed, **self.typical}
        names = [name for name in whole if name in self.ranges]
        if not names or prod(len(self.ranges[name]) for name in names) > MOST_SPECIAL:
            return (whole,)
        combinations = product(*(self.ranges[name] for name in names))
        others = [{**whole, **dict(zip(names, sizes, strict=True))} for sizes in combinations]
        return (whole, *(sizes for sizes in others if sizes != whole))


def _parse(option: str, facts: Iterable[str]) -> Iterable[tuple[str, range]]:
    for fact in facts:
        match = _FACT.fullmatch(fact)
        is_range = match is not None and match[3] is not None
        if match is None or is_range != (option == "range"):
            example = "range such as H=32..1280:32" if option == "range" else "size such as H=640"
            raise OptionError(option, f"{fact!r} is no {example}")
        first, last, step = int(match[2]), int(match[3] or match[2]), int(match[4] or 1)
        if last < first or step < 1:
            raise OptionError(option, f"{fact!r} has no sizes")
        yield match[1], range(first, last + 1, step)


def _text(values: range) -> str:
    return f"{values.start}..{values[-1]}:{values.step}"
