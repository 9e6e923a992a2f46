"""Choosing by measurement: candidates for the result are timed in ONNX Runtime beside the original."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from shutil import rmtree
from typing import Any

import onnx_ir as ir
import onnxruntime

from ..costmodels.device import HOST
from ..costmodels.measuring.measurement import Measurement
from ..costmodels.measuring.profile import ProfileDatabase
from ..costmodels.runtime import NONE as NO_FUSION
from ..engine.choices import CostName
from ..engine.egraph.worker import Worker
from ..engine.onnx.model import Model, write
from ..engine.onnx.nodes import layer_nodes
from ..engine.operator_graph import operator_graph
from ..engine.preparation.overrides import override_shapes
from ..engine.shapes.inference import infer
from ..engine.verification.runs.source import model_file
from ..extract.partition.canonical_key import subgraph_key, subgraph_text
from ..ir.graph import OperatorGraph
from ..lowering.running.onnx_runtime import OperatorSeconds, RuntimeContest
from ..lowering.running.turns import Estimate
from ..rules.loader import load_selection
from ..support.deadlines import seconds_left
from ..support.errors import EqfuseError
from ..support.processor import processor_name
from ..support.scratch import scratch_folder
from .clock import Clock
from .extract import Chosen, copy_model, criteria_for, extract_model, without_bodies
from .options import MeasureOptions, Options
from .saturate import Saturated, apply_rules


def keep_operator_times(
    contest: RuntimeContest, model: Model, file: Path, shapes: Mapping[str, tuple[int, ...]], seconds: float
) -> None:
    """Measure the operators of a model on one thread, for about `seconds` seconds.

    `file` is the place of the model to run, `shapes` are those of the inputs that it runs on. Raises EqfuseError.
    """
    named = override_shapes(_name_nodes(model), shapes)
    write(named, file)
    graph = operator_graph(named, infer(named))
    ProfileDatabase.open().add(*_measurements(graph, contest.profile(file, seconds)))


def _measurements(graph: OperatorGraph, times: OperatorSeconds) -> Iterator[Measurement]:
    versions = {"onnxruntime": onnxruntime.__version__}
    for number, operator in enumerate(graph.operators):
        types = [graph.values[value].type for value in (*operator.inputs, *operator.outputs) if value is not None]
        key = subgraph_key(graph, (number,))
        if key is not None and operator.name in times and all(type_ is not None and type_.is_static for type_ in types):
            text = subgraph_text(graph, (number,))
            yield Measurement.of_times(key, HOST, times[operator.name], versions, subgraph=text)


def _name_nodes(model: Model) -> Model:
    """The model with another name for each node: some models have nodes without a name, or of the same name."""
    copy = replace(model, ir=model.ir.clone(), path=None)
    for number, node in enumerate(copy.graph):
        node.name = f"eqfuse.{number}"
    return copy


ORIGINAL = "original"
NOTICEABLE = 0.01
"""The least difference of ratios that counts: equal models differ by as much, by the place of their memory."""
_SEARCH_SHARE = 0.65
"""Share of the budget for finding candidates; the rest times the best of them again, without the luck that made them
the best."""
_CANDIDATE_SHARE = 0.1
"""Share of the budget for timing one candidate for the first time."""
_PROFILE_SHARE = 0.03
"""Share of the budget for the times of single operators."""
_FINALISTS, _ROUNDS = 3, 3
_EXPLORING = "explore"
"""The ruleset of the rules that a cost model decides upon; the others are always an improvement."""


@dataclass(frozen=True)
class TimedCandidate:
    """A candidate for the result. `ratio` is its time over that of the original, pair by pair; None if it was not
    timed, for the reason in `problem`."""

    name: str
    layers: int
    ratio: Estimate | None
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; unknown limits are null."""
        ratio = asdict(self.ratio) if self.ratio is not None else {}
        numbers = {name: number if isfinite(number) else None for name, number in ratio.items()}
        return {**asdict(self), "ratio": numbers or None}


@dataclass(frozen=True)
class Timings:
    """The candidates that were timed, and the name of the `chosen` one, or `ORIGINAL`, which has `layers` layers.

    `clock` is "cpu" on one thread and "wall" on several; `runtime` is ONNX Runtime's version.
    """

    chosen: str
    layers: int
    candidates: tuple[TimedCandidate, ...]
    input_shapes: dict[str, tuple[int, ...]]
    threads: int
    processor: str
    runtime: str
    seconds: float

    @property
    def clock(self) -> str:
        """``cpu`` or ``wall``."""
        return "cpu" if self.threads == 1 else "wall"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        candidates = [each.as_dict() for each in self.candidates]
        return {**asdict(self), "candidates": candidates, "clock": self.clock}


