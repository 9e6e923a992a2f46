"""Other ways to compile the operators of a kernel, for one that is slow or wrong: ``graph, kernel -> variants``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

from ...costmodels.fused import ANCHORS
from ...costmodels.measuring.measurement import canonical_json
from ...ir.graph import OperatorGraph
from ...ir.operators import ELEMENTWISE
from ...support.json_types import convert_json, parse_json
from .messages import Answer, Choices

Members = tuple[int, ...]
RUNTIME = "it measures faster there"
"""The reason of a kernel that could be compiled and is left to ONNX Runtime."""
_FIELD = "variant"
_ALGORITHM = "algorithm"
"""How the sites are named at which a schedule rule chooses between algorithms, not between tiles."""
_WITHOUT_NEXT = frozenset({"fallback", "plain", "winograd"})
"""Rules of schedules without another rule behind them that is worth a try; of a convolution by Winograd's filters the
other one is a decision."""


@dataclass(frozen=True)
class Variant:
    """A way to compile a kernel: divided into several, by other decisions, without schedule rules, in another layout,
    or by ONNX Runtime.

    `cuts` are the places among its operators, ascending, where another kernel begins. With `plain` the feature maps
    that it reads and writes are stored in ONNX's order, for their other readers and writers, too.
    """

    cuts: tuple[int, ...] = ()
    decisions: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()
    plain: bool = False
    runtime: bool = False

    def __str__(self) -> str:
        if self.runtime:
            return "ONNX Runtime"
        if self.plain:
            return "feature maps in ONNX's order"
        if self.cuts:
            return f"divided into {len(self.cuts) + 1} kernels"
        return f"without {', '.join(self.without)}" if self.without else ", ".join(label for _, label in self.decisions)

    @property
    def text(self) -> str:
        """Canonical JSON, under which the profile database keeps its times."""
        return canonical_json({_FIELD: asdict(self)})

    @staticmethod
    def of(text: str) -> Variant | None:
        """The variant of such a text; None if it is another one, of a search for schedules."""
        try:
            return convert_json(parse_json(text)[_FIELD], Variant)
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class KernelPartition:
    """A partition of the optimised graph: its kernels in running order, and the choices that are made for them."""

    kernels: tuple[Members, ...]
    choices: Choices = field(default_factory=Choices)

    def vary(self, graph: OperatorGraph, calls: Sequence[Members], task: str, variant: Variant) -> KernelPartition:
        """The same with a variant of the kernel of a `task`, which has these operators in each of its calls."""
        choices = self.choices
        if variant.plain:
            maps = choices.plain.union(*(values_at_ends(graph, call) for call in calls))
            return replace(self, choices=replace(choices, plain=maps))
        if variant.runtime:
            members = {member: RUNTIME for call in calls for member in call}
            return replace(self, choices=replace(choices, runtime={**choices.runtime, **members}))
        if variant.cuts:
            called = {member: call for call in calls for member in call}
            kernels = [part for kernel in self.kernels for part in _cut(kernel, called, variant.cuts)]
            return replace(self, kernels=tuple(kernels))
        decisions = {**choices.decisions.get(task, {}), **dict(variant.decisions)}
        without = choices.without.get(task, frozenset()) | set(variant.without)
        return replace(
            self,
            choices=replace(
                choices,
                decisions={**choices.decisions, task: decisions},
                without={**choices.without, task: without},
            ),
        )


def list_variants(
    graph: OperatorGraph, members: Members, answer: Answer, last: Collection[int] = ()
) -> Iterator[Variant]:
    """The variants to try for a kernel that was compiled with this `answer`, the likeliest first.

    Parts that have at most one anchor op and either move data or compute; its schedule rule's other algorithms; the
    next rule; each operator by itself; ONNX's order for maps, if the kernel reads or writes such that are stored with
    their channels `last`; and at the end, ONNX Runtime.
    """
    apart = tuple(range(1, len(members)))
    parts = tuple(place for place in apart if _begins_part(graph, members, place))
    if parts:
        yield Variant(cuts=parts)
    for site in answer.trace:
        if site.name.rpartition(".")[2].startswith(_ALGORITHM):
            others = (option.label for number, option in enumerate(site.options) if number != site.chosen)
            yield from (Variant(decisions=((site.name, label),)) for label in others)
    rule = answer.rule.partition(" ")[0]
    if rule not in _WITHOUT_NEXT:
        yield Variant(without=(rule,))
    if apart and apart != parts:
        yield Variant(cuts=apart)
    if not values_at_ends(graph, members).isdisjoint(last):
        yield Variant(plain=True)
    yield Variant(runtime=True)


def values_at_ends(graph: OperatorGraph, members: Members) -> frozenset[int]:
    """The values that a kernel reads and writes."""
    return frozenset((*graph.inputs_of(members), *graph.outputs_of(members)))


def _begins_part(graph: OperatorGraph, members: Sequence[int], place: int) -> bool:
    """Whether a part begins at a place: at another anchor op, and where moving data begins or ends."""
    kinds = [_kind(graph.operators[member].op) for member in members]
    moves = (kinds[place] == "moves") != (kinds[place - 1] == "moves")
    return moves or (kinds[place] == "anchor" and "anchor" in kinds[:place])


def _kind(op: str) -> str:
    return "anchor" if op in ANCHORS else "computes" if op in ELEMENTWISE else "moves"


def _cut(kernel: Members, called: Mapping[int, Members], cuts: tuple[int, ...]) -> Iterator[Members]:
    """A kernel, in parts if it is a call of the one to cut."""
    call = next((called[member] for member in kernel if member in called), None)
    if call is None:
        yield kernel
        return
    yield from (kernel[a:b] for a, b in pairwise((0, *cuts, len(kernel))))
