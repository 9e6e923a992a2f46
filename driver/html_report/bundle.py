"""The report of a bundle: its kernels over time, the memory that they use, and how near each is to the roofline.

``bundle -> BundleRun (measured here, or predicted) -> page``
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path

from ...costmodels.device import Device, load_device
from ...costmodels.device_file import DeviceError
from ...costmodels.fused import ANCHORS
from ...lowering.bundle.bundle import read_whole_bundle
from ...lowering.bundle.isolation import NO_LIMIT, call_isolated
from ...lowering.plan.arena import align, lives_of, plan_arena
from ...lowering.plan.kernel_facts import KernelFacts, StepFacts, read_steps, read_table
from ...lowering.plan.manifest import LIBRARY, PLAN, Manifest, TuningSummary
from ...lowering.plan.plan import LOOP, Call, Callback, Plan, Step
from ...lowering.plan.sizes import Solution, size_of, upper_bound
from ...lowering.program.c_source import weight_bytes
from ...lowering.running.isolated_model import IsolatedModel, name_crashes
from ...lowering.running.kernel_times import Breakdown, kernel_times
from ...support import units
from ...support.errors import UsageError
from ...support.files import check_destination, staged_file, write_text
from ...support.text import escape_html
from ..bench import KERNEL_REPEAT, choose_inputs
from ..options import BenchOptions
from .ethos import ethos_page
from .markup import Cell, card, element, pair, section, status_line, table, whole_page
from .plots import Axis, Line, Mark, Span, curve, lane, linear, logarithmic, plot, scale

KINDS = ("with an anchor op", "without one", "plain loop", "ONNX Runtime, or a copy")
"""Kinds of steps, each with a colour."""
_LONGEST_TEXT = 160
"""Characters of a list of nodes that the page shows."""


@dataclass(frozen=True)
class Executed:
    """A step of a run: what computes it, of which kind (a place in KINDS), for which operators and nodes of the model.
    `group` is the same for all steps of one kernel."""

    name: str
    kind: int
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    seconds: float
    live: int
    group: int

    @property
    def tip(self) -> str:
        """The step in a few lines."""
        nodes = ", ".join(self.nodes)
        nodes = nodes if len(nodes) <= _LONGEST_TEXT else nodes[: _LONGEST_TEXT - 1] + "\u2026"
        figures = units.seconds(self.seconds), f"memory {units.memory(self.live)}"
        lines = (self.name, " ".join(self.operators), nodes, *figures)
        return "\n".join(filter(None, lines))


@dataclass(frozen=True)
class BundleRun:
    """A bundle with the seconds of each step of its plan: measured (`breakdown`), or else those that were predicted."""

    manifest: Manifest
    plan: Plan
    facts: tuple[KernelFacts, ...]
    steps: tuple[Executed, ...]
    threads: int
    breakdown: Breakdown | None
    device: Device | None

    @property
    def word(self) -> str:
        """What the seconds are."""
        return "predicted" if self.breakdown is None else "measured"

    @cached_property
    def seconds(self) -> float:
        """Seconds of all steps."""
        return sum(step.seconds for step in self.steps) or 1e-9

    @cached_property
    def totals(self) -> Mapping[str, tuple[int, float]]:
        """The number of steps of each name, and their seconds together, in the order of first steps."""
        totals: dict[str, tuple[int, float]] = {}
        for step in self.steps:
            count, seconds = totals.get(step.name, (0, 0.0))
            totals[step.name] = count + 1, seconds + step.seconds
        return totals


def write_bundle_report(path: Path, bundle: Path, options: BenchOptions) -> None:
    """Write the report on a bundle whole. One for an accelerator has its report already, of the simulated run; that for
    an Ethos-U is of Vela's estimates.

    Raises BundleError if the bundle cannot be used, UsageError for options that do not fit it.
    """
    check_destination(path)
    manifest = read_whole_bundle(bundle)
    date = f"{datetime.now():%Y-%m-%d %H:%M}"
    if manifest.ethos_u is not None:
        if options.repeat is not None or options.threads is not None:
            raise UsageError(f"{bundle}: is a program for an Ethos-U, whose cycles Vela estimates; nothing is run here")
        write_text(path, ethos_page(bundle, date, manifest))
        return
    if manifest.dsa is not None:
        from ...lowering.dsa.back_end import REPORT

        with staged_file(path) as staged:
            shutil.copyfile(bundle / REPORT, staged)
        return
    write_text(path, bundle_page(str(bundle), date, run_for_report(bundle, manifest, options)))


def run_for_report(bundle: Path, manifest: Manifest, options: BenchOptions) -> BundleRun:
    """Run a bundle of this machine, step by step; of a C project, the predicted run on its processor."""
    inputs = choose_inputs(options, manifest)
    facts = read_table(bundle)
    breakdown, threads = None, manifest.threads
    if manifest.library == LIBRARY:
        with name_crashes(bundle):
            model = IsolatedModel(bundle, options.threads)
            model.run(inputs)  # an error names the kernel that crashes
            threads, repeat = model.threads, options.repeat or KERNEL_REPEAT
            breakdown = call_isolated(NO_LIMIT, kernel_times, bundle, inputs, threads, repeat)
    elif options.repeat is not None or options.threads is not None:
        raise UsageError(f"{bundle}: is a C project, whose times are predicted; nothing is run here")
    plan = Plan.from_json((bundle / PLAN).read_text(encoding="utf-8"))
    predicted = {each.symbol: each.predicted or 0.0 for each in facts}
    seconds = breakdown.steps if breakdown is not None else [predicted.get(name, 0.0) for name in plan.step_names]
    live = live_bytes(plan, [inputs[port.name].shape for port in manifest.inputs])
    try:
        device = load_device(manifest.platform.name)
    except DeviceError:  # its file is not here
        device = None
    steps = tuple(_executed(plan, read_steps(bundle), seconds, live))
    return BundleRun(manifest, plan, facts, steps, threads, breakdown, device)


def live_bytes(plan: Plan, shapes: Sequence[Sequence[int]]) -> list[int]:
    """The bytes of the intermediates that are alive in each step of a run on inputs of these shapes. Sizes that steps
    compute count as their bounds."""
    sizes: dict[str, int] = {}
    for each in plan.solution:
        if isinstance(each, Solution):
            sizes[each.name] = (shapes[each.port][each.axis] - each.rest.value(sizes.__getitem__)) // each.factor
    bounds = {measure.name: measure.bound for measure in plan.measures if measure.bound is not None}
    live = [0] * len(plan.steps)
    for life in lives_of(plan):
        buffer = plan.buffers[life.buffer]
        extents = (size_of(upper_bound(extent, bounds)).value(sizes.__getitem__) for extent in buffer.shape)
        count = align(prod(extents) * buffer.element.bits // 8)
        live[life.first : life.last + 1] = [bytes_ + count for bytes_ in live[life.first : life.last + 1]]
    return live


def _executed(
    plan: Plan, table: Iterable[StepFacts], seconds: Sequence[float], live: Sequence[int]
) -> Iterator[Executed]:
    """The steps of a run; their nodes are those of the table, whose steps of one kernel are in the same order."""
    nodes: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for row in reversed([*table]):
        nodes[row.symbol].append(row.operators)
    groups: dict[str, int] = {}
    for step, name, taken, bytes_ in zip(plan.steps, plan.step_names, seconds, live, strict=True):
        operators = step.operators if isinstance(step, Call | Callback) else ()
        name = "ONNX Runtime" if isinstance(step, Callback) else name
        own = nodes[name].pop() if nodes[name] else ()
        yield Executed(name, _kind(step), operators, own, taken, bytes_, groups.setdefault(name, len(groups)))


def _kind(step: Step) -> int:
    if not isinstance(step, Call):
        return 3
    if step.kernel.startswith(LOOP):
        return 2
    return 0 if ANCHORS & {*step.operators} else 1


# --- the page


def bundle_page(title: str, date: str, run: BundleRun) -> str:
    """The whole page. `title` is the path of the bundle."""
    title = title.encode(errors="replace").decode()  # a folder's name may be no text
    tuning = run.manifest.tuning
    search = _search(tuning) if tuning is not None else ""
    main = _over_time(run) + pair(_roofline(run), search) + _kernels(run)
    return whole_page(title, element("header", _header(title, date, run)) + element("main", main), {})


def _header(title: str, date: str, run: BundleRun) -> str:
    manifest, origin = run.manifest, run.manifest.provenance
    lines = [
        f"{date} \u00b7 compiled from {origin.model}",
        f"{manifest.platform.name}: {manifest.platform.cpu} \u00b7 {units.count_text(run.threads, 'thread')}",
        " \u00b7 ".join(map(str, (*manifest.inputs, *manifest.outputs))),
    ]
    return (
        element("h1", escape_html(title))
        + "".join(element("div", escape_html(line), class_="soft") for line in lines)
        + status_line(origin.verification)
        + element("div", "".join(_cards(run)), class_="cards", style="--columns:4")
    )


def _cards(run: BundleRun) -> Iterator[str]:
    floating = sum(each.flops * each.calls for each in run.facts)
    bound = sum(each.roofline * each.calls for each in run.facts)
    clock = "CPU time" if run.threads == 1 else "wall-clock time"
    whole = run.seconds if run.breakdown is None else run.breakdown.whole
    yield card("one run" if run.breakdown is None else f"one run, {clock}", units.seconds(whole), run.word)
    yield card("arithmetic", units.figure(floating, "FLOP"), f"{units.figure(floating / whole, 'FLOP/s')}, {run.word}")
    kernels = sum(each.calls for each in run.facts)
    yield card("kernels", str(kernels), f"{len(run.facts)} distinct; the roofline allows {units.seconds(bound)}")
    room = "at these input shapes"
    if run.plan.is_static:
        room = f"of an arena of {units.memory(plan_arena(run.plan).size)}"
    most = max((step.live for step in run.steps), default=0)
    yield card("intermediates at once", units.memory(most), f"{room}; weights {units.memory(weight_bytes(run.plan))}")


def _over_time(run: BundleRun) -> str:
    """The steps, and the memory in use, over the seconds of a run."""
    ends = [*accumulate((step.seconds for step in run.steps), initial=0.0)]
    spans = [
        Span(*borders, f"c{step.kind}", step.tip, step.group)
        for borders, step in zip(pairwise(ends), run.steps, strict=True)
    ]
    note = f"Each step of a run at its place in time, {run.word}; the wider, the longer. Point at one for its nodes. "
    if run.breakdown is None:
        note += "Nothing was run: the times are those that the partition was chosen by, and plain loops have none."
    else:
        between = run.breakdown.whole - run.seconds
        note += f"The median of each step; {units.seconds(max(0.0, between))} between steps are left out."
    most = units.memory(max((step.live for step in run.steps), default=0))
    legend = "".join(element("span", f'<i class="swatch c{n}"></i>{kind}') for n, kind in enumerate(KINDS))
    return section(
        "A run over time",
        note,
        lane("steps", spans, run.seconds),
        lane(f"memory of intermediates, up to {most}", spans, run.seconds, [step.live for step in run.steps]),
        scale(run.seconds, units.seconds),
        element("div", legend, class_="legend"),
    )


def _roofline(run: BundleRun) -> str:
    """FLOP/s of each kernel over the FLOPs for each byte that it moves, below what the device allows."""
    facts = [each for each in run.facts if each.flops and each.bytes]
    measured = {k.facts.symbol: k.per_call for k in run.breakdown.kernels} if run.breakdown is not None else {}
    groups = {step.name: step.group for step in run.steps}
    marks = [
        Mark(
            (each.flops / each.bytes, each.flops / seconds), kind,
            f"{each.symbol}\n{' '.join(each.operators)}\n{word} {units.seconds(seconds)} a call, "
            f"{units.figure(each.flops / seconds, 'FLOP/s')}",
            groups.get(each.symbol),
        )
        for kind, word, times in (
            ("predicted", "predicted", {each.symbol: each.predicted for each in facts}),
            ("measured", "measured", measured),
        )
        for each in facts
        if (seconds := times.get(each.symbol))
    ]  # fmt: skip
    if not marks:
        return section("Roofline", "No kernel computes with floating-point numbers.")
    across = logarithmic("FLOP for each byte that a kernel reads or writes", [m.place[0] for m in marks], units.figure)
    peak = run.device.peak_flops * run.threads if run.device is not None else 0.0
    upwards = logarithmic("FLOP/s", [peak, *(m.place[1] for m in marks)], units.figure)
    left_out = len(run.facts) - len(facts)
    note = f"Each distinct kernel, {'measured (filled) and predicted (hollow)' if measured else 'predicted'}. "
    note += "Lines: the peak of float32, and the bandwidth of each level of memory. "
    note += f"Left out: {units.count_text(left_out, 'kernel')} without arithmetic." if left_out else ""
    return section("Roofline", note, plot(across, upwards, _roofs(run, across, upwards, peak), marks, 340))


def _roofs(run: BundleRun, across: Axis, upwards: Axis, peak: float) -> Iterator[Line]:
    """The lines that bound what kernels can reach on the device: its bandwidths times the intensity, and its peak."""
    if run.device is None:
        return
    levels = [(f"L{cache.level}", cache.bandwidth) for cache in run.device.caches]
    for number, (name, one) in enumerate((*levels, ("DRAM", run.device.dram_bandwidth))):
        bandwidth = one * run.threads
        first, last = max(across.least, upwards.least / bandwidth), min(across.most, peak / bandwidth)
        if first < last:  # the labels of neighbouring lines are at different heights
            places = (first, last * (first / last) ** (0.08 * (number + 1)), last)
            yield Line([(place, place * bandwidth) for place in places], "roof", name, 1)
    yield Line([(across.least, peak), (across.most, peak)], "roof", f"peak {units.figure(peak, 'FLOP/s')}")


def _search(tuning: TuningSummary) -> str:
    """The best time of a run over the trials of the search, from the first by which all kernels had run."""
    points = [(float(point.trials), point.latency) for point in tuning.curve]
    across = linear("candidates measured", [trials for trials, _ in points], "{:,.0f}".format)
    upwards = linear("seconds of the kernels of a run", [latency for _, latency in points], units.seconds)
    shown = (
        "The sum of the fastest kernels so far, measured one by one."
        if points
        else f"No curve: not all of {tuning.tasks} kernels had a candidate, and a run takes the sum of all."
    )
    note = (
        f"{shown} {tuning.trials:,} candidates, {tuning.failed:,} failed, {units.seconds(tuning.seconds)}; the "
        f"{tuning.kept} bundle is kept"
    )
    note += f": {tuning.problem}." if tuning.problem else f", the tuned one is {tuning.ratio:.2f}\u00d7 as fast."
    return section("The search for schedules", note, curve(points, across, upwards) if points else "")


def _kernels(run: BundleRun) -> str:
    """One row for each distinct kernel, loop and part in ONNX Runtime."""
    facts = {each.symbol: each for each in run.facts}
    first = {step.name: step for step in reversed(run.steps)}
    longest = max((seconds for _, seconds in run.totals.values()), default=0.0) or 1.0
    names = sorted(run.totals, key=lambda name: -run.totals[name][1])
    rows = []
    for name in names:
        count, seconds = run.totals[name]
        fact = facts.get(name)
        rows.append(
            [
                Cell(name, is_text=True),
                Cell(" ".join(first[name].operators), is_text=True),
                Cell(units.seconds(seconds), seconds),
                Cell(f"{seconds / run.seconds:.1%}", seconds, seconds / longest),
                Cell(str(count), count),
                *(_fact_cells(fact, seconds / count) if fact is not None else [Cell("")] * 5),
            ]
        )
    columns = ("kernel", "operators", "all", "share", "calls", "one call", "predicted", "roofline", "times", "schedule")
    note = (
        f"Times of all calls and of one are {run.word}. The roofline of a call is the longer of the arithmetic at the "
        "peak and the bytes at the bandwidth of the smallest cache that holds them; 'times' says how many times as "
        "long the kernel takes. Click a row to see its steps above."
    )
    return section("Kernels", note, table(columns, rows, [{"data_group": str(first[name].group)} for name in names]))


def _fact_cells(fact: KernelFacts, seconds: float) -> list[Cell]:
    times = seconds / fact.roofline if fact.roofline else 0.0
    return [
        Cell(units.seconds(seconds), seconds),
        Cell("" if fact.predicted is None else units.seconds(fact.predicted), fact.predicted),
        Cell(units.seconds(fact.roofline), fact.roofline),
        Cell(f"{times:.1f}" if times else "", times),
        Cell(fact.rule.partition(" ")[0]),
    ]
