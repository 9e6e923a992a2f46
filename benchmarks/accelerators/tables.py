"""The Markdown tables of benchmarks/dsa.py, beside what GraphTurbo (OSDI 2023, section 5) prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from eqfuse.benchmarks.accelerators.cell import Run
from eqfuse.benchmarks.accelerators.graphturbo import MODELS, TABLE1, TABLE2, TABLE3, TABLE4, Allocation, ScopeCounts

TVM, ASTITCH, SCHEDULED, FULL = "tvm", "astitch", "graphturbo", "full"
_UNITS = ("vector", "vme", "mme")
STAGED = "A"
"""The model whose stages the text looks at: ResNet-50."""
STEPS = ("gb", "lb", "instances", "graphturbo", FULL)
"""Of the ablation, as variants; the last goes beyond the text's four."""
PRINTED_SPEED_UPS = {TVM: 11.15, ASTITCH: 6.16}
PRINTED_STEPS = {("lb", TVM): 3.67, ("instances", "lb"): 2.20, ("graphturbo", "instances"): 1.72}
"""The text's averages (sections 5.2 and 5.3) of one variant over another."""
APPROACHES = {"TVM": TVM, "GraphTurbo": FULL}
"""Table 1's approaches, as variants."""
MISSING = "-"


@dataclass(frozen=True)
class Failure:
    """A figure that there is none of; `samples` and `variant` are None if there is not even a model."""

    label: str
    variant: str | None
    samples: int | None
    problem: str
    command: str


@dataclass(frozen=True)
class Results:
    """All runs on one device with a given number of clusters."""

    device: str
    clusters: int
    runs: tuple[Run, ...]
    failures: tuple[Failure, ...]

    @property
    def labels(self) -> list[str]:
        """Those of Table 2 that anything was tried for, in its order."""
        return [label for label in self.models if label in TABLE2]

    @property
    def models(self) -> list[str]:
        """Those that anything was tried for."""
        tried = {run.label for run in self.runs} | {failure.label for failure in self.failures}
        return [label for label in MODELS if label in tried]

    def run(self, label: str, variant: str, samples: int) -> Run | None:
        """That run, None if it failed or was not asked for."""
        wanted = (label, variant, samples)
        return next((each for each in self.runs if (each.label, each.variant, each.samples) == wanted), None)

    def best(self, label: str, variant: str) -> Run | None:
        """A variant at the number of samples that suits it best, of those that share the batch of Table 2 evenly."""
        found = [each for each in self.runs if (each.label, each.variant) == (label, variant)]
        own = [each for each in found if MODELS[label].batch % (each.samples * self.clusters) == 0]
        return fastest(own)

    def at_printed_batch(self, label: str) -> Run | None:
        """The full variant at GraphTurbo's samples per cluster of Table 2, or else at its best."""
        return self.run(label, FULL, TABLE2[label].graphturbo) or self.best(label, FULL)

    def printed_speed_up(self, label: str) -> float | None:
        """The full variant over the TVM-like one, each with the samples per cluster that Table 2 gives it."""
        configuration = TABLE2[label]
        ours, theirs = self.run(label, FULL, configuration.graphturbo), self.run(label, TVM, configuration.tvm)
        return ours.throughput / theirs.throughput if ours and theirs else None

    def speed_up(self, label: str, variant: str, over: str) -> float | None:
        """Throughput of one variant over that of another, each at its best."""
        ours, theirs = self.best(label, variant), self.best(label, over)
        return ours.throughput / theirs.throughput if ours and theirs else None


def fastest(runs: Sequence[Run]) -> Run | None:
    """The highest throughput; fewer samples at a time where it is equal."""
    return max(runs, key=lambda each: (each.throughput, -each.samples), default=None)