def choose(layers: int, candidates: Sequence[TimedCandidate]) -> TimedCandidate | None:
    """The candidate to write: the fastest one beyond noise, of equally fast ones that with the fewest layers.

    If none is faster than the original, which has `layers` layers: the one with the fewest layers of those that
    have fewer and are not slower. None if the original is best.
    """
    ratios = {candidate: candidate.ratio for candidate in candidates if candidate.ratio is not None}
    faster = {c: r for c, r in ratios.items() if r.upper < 1.0 and r.median <= 1.0 - NOTICEABLE}
    least = min((ratio.median for ratio in faster.values()), default=inf)
    best = [c for c, ratio in faster.items() if ratio.median <= least + NOTICEABLE]
    smaller = [c for c, ratio in ratios.items() if c.layers < layers and ratio.upper <= 1.0 + NOTICEABLE]
    return min(best or smaller, key=lambda c: (c.layers, ratios[c].median), default=None)


def choose_finalists(layers: int, candidates: Sequence[TimedCandidate]) -> list[TimedCandidate]:
    """The candidates to time again: the fastest, and those with the fewest layers that may be as fast; if none is
    faster than the original, those with the fewest layers that may be as fast as the original."""
    ratios = {candidate: candidate.ratio.median for candidate in candidates if candidate.ratio is not None}
    fastest = min(ratios, key=ratios.__getitem__, default=None)
    if fastest is None:
        return []
    is_faster = ratios[fastest] <= 1.0 - NOTICEABLE
    bound = ratios[fastest] + 2 * NOTICEABLE if is_faster else 1.0 + NOTICEABLE
    near = [c for c, ratio in ratios.items() if ratio <= bound and (is_faster or c.layers < layers)]
    near.sort(key=lambda candidate: (not (is_faster and candidate is fastest), candidate.layers, ratios[candidate]))
    return near[:_FINALISTS]


def measure_candidates(
    saturated: Saturated, options: Options, settings: MeasureOptions, clock: Clock
) -> tuple[Chosen, Timings]:
    """The graph that is fastest when it runs, among candidates and the original, and the timings.

    Raises EqfuseError if the original does not run in ONNX Runtime.
    """
    assert settings.measure is not None
    model, threads = saturated.original, settings.threads or 1
    original = model.source
    with (
        clock.phase("measure"),
        model_file(original) as path,
        scratch_folder("measure") as folder,
        RuntimeContest(path, saturated.samples, options.seed, threads) as contest,
    ):
        try:
            shapes = contest.input_shapes(options.verification_seconds)
        except EqfuseError as error:
            raise EqfuseError(f"{model.label}: nothing was measured: {error}; --inputs gives other inputs") from None
        timed = replace(saturated, sizes=_sizes(model, shapes))
        budget = settings.measure
        if options.time_limit is not None:
            budget = min(budget, seconds_left(saturated.deadline))
        search = _Search(timed, options, contest, shapes, threads, Path(folder), clock, budget)
        search.run()
        chosen = search.conclude()
        taken = time.monotonic() - search.started
    name = chosen.name if chosen is not None else ORIGINAL
    timings = Timings(
        name, search.layers, search.timed, shapes, threads, processor_name(), onnxruntime.__version__, taken
    )
    result = search.candidates[0].chosen if chosen is None else chosen.chosen
    assert result is not None
    if chosen is None:
        result = replace(result, choice=replace(result.choice, model=copy_model(model)))
    return result, timings


@dataclass(eq=False)
class _Candidate:
    """A candidate in a `folder` of its own; its costs may assume other `sizes` than usual.

    `is_reduced`: some groups of rules are left out. `again` are the ratios that decide, `first` those before. `chosen`
    is None once it is ruled out: e-graphs are large.
    """

    name: str
    layers: int
    options: Options
    sizes: Mapping[str, int]
    is_reduced: bool
    folder: Path
    chosen: Chosen | None
    first: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    problem: str = ""

    @property
    def path(self) -> Path:
        return self.folder / "model.onnx"

    def drop(self) -> None:
        """Free its memory and its files."""
        self.chosen = None
        rmtree(self.folder, ignore_errors=True)

    @property
    def timed(self) -> TimedCandidate:
        """The candidate with its ratio: that of the last rounds alone, as soon as these are enough for limits."""
        ratios = self.again if isfinite(Estimate.of(self.again or (1.0,)).upper) else self.first + self.again
        return TimedCandidate(self.name, self.layers, Estimate.of(ratios) if ratios else None, self.problem)


