"""Kernels of a measured bundle that may be slower than they need be: ``times -> suspects``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ...extract.partition.templates.catalogue import TEMPLATES
from ..kernels.compilation import CompiledKernels
from ..kernels.variants import Members, Variant, list_variants, values_at_ends
from ..plan.kernel_facts import KernelFacts
from ..running.kernel_times import CallTime

SLOW = 2.0
"""A kernel is slow if it takes more than this many times its estimate. The estimate is multiplied by the lower quartile
of measured over estimated times of the model's kernels, if that is above 1: a device file may promise more than the
machine can do, or its clock may be low just now."""
SLOW_JOINED = 1.3
"""The same factor for a kernel of several anchor ops: its parts may be faster by themselves."""
NOTICEABLE_SHARE = 0.02
"""A slow kernel is only looked at if it takes more than this share of the model's time."""
LEAST_LOSS = 10e-6
"""Seconds that a slow kernel has to lose in a run to be looked at: trying costs about a second of compilation."""
JOINED = frozenset(template.name for template in TEMPLATES if template.is_intensive)
"""Templates of kernels with several anchor ops."""
DOUBTED_SHARE = 0.01
"""The share of a model's time that fused kernels may seem to lose, all together, without being compared with their
operators by themselves."""
_LEAST_ALIKE = 3
"""Kernels of one schedule rule that say how predictions of that rule go."""


@dataclass(frozen=True)
class Suspect:
    """A distinct kernel that is slow or wrong, and its calls. `seconds` are those of a call, and so is `estimate`; they
    are 0 if the kernel is wrong, for which `problem` has the reason. One that is only `doubted` is compared with its
    operators by themselves. A `strict` one stands where a kernel was wrong: its variants must not round more."""

    facts: KernelFacts
    task: str
    calls: tuple[Members, ...]
    seconds: float
    estimate: float
    problem: str = ""
    doubted: bool = False
    strict: bool = False

    @property
    def apart(self) -> Variant:
        """Its operators by themselves."""
        return Variant(cuts=tuple(range(1, len(self.calls[0]))))

    @property
    def members(self) -> frozenset[int]:
        """The operators of all calls."""
        return frozenset(member for call in self.calls for member in call)

    def list_variants(self, prepared: CompiledKernels) -> list[Variant]:
        """The variants to try for it, the likeliest first."""
        if self.doubted:
            return [self.apart]
        last = () if self.problem else prepared.channels_last  # a layout is judged with its neighbours: not when wrong
        return list(list_variants(prepared.graph, self.calls[0], prepared.answers[self.facts.symbol], last))

    def affected_by(self, variant: Variant, prepared: CompiledKernels) -> frozenset[int]:
        """The operators whose time a variant changes: those of all calls, and for another layout of maps the kernels
        that read or write them, too."""
        if not variant.plain:
            return self.members
        maps = frozenset[int]().union(*(values_at_ends(prepared.graph, call) for call in self.calls))
        moved = maps & prepared.channels_last
        kernels = (inside for _, inside in prepared.named_steps())
        return self.members.union(*(k for k in kernels if not moved.isdisjoint(values_at_ends(prepared.graph, k))))


def estimate(facts: KernelFacts) -> float:
    """The seconds of a call that the device model expects; at least what the roofline says."""
    return max(facts.roofline, facts.predicted or 0.0)


def make_suspect(prepared: CompiledKernels, facts: KernelFacts, seconds: float, problem: str = "") -> Suspect:
    """A kernel under suspicion."""
    calls = tuple(call.members for call in prepared.calls if call.symbol == facts.symbol)
    return Suspect(facts, prepared.keys[facts.symbol], calls, seconds, estimate(facts), problem)