def speed_ups(results: Results, variant: str, over: str) -> list[float]:
    """Of all labels that have both."""
    found = (results.speed_up(label, variant, over) for label in results.labels)
    return [each for each in found if each is not None]


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first are numbers. Empty without rows."""
    if not rows:
        return ""
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows))


def all_tables(results: Results) -> str:
    """The section for the documentation."""
    sections = (
        ("Throughput, samples/s of the whole chip (samples per cluster)", throughput_table),
        ("Steps, times the throughput of tvm", ablation_table),
        ("Tensors per scope: of instances / of values / Table 3", scopes_table),
        ("Seconds to compile, beside Table 4", seconds_table),
        ("Lower bound", bound_table),
        ("Use of the units by samples, the text's scheduling (Fig. 16)", use_table),
        ("Use of the units by the size of ResNet-50's feature maps, the text's scheduling (Fig. 17)", stage_table),
        ("BERT-128 by batch, beside Table 1", batch_table),
        ("Failures", failure_lines),
    )
    found = ((title, table(results)) for title, table in sections)
    about = f"One of {results.clusters} clusters is simulated on its share of DDR, and all do the same."
    about += " Floats are of 16 bits; A8 has integers of 8."
    parts = (f"### {title}\n\n{text}" for title, text in found if text)
    return "\n\n".join((f"## GraphTurbo's models on {results.device}", about, *parts))


def _named(label: str) -> str:
    return f"{label} {MODELS[label].model}"


def throughput_table(results: Results) -> str:
    """Each approach at its best, and the speed-up of the full variant beside the text's averages; empty without models
    of Table 2."""
    if not results.labels:
        return ""
    shown = [v for v in (TVM, ASTITCH, SCHEDULED, FULL) if any(each.variant == v for each in results.runs)]
    ratios = (*(f"{FULL} / {over}" for over in PRINTED_SPEED_UPS), f"{FULL} / {TVM} as in Table 2")
    rows = []
    for label in results.labels:
        runs = (results.best(label, variant) for variant in shown)
        cells = [f"{run.throughput:,.0f} ({run.samples})" if run else MISSING for run in runs]
        found = map(_times, _speed_ups_of(results, label))
        rows.append((_named(label), f"{TABLE2[label].throughput:,}", *cells, *found))
    columns = [*zip(*(_speed_ups_of(results, label) for label in results.labels), strict=True)]
    empty = [""] * (1 + len(shown))
    for title, mean in (("arithmetic mean", fmean), ("geometric mean", geometric_mean)):
        rows.append((title, *empty, *(_mean(mean, [x for x in each if x is not None]) for each in columns)))
    rows.append(("the text's average", *empty, *map(_times, (*PRINTED_SPEED_UPS.values(), PRINTED_SPEED_UPS[TVM]))))
    return markdown(("model", "TVM printed", *shown, *ratios), rows)


def _speed_ups_of(results: Results, label: str) -> tuple[float | None, ...]:
    own = (results.speed_up(label, FULL, over) for over in PRINTED_SPEED_UPS)
    return (*own, results.printed_speed_up(label))


def ablation_table(results: Results) -> str:
    """What each step adds: over the TVM-like baseline, and over the step before where the text prints it; empty without
    models of Table 2."""
    if not results.labels:
        return ""
    pairs = [(ASTITCH, TVM), *((step, TVM) for step in STEPS), *(p for p in PRINTED_STEPS if p[1] != TVM)]
    pairs.append((FULL, SCHEDULED))
    heads = ("model", *(variant if over == TVM else f"{variant} / {over}" for variant, over in pairs))
    rows = [(_named(label), *(_times(results.speed_up(label, *pair)) for pair in pairs)) for label in results.labels]
    for title, mean in (("arithmetic mean", fmean), ("geometric mean", geometric_mean)):
        rows.append((title, *(_mean(mean, speed_ups(results, *pair)) for pair in pairs)))
    printed = {**PRINTED_STEPS, (SCHEDULED, TVM): PRINTED_SPEED_UPS[TVM]}
    rows.append(("the text's average", *(_times(printed.get(pair)) for pair in pairs)))
    return markdown(heads, rows)


def scopes_table(results: Results) -> str:
    """Tensors that layers hand on at each level, the network's outputs with them: each instance's, and once for a
    value, at the slowest level of its instances."""
    levels: tuple[tuple[str, str, Callable[[str], ScopeCounts]], ...] = (
        ("ddr", "DDR", lambda label: TABLE3[label].ddr),
        ("gb", "GB / LLB", lambda label: TABLE3[label].llb),
        ("lb", "LB / L1", lambda label: TABLE3[label].l1),
    )
    rows = []
    for label in results.labels:
        run = results.at_printed_batch(label)
        cells = []
        for key, _, printed in levels:
            own = [run.parts.get(key.upper(), 0), run.figures["scopes"][key]] if run else [MISSING, MISSING]
            cells.append(" / ".join(map(str, [*own, printed(label).graphturbo])))
        rows.append((_named(label), _samples(run), *cells))
    return markdown(("model", "samples", *(title for _, title, _ in levels)), rows)


def seconds_table(results: Results) -> str:
    """Of the full variant, on this machine; the text compiles on another."""
    rows = []
    for label in results.labels:
        run, printed = results.at_printed_batch(label), TABLE4[label]
        figures = (scheduling(run), run.simulating, run.processor, run.memory / 1e9) if run else [None] * 4
        cells = (MISSING if each is None else f"{each:.1f}" for each in figures)
        rows.append((_named(label), _samples(run), *cells, str(printed.graphturbo), str(printed.tvm)))
    heads = ("model", "samples", "schedule and generate", "simulate once", "both, of a processor", "GB of memory",
             "GraphTurbo printed", "TVM printed")  # fmt: skip
    return markdown(heads, rows)


def scheduling(run: Run) -> float:
    """Seconds to schedule and generate, without the simulation that `compiling` includes."""
    return run.compiling - run.simulating


def bound_table(results: Results) -> str:
    """How near the full variant is to what its work takes at least."""
    heads = ("model", "samples", "Mcycles", "lower bound", "bound by", "bound / cycles", "the kernels' bound / cycles",
             *_UNITS)  # fmt: skip
    rows = []
    for label in results.models:
        run = results.best(label, FULL)
        cells = _bound_cells(run) if run else [MISSING] * (len(heads) - 2)
        rows.append((_named(label), _samples(run), *cells))
    return markdown(heads, rows)


def _bound_cells(run: Run) -> list[str]:
    bound = run.figures["lower_bound"]
    millions = [f"{cycles / 1e6:.2f}" for cycles in (run.cycles, bound["cycles"])]
    return [*millions, limit(run), f"{bound['ratio']:.2f}", f"{kernels_ratio(run):.2f}", *_use(run.figures["occupied"])]


def _use(occupied: Mapping[str, float]) -> list[str]:
    """The share of the time that the units of each kind work."""
    return [f"{occupied[unit]:.0%}" if unit in occupied else MISSING for unit in _UNITS]


def limit(run: Run) -> str:
    """What makes the lower bound: a kind of unit, or the traffic with DDR."""
    found = {name: cycles for name, cycles in run.figures["lower_bound"].items() if name not in ("cycles", "ratio")}
    return str(max(found, key=lambda name: found[name]))


def kernels_ratio(run: Run) -> float:
    """The bound that keeps the program's kernels, over its cycles."""
    return float(max(run.figures["scheduled_bound"].values()) / run.cycles)


