"""The rows as a page: counts, a table with a line for each network, and what those that miss say of the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import geometric_mean, median

from eqfuse.support.processor import processor_name

from .rows import Optimized, Ratio, Row

BEHIND = 1.02
"""An optimised model that takes more of the best peer's time than this is behind it."""
FEWEST = 3
"""Different numbers of which a rank correlation says anything."""
NOTABLE = 0.03
"""Predictions are held against latencies that are this far from the original's at least: noise orders others."""
LONG = 120.0
"""Seconds above which compiling takes too long."""
_LONGEST = 160
"""Characters of a message in the table."""
_HEADS = (
    "network", "layers", "optimize s", "latency", "best peer's", "compile s", "kernels", "left, loops",
    "best peer / eqfuse", "peer", "roofline",
)  # fmt: skip


def page_lines(rows: Sequence[Row], is_quiet: bool) -> Iterator[str]:
    """Lines of Markdown. Times are marked where the machine was busy."""
    dates = sorted({row.date for row in rows})
    load = "otherwise idle" if is_quiet else "busy with other programs: times are hints"
    yield f"{processor_name()}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {load}."
    yield ""
    yield "| what | measured |"
    yield "|---|---|"
    for name, figure in count(rows):
        yield f"| {name} | {figure} |"
    yield ""
    yield f"| {' | '.join(_HEADS)} |"
    yield f"|{'---|' * len(_HEADS)}"
    for row in rows:
        yield f"| {' | '.join(_cells(row))} |"
    causes = [(row.network, each) for row in rows for each in causes_of(row)]
    if causes:
        yield ""
        yield "Rows that miss, with what was said of the reason:"
        yield ""
        for network, cause in causes:
            yield f"- {network}: {cause}"


