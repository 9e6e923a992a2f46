"""Compiled kernels measured, and those that are slow or wrong compiled in another way: ``Attempt -> Attempt``.

A kernel that takes longer than it should is tried in other ways (`lowering/kernels/variants.py`), each in a separate
bundle whose calls are made in turns with those of the first. The fastest variant stays. The profile database keeps all
times, so the next compilation takes the best variant at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ...costmodels.measuring.measurement import Measurement
from ...costmodels.measuring.profile import ProfileDatabase
from ...extract.partition.canonical_key import subgraph_key, subgraph_text
from ...lowering.base.toolchain import versions
from ...lowering.kernels.variants import KernelPartition, Members, Variant
from ...lowering.plan.manifest import KernelTrials, MeasurementSummary, Trial
from ...lowering.tuning.suspects import SLOW, Suspect, estimate, find_suspects, make_suspect, sum_apart
from ...support.database import DatabaseError
from ...support.errors import EqfuseError
from ...support.store import source_digest

if TYPE_CHECKING:
    from ...ir.graph import OperatorGraph
    from ...lowering.kernels.compilation import CompiledKernels
    from ...lowering.plan.kernel_facts import KernelFacts
    from ...lowering.running.kernel_times import CallTime

CLEARLY = 0.95
"""A variant replaces a kernel if it takes at most this share of its time: less may be noise."""
WORTH_RUNTIME = 10.0
"""ONNX Runtime gets a kernel that is right only if it is more than this many times as fast as the best code of eqfuse:
a bundle with kernels alone needs nothing else to run. It is a preference, not a measurement."""
TRIAL_SECONDS = 20.0
"""Seconds after which no further variants are tried, once each slow kernel had one: `eqfuse tune` takes the time for
more. A bundle of 400 operators with other kernels takes 5 to 10 s to build, to check and to time."""
LOOP_SHARE = 0.1
"""A plain loop that takes more than this share of the time of all steps is measured beside ONNX Runtime's operator."""
_SOURCES = ("lowering/schedules", "lowering/kernels", "lowering/compute", "costmodels/devices")
"""The packages that determine the code of a variant."""


@dataclass(frozen=True)
class Attempt:
    """A bundle in a folder, its kernels, and the partition (kernels and decisions) that it was made of."""

    partition: KernelPartition
    folder: Path
    prepared: CompiledKernels
    facts: tuple[KernelFacts, ...]


class BundleBuilder(Protocol):
    """Builds, measures and checks bundles for a target."""

    def build(self, partition: KernelPartition) -> Attempt:
        """A bundle of a partition, in a folder of its own. Raises EqfuseError."""
        ...

    def time(self, attempts: Sequence[Attempt]) -> Sequence[Mapping[str, CallTime]]:
        """The time of a call of each step, in turns, by its symbol. Raises EqfuseError."""
        ...

    def find_wrong(
        self, attempt: Attempt, symbols: Collection[str], strict: Collection[str], *, may_round: bool
    ) -> Mapping[str, str]:
        """The wrong kernels, each with how its results differ from those of its operators, in words; `strict` ones must
        not round more than these, or with `may_round` little."""
        ...


# --- trying variants


@dataclass
class _Trials:
    """The variants that were tried for a suspect, and those that are left.

    `costs` are ratios of their times to the suspect's; for a wrong suspect, which has no time, seconds; infinite if
    they were not timed.
    """

    suspect: Suspect
    left: list[Variant]
    costs: dict[Variant, float] = field(default_factory=dict)
    record: list[tuple[Variant, Trial]] = field(default_factory=list)

    @property
    def best(self) -> Variant | None:
        """The variant to take; None if the kernel stays."""
        return _choose(self.costs, inf if self.suspect.problem else 1.0)

    @property
    def is_good(self) -> bool:
        """Whether a variant was found that is as fast as expected, so that others need not be tried."""
        slowest = SLOW * self.suspect.estimate
        return not self.suspect.problem and any(c * self.suspect.seconds <= slowest for c in self.costs.values())

    def add(self, variant: Variant, cost: float, seconds: float | None) -> None:
        """Note a variant that is right."""
        self.costs[variant] = cost
        self.record.append((variant, Trial(str(variant), seconds)))

    def refuse(self, variant: Variant, problem: str) -> None:
        """Note a variant that is wrong, or failed."""
        self.record.append((variant, Trial(str(variant), None, problem)))

    def summary(self) -> KernelTrials:
        """The trials, for the manifest."""
        return _summary(self.suspect, self.best, tuple(trial for _, trial in self.record))


