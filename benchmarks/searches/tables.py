"""Tables and verdicts of benchmarks/tuning.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.console import Console
from rich.table import Column, Table

from eqfuse.benchmarks import latency
from eqfuse.benchmarks.latency import QUIET, VERDICTS, geometric_mean
from eqfuse.benchmarks.networks import AGO
from eqfuse.benchmarks.searches.results import (
    LONG_PEER,
    NO_INTENSIVE,
    NO_REFORMER,
    PEER,
    PLAIN,
    REFERENCE,
    TUNED,
    Comparison,
    Results,
    same_seconds,
)
from eqfuse.lowering.running.turns import Middle

EQUAL_TRIALS, LONG, GEOMETRIC_MEAN, EACH, INSTRUCTIONS = 1.5, 1.0, 1.25, 1.0, 0.5
"""Targets: the run time of MetaSchedule's model over ours, at equal trials and at its many; ONNX Runtime's over ours,
on the geometric mean and for each network; and our instructions over ONNX Runtime's."""
SUBGRAPHS, NETWORK, ABLATION, ORT, ARM = PARTS = ("subgraphs", "network", "ablation", "ort", "arm")
PUBLISHED = "ONNX Runtime 1.22.1, not counted now"
"""Whose instructions are a figure of an earlier run."""
_PEERS = (PEER, LONG_PEER, NO_INTENSIVE, NO_REFORMER, PLAIN)
"""Whose run times are divided by those of the tuned bundle."""
_TITLES = {
    SUBGRAPHS: "sub-graphs of two complex operators, {trials} trials each",
    NETWORK: "networks, {trials} trials each",
    ABLATION: "networks, {trials} trials each",
    ORT: "networks, {trials} trials each",
}


def print_results(results: Results) -> None:
    """Tables, verdicts and problems."""
    console = Console(width=None if sys.stdout.isatty() else 220, highlight=False, markup=False)
    console.print(_instruction_table(results) if results.part == ARM else _run_time_table(results))
    if results.part in (SUBGRAPHS, NETWORK, ABLATION):
        console.print(_search_table(results))
    for text, reached in verdicts(results):
        console.print(f"{VERDICTS[reached]}: {text}")
    for each in results.comparisons:
        for name, search in each.searches.items():
            if search.note:
                console.print(f"{each.record.name}, {name}: {search.note}")
        for problem in each.record.problems:
            console.print(f"{each.record.name}: {problem}")


def ratio_to(results: Results, each: Comparison, reference: str) -> Middle | None:
    """End to end, the run time of the reference over that of the tuned bundle, round by round."""
    return each.record.ratio((TUNED, results.threads), reference)


def mean_ratio(results: Results, reference: str) -> float | None:
    """The geometric mean of these, each family counting once; None where one is missing."""
    families: dict[str, list[float]] = {}
    for each in results.comparisons:
        ratio = ratio_to(results, each, reference)
        if ratio is None:
            return None
        families.setdefault(each.record.family, []).append(ratio.median)
    return geometric_mean([geometric_mean(ratios) for ratios in families.values()]) if families else None


# --- tables


def _run_time_table(results: Results) -> Table:
    """Milliseconds end to end, and those of others over the tuned bundle's."""
    present = _present(results)
    compared = [name for name in (REFERENCE, *_PEERS) if name in present]
    clock = "CPU" if results.threads == 1 else "wall-clock"
    title = _TITLES[results.part].format(trials=results.trials)
    heads = [*(f"{name} ms" for name in present), *(f"{name} / {TUNED}" for name in compared), "others' cores"]
    table = Table(
        Column("model", no_wrap=True), *heads, title=f"{title}; end to end, {results.threads} thread(s), {clock} time"
    )
    for each in results.comparisons:
        times = [_text(each.record.median((name, results.threads)), 1e3, ".3f") for name in present]
        ratios = [_middle(ratio_to(results, each, name)) for name in compared]
        table.add_row(each.record.name, *times, *ratios, f"{each.record.others:.2f}")
    means = [_text(mean_ratio(results, name), 1, ".2f") for name in compared]
    table.add_row("geometric mean", *[""] * len(present), *means)
    return table


def _present(results: Results) -> list[str]:
    found = {tool for each in results.comparisons for tool, _ in each.record.samples}
    return [name for name in (REFERENCE, TUNED, *_PEERS) if name in found]