def find_suspects(
    prepared: CompiledKernels, facts: Sequence[KernelFacts], times: Mapping[str, CallTime]
) -> list[Suspect]:
    """The slow kernels of a bundle, that which loses most first; then the doubted ones among the others."""
    rows = [(each, times[each.symbol].seconds) for each in facts if each.symbol in times]
    slow = list(_find_slow(rows))
    names = {each.symbol for each, _ in slow}
    doubted = _find_doubted(rows, names)
    return [
        *(make_suspect(prepared, each, seconds) for each, seconds in slow),
        *(replace(make_suspect(prepared, each, seconds), doubted=True) for each, seconds in doubted),
    ]


def sum_apart(facts: Sequence[KernelFacts], times: Mapping[str, CallTime], tried: Mapping[str, float]) -> float:
    """Seconds of one run whose operators are kernels by themselves: of those `tried`, by symbol, as one call was
    measured; of others, as predictions go here."""
    rows = [(each, times[each.symbol].seconds) for each in facts if each.symbol in times]
    usual = _UsualRatios.of(rows)
    apart = ((f, tried.get(f.symbol, usual(f) * f.apart if f.apart else seconds)) for f, seconds in rows)
    return _sum_seconds(list(apart))


Row = tuple[KernelFacts, float]
"""A kernel and the seconds of a call."""


def _sum_seconds(rows: Sequence[Row]) -> float:
    return sum(seconds * facts.calls for facts, seconds in rows)


@dataclass(frozen=True)
class _UsualRatios:
    """The measured over the predicted times of kernels here: the median of all, and of those of each schedule rule."""

    all: float
    of_rules: Mapping[str, float]

    @staticmethod
    def of(rows: Sequence[Row]) -> _UsualRatios:
        ratios: dict[str, list[float]] = {}
        for facts, seconds in rows:
            if facts.predicted and facts.template not in JOINED:
                ratios.setdefault(facts.rule, []).append(seconds / facts.predicted)
        whole = [ratio for each in ratios.values() for ratio in each]
        often = {rule: median(each) for rule, each in ratios.items() if len(each) >= _LEAST_ALIKE}
        return _UsualRatios(median(whole) if whole else 1.0, often)

    def __call__(self, facts: KernelFacts) -> float:
        """The ratio for a kernel: most of the time goes to its anchor, whose rule is the same without the operators
        around it, unless there are several."""
        return self.all if facts.template in JOINED else self.of_rules.get(facts.rule, self.all)


def _find_slow(rows: Sequence[Row]) -> Iterator[Row]:
    ratios = sorted(seconds / estimate(facts) for facts, seconds in rows if estimate(facts) > 0.0)
    usual = max([1.0, *ratios[len(ratios) // 4 :][:1]])
    whole, slow = _sum_seconds(rows), []
    for facts, seconds in rows:
        limit = SLOW_JOINED if facts.template in JOINED else SLOW
        loss = (seconds - limit * usual * estimate(facts)) * facts.calls
        if loss > 0.0 and seconds * facts.calls > NOTICEABLE_SHARE * whole and loss >= LEAST_LOSS:
            slow.append((loss, (facts, seconds)))
    yield from (row for _, row in sorted(slow, key=lambda pair: -pair[0]))


def _find_doubted(rows: Sequence[Row], slow: Collection[str]) -> Iterator[Row]:
    """Kernels of several operators that are not `slow` and take longer than these are predicted to by themselves, as
    predictions go here: that which may lose most first, until the others may lose too little together to look at."""
    usual, whole = _UsualRatios.of(rows), _sum_seconds(rows)
    joined = ((f, seconds) for f, seconds in rows if f.apart > 0.0 and f.symbol not in slow)
    losses = [((seconds - usual(f) * f.apart) * f.calls, (f, seconds)) for f, seconds in joined]
    losses = sorted((pair for pair in losses if pair[0] > 0.0), key=lambda pair: -pair[0])
    left = sum(loss for loss, _ in losses)
    for loss, row in losses:
        if left <= DOUBTED_SHARE * whole:
            break
        left -= loss
        yield row