def _choose(costs: Mapping[Variant, float], usual: float) -> Variant | None:
    """The variant to take instead of a kernel that costs the `usual`; None if it stays."""
    weighed = {variant: cost * (WORTH_RUNTIME if variant.runtime else 1.0) for variant, cost in costs.items()}
    best = min(weighed, key=weighed.__getitem__, default=None)
    return best if best is not None and (usual == inf or weighed[best] <= CLEARLY * usual) else None


def try_variants(
    builder: BundleBuilder, base: Attempt, suspects: Sequence[Suspect], *, checks: bool, times: bool
) -> list[_Trials]:
    """Try the variants of suspects; each bundle holds the next one of every suspect.

    With `checks` a variant that is wrong by itself is not taken. Without `times` the first right one is taken. After
    `TRIAL_SECONDS` only wrong kernels get further ones.
    """
    graph, end = base.prepared.graph, time.monotonic() + TRIAL_SECONDS
    trials = [_Trials(suspect, suspect.list_variants(base.prepared)) for suspect in suspects]
    while active := [each for each in trials if each.left and not each.is_good and (times or not each.costs)]:
        if time.monotonic() > end and all(each.record and not each.suspect.problem for each in trials):
            break
        wanted = [(each, each.left.pop(0)) for each in active]
        try:
            attempt = builder.build(vary(graph, base.partition, [(each.suspect, variant) for each, variant in wanted]))
            _compare(builder, base, attempt, wanted, checks=checks, times=times)
        except EqfuseError as error:
            for each, variant in wanted:
                each.refuse(variant, str(error))
    return trials


def vary(
    graph: OperatorGraph, partition: KernelPartition, chosen: Iterable[tuple[Suspect, Variant | None]]
) -> KernelPartition:
    """The partition with a variant of each suspect, unless that is None."""
    for suspect, variant in chosen:
        if variant is not None:
            partition = partition.vary(graph, suspect.calls, suspect.task, variant)
    return partition


def _compare(
    builder: BundleBuilder,
    base: Attempt,
    attempt: Attempt,
    wanted: Sequence[tuple[_Trials, Variant]],
    *,
    checks: bool,
    times: bool,
) -> None:
    """Note the results of an attempt for its variants. One that has a wrong kernel is not timed: it may crash."""
    affected = {each.suspect: each.suspect.affected_by(variant, base.prepared) for each, variant in wanted}
    names = {suspect: _names(attempt, members) for suspect, members in affected.items()}
    every = {name for each in names.values() for name in each}
    strict = {name for suspect, own in names.items() if suspect.problem or suspect.strict for name in own}
    wrong = builder.find_wrong(attempt, every, strict, may_round=times) if checks else {}
    is_base_right = not any(each.suspect.problem for each, _ in wanted)
    measured: Sequence[Mapping[str, CallTime]] = ()
    if times and not wrong:
        measured = builder.time([base, attempt] if is_base_right else [attempt])
    for each, variant in wanted:
        members, calls = each.suspect.members, len(each.suspect.calls)
        fault = next((wrong[name] for name in names[each.suspect] if name in wrong), None)
        if fault is not None:
            each.refuse(variant, fault)
        elif not measured:
            each.add(variant, inf, None)
        else:
            seconds = step_seconds(attempt, measured[-1], affected[each.suspect])
            before = 1.0
            if is_base_right:
                before = step_seconds(base, measured[0], members)
                seconds -= step_seconds(base, measured[0], affected[each.suspect] - members)
            each.add(variant, seconds / before, seconds / calls)


def step_seconds(attempt: Attempt, times: Mapping[str, CallTime], members: frozenset[int]) -> float:
    """Seconds of the steps that run only these operators, in one run of the model."""
    return sum(times[name].seconds for name in _names(attempt, members))


def _names(attempt: Attempt, members: frozenset[int]) -> list[str]:
    """The steps that run only these operators, a name for each call."""
    return [name for name, inside in attempt.prepared.named_steps() if members.issuperset(inside)]


def _summary(suspect: Suspect, chosen: Variant | None, trials: tuple[Trial, ...]) -> KernelTrials:
    return KernelTrials(
        suspect.facts.symbol, suspect.facts.operators, suspect.seconds, suspect.estimate, suspect.problem, trials,
        str(chosen) if chosen is not None else "",
    )  # fmt: skip


