"""``eqfuse bench`` of a program for an accelerator: its simulated time, beside that of other ways to schedule it."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import EqfuseError, UsageError
from ...support.files import check_destination, staged_file
from .. import render
from ..progress import Progress
from ..terminal import write

if TYPE_CHECKING:
    from ...lowering.dsa.bundle.section import Section

Figures = dict[str, Any]


def bench_program(arguments: argparse.Namespace) -> int:
    """Print the time report, compare with another variant, and export the trace, as asked."""
    from ...lowering.bundle.bundle import whole
    from ...lowering.dsa.bundle.section import section_of

    _check(arguments)
    with Progress(arguments, "simulate"):
        section = section_of(whole(arguments.bundle).dsa, str(arguments.bundle))
        figures = {section.variant: dict(section.figures)}
        if arguments.against is not None:
            figures[_other_name(arguments.against, section.variant)] = _regenerated(arguments, section)
        if arguments.trace is not None:
            _export(arguments.bundle, arguments.trace)
    if arguments.json:
        render.print_json(_as_dict(section, figures))
    elif not arguments.quiet:
        _print(arguments, section, figures)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    for name in ("kernels", "emulate", "threads", "repeat", "arm64_root", "model"):
        if getattr(arguments, name):
            raise UsageError(f"--{name.replace('_', '-')}: {arguments.bundle} is a program for an accelerator, whose "
                             "time is simulated")  # fmt: skip
    if arguments.against == "ort":
        raise UsageError(f"--against ort: the time of {arguments.bundle} is simulated; name a variant to compare with")
    if arguments.trace is not None:
        check_destination(arguments.trace)


def _other_name(variant: str, own: str) -> str:
    return variant if variant != own else f"{variant} (again)"


def _regenerated(arguments: argparse.Namespace, section: Section) -> Figures:
    """The figures of another variant on what the bundle stores. Raises EqfuseError where it cannot be scheduled."""
    from ...lowering.dsa.bundle.files import read_network
    from ...lowering.dsa.compiler import Choices, program_for
    from ...lowering.dsa.schedule.variants import VARIANTS

    choices = Choices(VARIANTS[arguments.against])
    try:
        network = read_network(arguments.bundle)
        return program_for(network, section.device, section.allocation, choices).figures()
    except EqfuseError as error:
        raise EqfuseError(f"--against {arguments.against}: {error}") from error


def _export(bundle: Path, target: Path) -> None:
    from ...lowering.dsa.bundle.files import TRACE

    with staged_file(target) as staged:
        shutil.copyfile(bundle / TRACE, staged)


def summary_rows(section: Section) -> list[tuple[str, ...]]:
    """How the batch is shared, and the figures of all of it."""
    allocation, figures = section.allocation, section.figures
    cluster = figures["cluster"]
    share = (
        f"{allocation.batch}: {allocation.iterations} iteration(s) x {allocation.clusters} cluster(s) x "
        f"{allocation.per_cluster} sample(s)"
    )
    scopes = cluster["scopes"]
    return [
        ("batch", share),
        ("variant", section.variant if section.order is None else f"{section.variant}, order {section.order}"),
        ("floats", section.floats),
        ("simulated time", f"{figures['cycles']:,.0f} cycles, {render.seconds(figures['seconds'])}"),
        ("throughput", f"{figures['throughput']:,.1f} samples/s"),
        ("lower bound / cycles", f"{cluster['lower_bound']['ratio']:.3f}"),
        ("tensors", f"{scopes['lb']} in LB, {scopes['gb']} in GB, {scopes['ddr']} in DDR"),
        ("instructions", f"{figures['instructions']:,} per cluster"),
    ]


def _as_dict(section: Section, figures: dict[str, Figures]) -> dict[str, Any]:
    own, *others = figures.values()
    content: dict[str, Any] = {
        "device": section.device.name,
        "batch": section.allocation.batch,
        "allocation": {
            "iterations": section.allocation.iterations,
            "clusters": section.allocation.clusters,
            "per_cluster": section.allocation.per_cluster,
        },
        "variants": figures,
    }
    return content | ({"speed-up": others[0]["cycles"] / own["cycles"]} if others else {})


def _print(arguments: argparse.Namespace, section: Section, figures: dict[str, Figures]) -> None:
    title = f"{arguments.bundle}: {section.device.name}, simulated"
    render.table(title, ("", ""), summary_rows(section), left=2)
    columns = tuple(figures)
    render.table("one iteration of one cluster", ("", *columns), _rows(list(figures.values())), left=1)
    own, *others = figures.items()
    for name, other in others:
        write(f"speed-up over {name}: {other['cycles'] / own[1]['cycles']:.2f}x")
    if arguments.trace is not None:
        write(f"written: {arguments.trace}")


def _rows(columns: list[Figures]) -> list[tuple[str, ...]]:
    """Every figure of any of them, side by side."""
    tables = [_flat(each["cluster"]) for each in columns]
    names = dict.fromkeys(name for table in tables for name in table)
    return [(name, *(table.get(name, "-") for table in tables)) for name in names]


def _flat(cluster: Figures) -> dict[str, str]:
    found = {"cycles": f"{cluster['cycles']:,.0f}", "time": render.seconds(cluster["seconds"])}
    found |= {f"tensors in {level.upper()}": str(count) for level, count in cluster["scopes"].items()}
    found |= {f"{path}, bytes": f"{count:,}" for path, count in cluster["traffic"].items()}
    found |= {f"{level}, bytes read": f"{each['read']:,}" for level, each in cluster["levels"].items()}
    found |= {f"{level}, bytes written": f"{each['written']:,}" for level, each in cluster["levels"].items()}
    found |= {f"{unit} occupied": f"{share:.1%}" for unit, share in cluster["occupied"].items()}
    bound = dict(cluster["lower_bound"])
    ratio = bound.pop("ratio")
    found |= {f"lower bound, {name}": f"{cycles:,.0f} cycles" for name, cycles in bound.items() if name != "cycles"}
    found |= {
        f"{unit} with these kernels": f"{cycles:,.0f} cycles" for unit, cycles in cluster["scheduled_bound"].items()
    }
    return found | {"lower bound": f"{bound['cycles']:,.0f} cycles", "lower bound / cycles": f"{ratio:.3f}"}