def count(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """What the page begins with."""
    optimized = [row.optimized for row in rows if row.optimized]
    compiled = [row.compiled for row in rows if row.compiled]
    timed = [row.timed.ratio for row in rows if row.timed and row.timed.ratio]
    compared = [row for row in rows if best_peer(row) is not None]
    yield "networks", f"{len(rows)} of {len({row.family for row in rows})} libraries"
    yield "optimize: refused or crashed", f"{sum(map(_has_failed, rows))} of {len(optimized)}"
    slowed = sum(row.is_slowed for row in rows)
    yield "optimize: slower than the original in ONNX Runtime", f"{slowed} of {len(optimized)}"
    behind = sum(is_behind_optimizer(row) for row in compared)
    yield f"optimize: above {BEHIND:g} of the best peer's latency", f"{behind} of {len(compared)}"
    latencies = [each.latency.median for each in optimized if each.latency]
    yield "optimize: latency over the original's, geometric mean", _mean(latencies)
    yield f"optimize: rank correlation of predicted latency, changes above {NOTABLE:.0%}", _correlation(optimized)
    refused = sum(each.code not in (0, 5) for each in compiled)
    yield "compile: refused or crashed", f"{refused} of {len(compiled)}"
    yield "compile: with operators left to ONNX Runtime", str(sum(bool(each.left) for each in compiled))
    yield "compile: with plain loops", str(sum(bool(each.loops) for each in compiled))
    walls = [each.wall for each in compiled]
    if walls:
        yield "compile: seconds, median and longest", f"{median(walls):.0f}, {max(walls):.0f}"
    yield "compiled, best peer / eqfuse, one thread, geometric mean", _mean([each.median for each in timed])
    yield "compiled, slower than the best peer beyond chance", f"{sum(row.is_behind for row in rows)} of {len(timed)}"


def _has_failed(row: Row) -> bool:
    return row.optimized is not None and row.optimized.code not in (0, 5)


def _mean(numbers: Sequence[float]) -> str:
    return f"{geometric_mean(numbers):.2f}" if numbers else "-"


def _correlation(optimized: Sequence[Optimized]) -> str:
    from scipy.stats import spearmanr  # takes most of a second to load

    pairs = [
        (each.predicted, each.latency.median) for each in optimized
        if each.predicted and each.latency and abs(each.latency.median - 1) > NOTABLE
    ]  # fmt: skip
    predicted, measured = {each for each, _ in pairs}, {each for _, each in pairs}
    if min(len(predicted), len(measured)) < FEWEST:
        return "-"
    return f"{spearmanr(pairs).statistic:.2f} of {len(pairs)}"


def best_peer(row: Row) -> tuple[str, Ratio] | None:
    """The optimiser whose right result takes the least of the original's time."""
    found = {tool: each.latency for tool, each in (row.peers or {}).items() if each.latency}
    return min(found.items(), key=lambda item: item[1].median) if found else None


def is_behind_optimizer(row: Row) -> bool:
    """Whether eqfuse's result takes longer in ONNX Runtime than the best peer's, beyond chance."""
    best, latency = best_peer(row), row.optimized.latency if row.optimized else None
    if best is None or latency is None:
        return False
    return latency.median > BEHIND * best[1].median and latency.lower > best[1].upper


def causes_of(row: Row) -> Iterator[str]:
    """What a row misses, and what is known of the reason."""
    for name, each in (("optimize", row.optimized), ("compile", row.compiled)):
        if each is not None and each.code not in (0, 5):
            yield f"{name} ended with {each.code}: {_plain(each.message)}"
    if row.is_slowed and row.optimized and row.optimized.latency:
        yield f"optimised, it takes {_shown(row.optimized.latency)} of the original's time in ONNX Runtime"
    if is_behind_optimizer(row) and row.optimized and row.optimized.latency and (best := best_peer(row)):
        yield f"optimised, it takes {row.optimized.latency.median:.2f} of its time, {best[1].median:.2f} by {best[0]}"
    if row.compiled:
        yield from (f"left to ONNX Runtime: {_plain(each)}" for each in row.compiled.left)
        if row.compiled.wall > LONG:
            longest = max(row.compiled.seconds.items(), key=lambda item: item[1], default=("", 0.0))
            work = f"{row.compiled.cpu:.0f} s of processor time"
            yield f"compiled in {row.compiled.wall:.0f} s ({work}), {longest[1]:.0f} of them {longest[0]}"
    if row.is_behind and row.timed and row.timed.ratio:
        loops = f"; plain loops: {', '.join(row.compiled.loops)}" if row.compiled and row.compiled.loops else ""
        yield f"compiled, {row.timed.best_peer} is faster: {_shown(row.timed.ratio)}{_plain(loops)}"
    if row.timed:
        yield from (f"{_plain(each)}" for each in row.timed.problems if each.partition(": ")[2].startswith("eqfuse"))


def _plain(text: str) -> str:
    """Short, and without what Markdown would take for a column."""
    text = text.replace("|", "/")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _shown(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.lower:.2f} to {ratio.upper:.2f})"


def _cells(row: Row) -> Iterator[str]:
    yield row.network
    yield from _optimized_cells(row.optimized)
    best = best_peer(row)
    yield f"{best[1].median:.2f} {best[0]}" if best else "-"
    if row.compiled is None:
        yield from ("-",) * 3
    else:
        each = row.compiled
        yield f"{each.wall:.0f}" if each.code in (0, 5) else f"exit {each.code}"
        yield f"{each.operators} → {each.kernels}"
        yield f"{len(each.left)}, {len(each.loops)}"
    timed = row.timed
    yield _shown(timed.ratio) if timed and timed.ratio else "-"
    yield timed.best_peer or "-" if timed else "-"
    own = timed.seconds.get("eqfuse") if timed else None
    yield f"{timed.roofline / own:.0%}" if timed and timed.roofline and own else "-"


def _optimized_cells(each: Optimized | None) -> Iterator[str]:
    if each is None:
        yield from ("-",) * 3
        return
    yield f"{each.layers[0]} → {each.layers[1]}"
    yield f"{each.wall:.1f}" if each.code in (0, 5) else f"exit {each.code}"
    yield f"{each.latency.median:.2f}" if each.latency else "-"
