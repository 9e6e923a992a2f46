"""Tables of benchmarks/tuning.py."""

from __future__ import annotations

from rich.table import Column, Table

from eqfuse.benchmarks.latency import figure, mean_ratio, spread, wide_console
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

SUBGRAPHS, NETWORK, ABLATION, ORT, ARM = PARTS = ("subgraphs", "network", "ablation", "ort", "arm")
_PEERS = (PEER, LONG_PEER, NO_INTENSIVE, NO_REFORMER, PLAIN)
"""Whose run times are divided by those of the tuned bundle."""
_TITLES = {
    SUBGRAPHS: "sub-graphs of two complex operators, {trials} trials each",
    NETWORK: "networks, {trials} trials each",
    ABLATION: "networks, {trials} trials each",
    ORT: "networks, {trials} trials each",
}


def print_results(results: Results) -> None:
    """Tables, notes and problems."""
    console = wide_console()
    console.print(_instruction_table(results) if results.part == ARM else _run_time_table(results))
    if results.part in (SUBGRAPHS, NETWORK, ABLATION):
        console.print(_search_table(results))
    for each in results.comparisons:
        for name, search in each.searches.items():
            if search.note:
                console.print(f"{each.record.name}, {name}: {search.note}")
        for problem in each.record.problems:
            console.print(f"{each.record.name}: {problem}")


def ratio_to(results: Results, each: Comparison, reference: str) -> Middle | None:
    """End to end, the run time of the reference over that of the tuned bundle, round by round."""
    return each.record.ratio((TUNED, results.threads), reference)


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
        times = [figure(each.record.median((name, results.threads)), 1e3, ".3f") for name in present]
        ratios = [spread(ratio_to(results, each, name)) for name in compared]
        table.add_row(each.record.name, *times, *ratios, f"{each.record.others:.2f}")
    records, tuned = [each.record for each in results.comparisons], (TUNED, results.threads)
    means = [figure(mean_ratio(records, tuned, name), 1, ".2f") for name in compared]
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
                f"{search.seconds:.0f}", figure(search.at_trials(results.trials), 1e3, ".3f"),
                "-" if seconds is None else f"{figure(early, 1e3, '.3f')} ({seconds:.0f} s)",
            )  # fmt: skip
    return table


def _instruction_table(results: Results) -> Table:
    names = list(dict.fromkeys(name for each in results.comparisons for name in each.instructions))
    others = [name for name in names if name != TUNED]
    heads = ("model", *(f"{name}, M" for name in names), *(f"{TUNED} / {name}" for name in others))
    table = Table(*heads, title=f"instructions of one inference, emulated, one core; {results.trials} trials")
    for each in results.comparisons:
        counts = each.instructions
        numbers = [figure(counts.get(name), 1e-6, ".2f") for name in names]
        ratios = [figure(_instruction_ratio(each, name), 1, ".2f") for name in others]
        table.add_row(each.record.name, *numbers, *ratios)
    return table


def _instruction_ratio(each: Comparison, name: str) -> float | None:
    counts = each.instructions
    return counts[TUNED] / counts[name] if TUNED in counts and name in counts else None
