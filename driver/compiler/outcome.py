"""The result of a compilation, and the needs of a bundle, as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...lowering.plan.manifest import PLAN, KernelTrials, Manifest, MeasurementSummary, Trial, TuningSummary
from ...lowering.plan.plan import LOOP, Plan
from ...lowering.program.c_source import arena_text, weight_bytes
from ...lowering.tuning.settings import trials_for
from ...support import units

if TYPE_CHECKING:
    from ...lowering.dsa.back_end import Section
    from ...lowering.ethos_u.back_end import Figures
    from ...lowering.ethos_u.back_end import Section as EthosSection

_KILOBYTE = 1024
_BY_ESTIMATES = "the search used estimates alone; pip install xgboost-cpu lets it learn from its measurements"


def target_rows(manifest: Manifest, bundle: Path) -> list[tuple[str, ...]]:
    """The rows of a table about the target of a bundle: a processor, or an accelerator and the program for it."""
    if manifest.ethos_u is not None:
        from ...lowering.ethos_u.back_end import section_of as ethos_section

        return ethos_rows(ethos_section(manifest.ethos_u, str(bundle)))
    if manifest.dsa is None:
        return [("target", f"{manifest.platform.name}: {manifest.platform.cpu}, {manifest.threads} thread(s)")]
    from ...lowering.dsa.back_end import REPORT, section_of

    rows = program_rows(section_of(manifest.dsa, str(bundle)))
    return [("target", manifest.platform.name), *rows, ("report", str(bundle / REPORT))]


def ethos_rows(section: EthosSection) -> list[tuple[str, ...]]:
    """The rows that describe a program for an Ethos-U: Vela's estimate of it, and of its defaults."""
    chosen, plain = section.chosen, section.plain
    share = chosen.npu_operators / max(1, chosen.npu_operators + chosen.cpu_operators)
    return [
        ("target", f"{section.device}: {section.system}, {section.memory_mode}"),
        ("estimated by", f"Vela {section.vela}, {section.candidates} programs tried"),
        ("chosen", chosen.choice),
        ("compared with", plain.choice),
        ("cycles", f"{chosen.cycles:,} (compared: {plain.cycles:,})"),
        ("SRAM at most", f"{chosen.sram / _KILOBYTE:,.0f} KB (compared: {plain.sram / _KILOBYTE:,.0f} KB)"),
        ("memory", memory_text(chosen)),
        ("operators on the NPU", f"{chosen.npu_operators} ({share:.0%})"),
        *(("not taken by Vela", line) for line in section.refused),
        *_processor_rows(section),
    ]


def _processor_rows(section: EthosSection) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for part, folder, where in ((section.front, "front", "in front"), (section.processor, "cpu", "on the processor")):
        if part is not None:
            rows.append((where, f"{', '.join(part.operators)}; C project for {part.target} in {folder}/"))
            rows.append(("because", part.reason))
    return rows


def memory_text(figures: Figures) -> str:
    """``259 KB of Dram, 73 KB of Sram``."""
    return ", ".join(f"{used / _KILOBYTE:,.0f} KB of {name}" for name, used in figures.memory.items())


def program_rows(section: Section) -> list[tuple[str, ...]]:
    """The rows that describe a program for an accelerator: how the batch is shared, and the figures of the program."""
    allocation, figures = section.allocation, section.figures
    cluster = figures["cluster"]
    scopes = cluster["scopes"]
    together = allocation.rounds[0].split
    whose = "per cluster" if together == 1 else f"of {together} clusters"
    others = f", of the first of {len(section.programs)} programs" if len(section.programs) > 1 else ""
    return [
        ("batch", str(allocation)),
        ("variant", section.variant if section.order is None else f"{section.variant}, order {section.order}"),
        ("floats", section.floats),
        ("simulated time", f"{figures['cycles']:,.0f} cycles, {units.seconds(figures['seconds'])}"),
        ("throughput", f"{figures['throughput']:,.1f} samples/s"),
        ("lower bound / cycles", f"{cluster['lower_bound']['ratio']:.3f}"),
        ("tensors", f"{scopes['lb']} in LB, {scopes['gb']} in GB, {scopes['ddr']} in DDR"),
        ("instructions", f"{figures['instructions']:,} {whose}{others}"),
    ]


