"""The sizes of dynamic dimensions that a user names: those that are optimised for, and those that occur."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from ..support.errors import UsageError
from ..support.options import OptionError

if TYPE_CHECKING:
    from ..engine.onnx.model import Model
    from ..ir.graph import OperatorGraph

MOST_SPECIAL = 8
"""The most combinations of sizes that occur for which separate kernels are compiled: each adds its compile time."""
_FACT = re.compile(r"\s*(.+?)\s*=\s*(?:(\d+)\.\.(\d+)(?::(\d+))?|(\d+(?:\s*,\s*\d+)*))\s*")


@dataclass(frozen=True)
class Sizes:
    """The sizes of dimensions, by name: `typical`, the one that is optimised for, and all that are said to occur."""

    typical: Mapping[str, int]
    occurring: Mapping[str, Sequence[int]]

    @staticmethod
    def of(typical: Iterable[str], ranges: Iterable[str]) -> Sizes:
        """From texts: `H=640`; `H=32..1280:32` and `N=1,4,16`. Raises OptionError for another form.

        The size that is optimised for is the middle of a range, and the first of a list.
        """
        numbers = {name: sizes[0] for name, sizes in _parse("typical", typical)}
        occurring = dict(_parse("range", ranges))
        for name, sizes in occurring.items():
            numbers.setdefault(name, sizes[len(sizes) // 2] if isinstance(sizes, range) else sizes[0])
            if numbers[name] not in sizes:
                raise OptionError("typical", f"{name}={numbers[name]} is not in the range {name}={_text(sizes)}")
        return Sizes(numbers, occurring)

    def list_special(self, graph: OperatorGraph, free: Iterable[str]) -> tuple[Mapping[str, int], ...]:
        """Sizes for which separate kernels pay, those that are optimised for first; `free` are all dimensions.

        They name the dimensions that the user names, and batches. Sizes of a range on which the model does not run are
        left out. Raises UsageError for others on which it does not run.
        """
        from ..ir.operators.graph_relations import fit_sizes

        unsaid = [name for name in free if name not in self.typical]
        batches = [name for name in unsaid if graph.sizes.get(name) == 1]
        special: dict[tuple[int, ...], Mapping[str, int]] = {}
        for said in self._combine():
            fitted = fit_sizes(replace(graph, sizes={**graph.sizes, **said}), unsaid)
            if refusal := _find_refusal(graph, fitted):
                if said != self.typical and any(isinstance(sizes, range) for sizes in self.occurring.values()):
                    continue
                chosen = ", ".join(f"{name}={size}" for name, size in said.items())
                raise UsageError(f"the model does not run with {chosen}: {refusal}")
            names = dict.fromkeys((*said, *batches))
            special[tuple(fitted[name] for name in names)] = {name: fitted[name] for name in names}
        return tuple(special.values())

    def list_rare(self, typical: Mapping[str, int]) -> Sequence[Mapping[str, int]]:
        """Sizes of all dimensions that are easily computed wrong: 1 for all, 0 for each, and the ends of ranges."""
        changes = [*((name, 0) for name in typical)]
        changes += ((name, sizes[end]) for name, sizes in self.occurring.items() for end in (0, -1))
        return [dict.fromkeys(typical, 1), *({**typical, name: size} for name, size in changes)]

    def _combine(self) -> Iterable[Mapping[str, int]]:
        """The sizes that are optimised for, and all combinations of those that occur; if there are too many, those of
        one dimension after the other."""
        if not self.typical:
            return
        yield dict(self.typical)
        if prod(map(len, self.occurring.values())) <= MOST_SPECIAL:
            for combination in product(*self.occurring.values()):
                yield {**self.typical, **dict(zip(self.occurring, combination, strict=True))}
            return
        for name, sizes in self.occurring.items():
            if len(sizes) <= MOST_SPECIAL:
                yield from ({**self.typical, name: size} for size in sizes)


def check_sizes(model: Model, sizes: Sizes, facts: Sequence[str] = ()) -> None:
    """Raise UsageError for dimensions that the model does not have, or no longer has by these `facts` (``N=2k``)."""
    from ..engine.preparation.overrides import require_dimensions  # slow to import, and `--help` imports this module

    for fact in facts:
        name, _, size = (part.strip() for part in fact.partition("="))
        for option, given in (("range", sizes.occurring), ("typical", sizes.typical)):
            if name in given and not name.endswith(">"):
                raise UsageError(f"--{option}: --dim says that {name!r} is {size}; give the size of what is in {size}")
    require_dimensions(model, "range", sizes.occurring)
    require_dimensions(model, "typical", sizes.typical)


def _find_refusal(graph: OperatorGraph, sizes: Mapping[str, int]) -> str:
    """Why a model does not run on these sizes, whatever the values of its inputs; "" if nothing says so."""
    from ..lowering.program.requirements import list_requirements

    for requirement, guards in list_requirements(graph.at_call):
        if not guards and not requirement.relation.holds(sizes):
            return requirement.text
    return ""


def _parse(option: str, facts: Iterable[str]) -> Iterable[tuple[str, Sequence[int]]]:
    for fact in facts:
        match = _FACT.fullmatch(fact)
        if match is None or (option == "typical" and not (match[5] or "").isdecimal()):
            example = "range such as H=32..1280:32 or N=1,4,16" if option == "range" else "size such as H=640"
            raise OptionError(option, f"{fact!r} is no {example}")
        if match[5]:
            yield match[1], tuple(dict.fromkeys(map(int, match[5].split(","))))
            continue
        first, last, step = int(match[2]), int(match[3]), int(match[4] or 1)
        if last < first or step < 1:
            raise OptionError(option, f"{fact!r} has no sizes")
        yield match[1], range(first, last + 1, step)


def _text(sizes: Sequence[int]) -> str:
    return f"{sizes.start}..{sizes[-1]}:{sizes.step}" if isinstance(sizes, range) else ",".join(map(str, sizes))