# --- the whole choice


def choose_kernels(
    builder: BundleBuilder, base: Attempt, wrong: Mapping[str, str], memory: Memory | None, *, checks: bool
) -> tuple[Attempt, MeasurementSummary]:
    """The bundle whose kernels are right and measure best, beginning with a `base` of which some may be `wrong`.

    Without a `memory` nothing is measured: a wrong kernel gets the first variant that is right, and does not round more
    than its operators do. With it the model may have kernels that do, and has to be verified again.
    """
    started = time.monotonic()
    record: tuple[KernelTrials, ...] = ()
    summary = MeasurementSummary(0, 0.0)
    mended = frozenset[int]()
    if wrong:
        blamed = (facts for facts in base.facts if facts.symbol in wrong)
        suspects = [make_suspect(base.prepared, facts, 0.0, wrong[facts.symbol]) for facts in blamed]
        trials = try_variants(builder, base, suspects, checks=checks, times=memory is not None)
        base = builder.build(vary(base.prepared.graph, base.partition, [(each.suspect, each.best) for each in trials]))
        record = tuple(each.summary() for each in trials)
        mended = mended.union(*(suspect.members for suspect in suspects))
    if memory is not None:
        try:
            base, summary = _replace_slow(builder, base, memory, mended, checks=checks)
        except EqfuseError as error:
            summary = replace(summary, problem=str(error))
    return base, replace(summary, seconds=time.monotonic() - started, kernels=record + summary.kernels)


def _replace_slow(
    builder: BundleBuilder, base: Attempt, memory: Memory, mended: frozenset[int], *, checks: bool
) -> tuple[Attempt, MeasurementSummary]:
    """The bundle with slow kernels replaced, and the variants that were tried for each.

    What other models found is not taken for operators whose kernels were wrong and are `mended`.
    """
    graph = base.prepared.graph
    (times,) = builder.time([base])
    memory.keep(base, times)
    found = find_suspects(base.prepared, base.facts, times)
    suspects = [replace(each, strict=not mended.isdisjoint(each.members)) for each in found]
    recalls = {s: known for s in suspects if not s.strict and (known := memory.recall(graph, s)) is not None}
    trials = try_variants(builder, base, [s for s in suspects if s not in recalls], checks=checks, times=True)
    memory.keep_trials(graph, [each for each in trials if not each.suspect.strict])
    chosen = {**{s: recalled.best for s, recalled in recalls.items()}, **{t.suspect: t.best for t in trials}}
    record = [_summary(s, recalled.best, recalled.trials) for s, recalled in recalls.items()]
    record += [each.summary() for each in trials]
    apart = {
        s.facts.symbol: each.seconds
        for s, r in zip([*recalls, *(t.suspect for t in trials)], record, strict=True)
        for each in r.trials
        if each.variant == str(s.apart) and each.seconds is not None
    }
    unfused = sum_apart(base.facts, times, apart)
    partition = vary(graph, base.partition, chosen.items())
    if partition != base.partition:  # each was measured beside others: all together have to be faster, too
        better = builder.build(partition)
        times, after = builder.time([base, better])
        everything = frozenset(range(len(graph.operators)))
        if step_seconds(better, after, everything) < step_seconds(base, times, everything):
            base, times = better, after
        else:
            record = [replace(each, chosen="") for each in record]
    measured = tuple(replace(f, measured=times[f.symbol].seconds if f.symbol in times else None) for f in base.facts)
    fused = sum(f.calls * (f.measured or 0.0) for f in measured)
    base, loops = _replace_loops(builder, base, times)
    summary = MeasurementSummary(len(times), 0.0, (*record, *loops), fused=fused, apart=unfused)
    return replace(base, facts=measured), summary