@dataclass
class _Search:
    """Makes candidates, those first that are most likely the fastest, and times them until the budget is used.

    `started` is on the clock of time.monotonic, `budget` in seconds.
    """

    saturated: Saturated
    options: Options
    contest: RuntimeContest
    shapes: Mapping[str, tuple[int, ...]]
    threads: int
    folder: Path
    clock: Clock
    budget: float
    started: float = field(default_factory=lambda: time.monotonic())
    candidates: list[_Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.layers = _count_layers(self.saturated.original)
        self.structures = {_structure(self.saturated.original)}

    @property
    def timed(self) -> tuple[TimedCandidate, ...]:
        return tuple(candidate.timed for candidate in self.candidates)

    @property
    def deadline(self) -> float:
        """The time at which the search for candidates ends."""
        return self.started + _SEARCH_SHARE * self.budget

    def run(self) -> None:
        """Time a candidate for each cost model, then leave out groups of rules from the best one."""
        first = self.add(_cost_name(self.options), replace(self.saturated, sizes={}), self.options)
        self.keep_times(self.saturated.original)
        if first is not None:
            self.keep_times(first)
        for options in self.other_costs():
            if not seconds_left(self.deadline):
                return
            limited = replace(options, time_limit=min(options.search_seconds, seconds_left(self.deadline) or 1.0))
            again = replace(self.saturated, deadline=time.monotonic() + limited.search_seconds)
            self.add(f"{_cost_name(options)}{', timed sizes' if again.sizes else ''}", again, limited)
        self.leave_groups_out()

    def other_costs(self) -> Iterator[Options]:
        """The options with other cost models, and for the timed sizes with the same one."""
        own = self.options
        if self.saturated.sizes:
            yield own
        if own.runtime != NO_FUSION:
            yield replace(own, runtime=NO_FUSION)
        others: tuple[tuple[CostName, str], ...] = ("profile", HOST), ("roofline", HOST), ("flops", own.device)
        for cost, device in others:
            if (cost, device) != (own.cost, own.device):
                yield replace(own, cost=cost, device=device)

    def leave_groups_out(self) -> None:
        """Leave out one group of rules after another, for good if that is faster."""
        for group in _groups(self.saturated, self.options):
            left = seconds_left(self.deadline)
            if not left:
                return
            best = self.best or self.candidates[0]
            options = replace(
                best.options, skip=(*best.options.skip, *group.rules), time_limit=min(left, self.options.search_seconds)
            )
            name = f"{best.name}{' and ' if best.is_reduced else ', without '}{group.name}"
            try:
                with Worker(options.selection) as worker:
                    saturated = apply_rules(self.saturated, options, worker, self.clock)
                self.add(name, replace(saturated, sizes=best.sizes), options, is_reduced=True)
            except EqfuseError as error:  # some rules do not work without others
                self.clock.tell("measure", f"{name}: {error}")

    @property
    def best(self) -> _Candidate | None:
        """The candidate that would be chosen now; None for the original."""
        return self.find(choose(self.layers, self.timed))

    def find(self, timed: TimedCandidate | None) -> _Candidate | None:
        """The candidate of that name."""
        return next((each for each in self.candidates if timed is not None and each.name == timed.name), None)

    def add(self, name: str, saturated: Saturated, options: Options, *, is_reduced: bool = False) -> Model | None:
        """Extract a candidate and time it; its model. None if it is the original, or was timed already."""
        criteria = criteria_for(options, saturated)
        choice = extract_model(saturated, criteria, options, self.clock)
        structure = _structure(choice.model)
        is_new = structure not in self.structures
        if self.candidates and not is_new:
            return None
        self.structures.add(structure)
        folder = self.folder / str(len(self.candidates))
        candidate = _Candidate(
            name, _count_layers(choice.model), options, saturated.sizes, is_reduced, folder,
            Chosen(saturated, choice, options), problem="" if is_new else "is the original",
        )  # fmt: skip
        self.candidates.append(candidate)
        if not is_new:
            return None
        folder.mkdir()
        write(choice.model, candidate.path)
        best = choose(self.layers, [each.timed for each in self.candidates])
        least, layers = (best.ratio.median, best.layers) if best is not None and best.ratio else (1.0, self.layers)
        limit = least + (NOTICEABLE if candidate.layers < layers else -NOTICEABLE)
        candidate.first = self.time(candidate, _CANDIDATE_SHARE * self.budget, limit)
        for each in self.candidates[1:]:
            if each not in self.finalists:
                each.drop()
        return choice.model

    def time(self, candidate: _Candidate, seconds: float, limit: float) -> tuple[float, ...]:
        """Ratios of a candidate, timed for at most `seconds`, or until they are known to be above the limit."""
        try:
            ratios = self.contest.time_pairs(candidate.path, seconds, limit)
        except EqfuseError as error:
            candidate.problem, candidate.first, candidate.again = str(error), (), ()
            return ()
        self.clock.tell("measure", f"{candidate.name}: {Estimate.of(ratios).median:.3f} of the original's time")
        return ratios

    @property
    def finalists(self) -> list[_Candidate]:
        """The candidates that may be the best."""
        names = {each.name for each in choose_finalists(self.layers, [c.timed for c in self.candidates if c.chosen])}
        return [candidate for candidate in self.candidates if candidate.name in names]

    def conclude(self) -> _Candidate | None:
        """Time the best again, and choose by these times alone; None for the original."""
        finalists = self.finalists
        end = self.started + self.budget
        for turn in range(_ROUNDS):
            for finalist in finalists:
                left = seconds_left(end) / (len(finalists) * (_ROUNDS - turn))
                if left and not finalist.problem:
                    finalist.again += self.time(finalist, left, 1.0 + NOTICEABLE)
        chosen = self.find(choose(self.layers, [finalist.timed for finalist in finalists]))
        if chosen is not None and chosen is not self.candidates[0] and chosen.chosen is not None:
            self.keep_times(chosen.chosen.choice.model)
        return chosen

    def keep_times(self, model: Model) -> None:
        """Measure the operators of a model for `--cost profile`. A failure must not lose the result."""
        if self.threads == 1:  # costs are those of one thread
            try:
                file, seconds = self.folder / "operators.onnx", _PROFILE_SHARE * self.budget
                keep_operator_times(self.contest, model, file, self.shapes, seconds)
            except EqfuseError as error:
                self.clock.tell("measure", f"times of operators are not kept: {error}")


def _cost_name(options: Options) -> str:
    if options.cost == "flops":
        return options.cost
    return f"{options.cost} of {options.device}{', no fusion' if options.runtime == NO_FUSION else ''}"


def _sizes(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The size of each symbolic dimension of an input in these shapes."""
    dimensions: list[tuple[int | ir.SymbolicDim, int]] = []
    for value in model.graph.inputs:
        dimensions += zip(value.shape or (), shapes.get(value.name or "", ()), strict=False)
    return {str(d.value): size for d, size in dimensions if not isinstance(d, int) and d.value is not None}


def _count_layers(model: Model) -> int:
    return sum(1 for _ in layer_nodes(without_bodies(model)))


def _structure(model: Model) -> tuple[str, ...]:
    """The properties of a model that its time depends on: its nodes, and the types of its weights."""
    weights = {name: f"{v.dtype}{v.shape}" for name, v in model.graph.initializers.items()}
    return tuple(
        f"{node.domain}.{node.op_type} {[v and (v.name, weights.get(v.name or '')) for v in node.inputs]} "
        f"{[v.name for v in node.outputs]} {sorted(map(str, node.attributes.values()))}"
        for node in model.graph
    )


@dataclass(frozen=True)
class _Group:
    """Rules that may be left out, by tags that select them."""

    name: str
    rules: tuple[str, ...]


def _groups(saturated: Saturated, options: Options) -> list[_Group]:
    """All rules that a cost model decides upon, then the topics of the rules that matched: topics with most matches of
    such rules first."""
    rules = load_selection(options.selection)
    counts: Counter[str] = Counter()
    for statistics in saturated.egraph.saturation.matched:
        rule = rules.by_name.get(statistics.name)
        if rule is not None:
            counts[rule.topic] += statistics.matches if rule.ruleset == _EXPLORING else 0
    exploring = tuple(dict.fromkeys(rule.base for rule in rules.rules if rule.ruleset == _EXPLORING))
    topics = [_Group(topic, (topic,)) for topic, _ in counts.most_common()]
    return [_Group("exploration", exploring), *topics] if topics else []