def _search_table(results: Results) -> Table:
    """What searches had found, as the sum of their kernels, at the same trials and at the same seconds."""
    heads = ("model", "search", "tasks", "trials", "failed", "seconds", f"ms after {results.trials} trials", "ms after")
    table = Table(*heads, title="searches: kernels as the search measured them")
    for each in results.comparisons:
        seconds = same_seconds(list(each.searches.values()))
        for name, search in each.searches.items():
            early = None if seconds is None else search.at_seconds(seconds)
            table.add_row(
                each.record.name, name, str(search.tasks), str(search.trials), str(search.failed),
                f"{search.seconds:.0f}", _text(search.at_trials(results.trials), 1e3, ".3f"),
                "-" if seconds is None else f"{_text(early, 1e3, '.3f')} ({seconds:.0f} s)",
            )  # fmt: skip
    return table


def _instruction_table(results: Results) -> Table:
    names = list(dict.fromkeys(name for each in results.comparisons for name in each.instructions))
    others = [name for name in names if name != TUNED]
    heads = ("model", *(f"{name}, M" for name in names), *(f"{TUNED} / {name}" for name in others))
    table = Table(*heads, title=f"instructions of one inference, emulated, one core; {results.trials} trials")
    for each in results.comparisons:
        counts = each.instructions
        numbers = [_text(counts.get(name), 1e-6, ".2f") for name in names]
        ratios = [_text(_instruction_ratio(each, name), 1, ".2f") for name in others]
        table.add_row(each.record.name, *numbers, *ratios)
    return table


def _instruction_ratio(each: Comparison, name: str) -> float | None:
    counts = each.instructions
    return counts[TUNED] / counts[name] if TUNED in counts and name in counts else None


def _text(value: float | None, factor: float, form: str) -> str:
    return "-" if value is None else format(value * factor, form)


def _middle(found: Middle | None) -> str:
    return "-" if found is None else f"{found.median:.2f} ({found.lower:.2f} to {found.upper:.2f})"


# --- targets


def verdicts(results: Results) -> Iterator[tuple[str, bool | None]]:
    """A goal, the figure for it, and whether the figure reaches it; None where the machine was too busy to say."""
    if results.part == ARM:
        yield from _instruction_verdicts(results)
        return
    quiet = results.threads == 1 or all(each.record.others <= QUIET for each in results.comparisons)
    found = _ort_verdicts(results) if results.part == ORT else _peer_verdicts(results)
    for text, reached in found:
        yield text, reached if quiet else None


def _peer_verdicts(results: Results) -> Iterator[tuple[str, bool]]:
    """None where a search had too few trials for all tasks: what has no schedule at all is no peer."""
    equal, long = (mean_ratio(results, name) if _is_whole(results, name) else None for name in (PEER, LONG_PEER))
    if equal is not None:
        text = f"{equal:.2f} times as fast as {PEER} at {results.trials} trials each, wanted {EQUAL_TRIALS}"
        yield text, equal >= EQUAL_TRIALS
    if long is not None:
        text = f"{long:.2f} times as fast as {PEER} after {results.long_trials} trials, wanted more than {LONG:g}"
        yield text, long > LONG


def _is_whole(results: Results, name: str) -> bool:
    searches = [each.searches[name] for each in results.comparisons if name in each.searches]
    return bool(searches) and all(search.measured for search in searches)


def _ort_verdicts(results: Results) -> Iterator[tuple[str, bool]]:
    """Of AGO's networks, where all take part; of each network that does."""
    mean = latency.mean_ratio(
        [each.record for each in results.comparisons if each.record.name in AGO], (TUNED, results.threads)
    )
    if mean is not None and AGO.keys() <= {each.record.name for each in results.comparisons}:
        text = f"geometric mean on AGO's six networks {mean:.2f}, wanted {GEOMETRIC_MEAN}"
        yield text, mean >= GEOMETRIC_MEAN
    ratios = {e.record.name: ratio.median for e in results.comparisons if (ratio := ratio_to(results, e, REFERENCE))}
    if ratios:
        worst = min(ratios, key=lambda name: ratios[name])
        yield f"lowest ratio {ratios[worst]:.2f} ({worst}), wanted more than {EACH:g}", ratios[worst] > EACH


def _instruction_verdicts(results: Results) -> Iterator[tuple[str, bool]]:
    """Beside what was counted in this run alone."""
    for each in results.comparisons:
        for name in each.instructions:
            ratio = _instruction_ratio(each, name)
            if ratio is not None and name.startswith(REFERENCE) and name != PUBLISHED:
                text = f"{each.record.name}: {ratio:.2f} of the instructions of {name}, wanted at most {INSTRUCTIONS}"
                yield text, ratio <= INSTRUCTIONS