def _replace_loops(
    builder: BundleBuilder, base: Attempt, times: Mapping[str, CallTime]
) -> tuple[Attempt, list[KernelTrials]]:
    """The bundle with ONNX Runtime for those plain loops that take long and that it is faster at, and all such loops.

    Loops are not what eqfuse is fast at, so it gets no preference here, unlike among kernels.
    """
    whole = step_seconds(base, times, frozenset(range(len(base.prepared.graph.operators))))
    record = []
    for symbol, calls in base.prepared.loops.items():
        seconds, runtime = times[symbol].seconds, Variant(runtime=True)
        if seconds * len(calls) <= LOOP_SHARE * whole:
            continue
        members = frozenset(member for call in calls for member in call)
        try:
            attempt = builder.build(base.partition.vary(base.prepared.graph, calls, "", runtime))
            before, after = builder.time([base, attempt])
        except EqfuseError as error:
            trial, is_faster = Trial(str(runtime), None, str(error)), False
        else:
            theirs = step_seconds(attempt, after, members)
            is_faster = theirs <= CLEARLY * step_seconds(base, before, members)
            trial, base = Trial(str(runtime), theirs / len(calls)), attempt if is_faster else base
        operators = tuple(base.prepared.graph.operators[member].op for member in calls[0])
        record.append(KernelTrials(symbol, operators, seconds, 0.0, "", (trial,), str(runtime) if is_faster else ""))
    return base, record


# --- what earlier compilations measured


@dataclass(frozen=True)
class Recalled:
    """The variants of a kernel that were measured earlier, and the best; None if that is the kernel itself."""

    trials: tuple[Trial, ...]
    best: Variant | None


@dataclass(frozen=True)
class Memory:
    """The times of kernels on a device in the profile database. A failure there is told and has no other effect.

    `device` is its name, with the number of threads if there are several, for costs are those of one thread.
    """

    device: str
    tell: Callable[[str], None]
    known: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @staticmethod
    def of(device: str, threads: int, tell: Callable[[str], None]) -> Memory:
        """The measurements that the profile database has now."""
        name = device if threads == 1 else f"{device}/{threads}"
        try:
            return Memory(name, tell, ProfileDatabase.open().schedules(name, _software()))
        except DatabaseError as error:
            tell(f"earlier measurements are not used: {error}")
            return Memory(name, tell)

    def recall(self, graph: OperatorGraph, suspect: Suspect) -> Recalled | None:
        """The measured variants of a kernel; None without any, or if a slow kernel has to be timed again."""
        seconds_by_variant = self.known.get(subgraph_key(graph, suspect.calls[0]) or "", {})
        seconds = {variant: s for t, s in seconds_by_variant.items() if (variant := Variant.of(t)) is not None}
        usual = seconds.pop(Variant(), inf)
        if not seconds or (suspect.doubted and suspect.apart not in seconds):
            return None
        trials = tuple(Trial(str(variant), each) for variant, each in seconds.items())
        return Recalled(trials, _choose(seconds, usual))

    def keep(self, attempt: Attempt, times: Mapping[str, CallTime]) -> None:
        """Keep the time of each kernel as it was compiled, beside its estimate."""
        graph, calls = attempt.prepared.graph, {call.symbol: call.members for call in attempt.prepared.calls}
        measured = ((facts, times[facts.symbol]) for facts in attempt.facts if facts.symbol in times)
        self._add(
            self._row(graph, calls[facts.symbol], Variant(), each.seconds, each.spread, each.runs, facts)
            for facts, each in measured
        )

    def keep_trials(self, graph: OperatorGraph, trials: Sequence[_Trials]) -> None:
        """Keep the times of variants."""
        self._add(
            self._row(graph, each.suspect.calls[0], variant, trial.seconds)
            for each in trials
            for variant, trial in each.record
            if trial.seconds is not None
        )

    def _row(
        self,
        graph: OperatorGraph,
        members: Members,
        variant: Variant,
        seconds: float,
        spread: float = 0.0,
        runs: int = 1,
        facts: KernelFacts | None = None,
    ) -> Measurement | None:
        key = subgraph_key(graph, members)
        if key is None or seconds <= 0.0:
            return None
        return Measurement(
            key, self.device, seconds, spread, runs, _software(), variant.text, subgraph_text(graph, members),
            template=facts.template if facts is not None else "",
            estimate=estimate(facts) if facts is not None else 0.0,
        )  # fmt: skip

    def _add(self, rows: Iterable[Measurement | None]) -> None:
        try:
            ProfileDatabase.open().add(*(row for row in rows if row is not None))
        except DatabaseError as error:
            self.tell(f"times of kernels are not kept: {error}")


def _software() -> dict[str, str]:
    """The versions and sources that determine the code of a variant, and the software that runs it."""
    return {**versions(), "kernels": source_digest(*_SOURCES)[:12]}