def memory_line(folder: Path) -> str:
    """The memory of a C project: ``memory: 4096 bytes for each context, 8192 bytes of weights for all``."""
    plan = Plan.from_json((folder / PLAN).read_text(encoding="utf-8"))
    return f"memory: {arena_text(plan)} for each context, {weight_bytes(plan)} bytes of weights for all"


def tuning_line(summary: TuningSummary) -> str:
    """``tuning: 200 trials (3 failed) of 34 kernels, 21 changed; 1.12x as fast as untuned``."""
    failed = f" ({summary.failed} failed)" if summary.failed else ""
    outcome = summary.problem or f"{summary.ratio:.2f}x as fast as untuned"
    if summary.kept == "untuned":
        outcome += ", so the untuned one is kept"
    line = f"tuning: {summary.trials} trials{failed} of {summary.tasks} kernels, {summary.changed} changed; {outcome}"
    enough = trials_for(summary.tasks)
    if summary.trials < enough:
        line += f"\nnote: this number of trials reaches the largest kernels only; --trials {enough} reaches all"
    return line if summary.learned else f"{line}\nnote: {_BY_ESTIMATES}"


def measurement_lines(summary: MeasurementSummary) -> Iterator[str]:
    """``measured: 84 steps; 1 kernel(s) compared, 1 replaced; unfused 1.3x; 310 ms``, and a line about each of these.

    Kernels are compared with variants if they are slow, or may be slower than their operators as kernels by themselves.
    Kernels that were wrong are not among them.
    """
    tried = [each for each in summary.kernels if not each.problem]
    loops = [each for each in tried if each.kernel.startswith(LOOP)]
    kernels = [each for each in tried if each not in loops]
    outcome = f"{len(kernels)} kernel(s) compared, {_count_replaced(kernels)} replaced" if kernels else "no slow kernel"
    if loops:
        outcome += f", {len(loops)} plain loop(s) compared, {_count_replaced(loops)} replaced"
    if summary.timed:
        unfused = f"; unfused {summary.apart / summary.fused:.2f}x" if summary.fused else ""
        yield f"measured: {summary.timed} steps; {outcome}{unfused}; {units.seconds(summary.seconds)}"
    if summary.problem:
        yield f"measured: {'no more' if summary.timed else 'nothing'} ({summary.problem})"
    yield from trial_lines(tried)


def _count_replaced(trials: Iterable[KernelTrials]) -> int:
    return sum(bool(each.chosen) for each in trials)


def fallback_line(manifest: Manifest) -> str:
    """``fallback: 2 ops (TopK, Loop) run in ONNX Runtime``."""
    operators = Counter(operator for entry in manifest.fallbacks for operator in entry.operators)
    if not operators:
        return "fallback: none, every kernel is compiled"
    count = operators.total()
    names = ", ".join(name if n == 1 else f"{n} {name}" for name, n in operators.most_common())
    return f"fallback: {count} op{'s' if count > 1 else ''} ({names}) run in ONNX Runtime"


def trial_lines(kernels: Iterable[KernelTrials]) -> Iterator[str]:
    """``kernel_1f0c42aa_conv_split: 1.4 ms, estimated 139 us; tried: ONNX Runtime 99 us; now ONNX Runtime``."""
    for each in kernels:
        seconds = f"{units.seconds(each.seconds)}, " if each.seconds else ""
        is_loop = each.kernel.startswith(LOOP)  # nothing predicts these
        took = seconds + ("a plain loop" if is_loop else f"estimated {units.seconds(each.estimate)}")
        tried = ", ".join(f"{trial.variant} {_trial_time(trial)}" for trial in each.trials)
        verdict = f"now {each.chosen}" if each.chosen else f"left as it was{_why_left(each)}"
        yield f"  {each.problem or each.kernel}: {took}; tried: {tried}; {verdict}"


def _why_left(kernel: KernelTrials) -> str:
    best = min((trial.seconds for trial in kernel.trials if trial.seconds), default=None)
    if best is None:
        return ", since nothing that was tried ran"
    if kernel.problem:
        return ""
    return ", since nothing is faster" if best >= kernel.seconds else ", since the model is not clearly faster with it"


def _trial_time(trial: Trial) -> str:
    """A layout is timed with the neighbouring kernels, which may gain more than the kernel takes."""
    if not trial.seconds:
        return "failed"
    if trial.seconds < 0:
        return f"saves its neighbours {units.seconds(-trial.seconds)} more than it takes"
    return units.seconds(trial.seconds)