def use_table(results: Results) -> str:
    """The units at each number of samples per cluster; empty if no model was tried with several."""
    rows = []
    for label in results.models:
        runs = [run for run in results.runs if (run.label, run.variant) == (label, SCHEDULED)]
        if len(runs) > 1:
            ordered = sorted(runs, key=lambda run: run.samples)
            for run in ordered:
                use = _use(run.figures["occupied"])
                rows.append((_named(label), str(run.samples), f"{run.throughput:,.0f}", *use))
    return markdown(("model", "samples", "samples/s", *_UNITS), rows)


def stage_table(results: Results) -> str:
    """The units while layers of each size of ResNet-50 run, at Table 2's samples per cluster."""
    run = results.run(STAGED, SCHEDULED, TABLE2[STAGED].graphturbo)
    stages = run.stages if run else ()
    rows = [(each["size"] or "none", f"{each['share']:.0%}", *_use(each["occupied"])) for each in stages]
    return markdown(("feature maps", "share of the time", *_UNITS), rows)


def batch_table(results: Results) -> str:
    """Throughput and latency of the whole batch; empty if the sizes of Table 1 were not asked for."""
    heads = ("approach", "batch", "iterations", "per cluster", "sentences/s", "printed", "ms", "printed ms")
    rows = [_batch_row(results, row) for row in TABLE1]
    measured = any(row[4] != MISSING for row in rows)
    return markdown(heads, rows) if measured else ""


def _batch_row(results: Results, row: Allocation) -> tuple[str, ...]:
    variant = APPROACHES.get(row.approach)
    run = results.run("B", variant, row.per_cluster) if variant else None
    seconds = row.iterations * run.seconds if run else None
    ours = (MISSING, MISSING) if seconds is None else (f"{row.batch / seconds:,.0f}", f"{seconds * 1e3:.2f}")
    name = f"{row.approach} ({variant})" if variant else row.approach
    cut = (str(row.batch), str(row.iterations), str(row.per_cluster))
    return (name, *cut, ours[0], f"{row.throughput:,}", ours[1], f"{row.latency:.2f}")


def failure_lines(results: Results) -> str:
    """Each with the command that shows it."""
    return "\n".join(
        f"- {each.label}{f' {each.variant}, {each.samples} sample(s)' if each.variant else ''}: {each.problem} "
        f"(`{each.command}`)"
        for each in results.failures
    )


def _times(ratio: float | None) -> str:
    return MISSING if ratio is None else f"{ratio:.2f}x"


def _mean(mean: Callable[[Sequence[float]], float], numbers: Sequence[float]) -> str:
    return _times(mean(numbers) if numbers else None)


def _samples(run: Run | None) -> str:
    return str(run.samples) if run else MISSING
