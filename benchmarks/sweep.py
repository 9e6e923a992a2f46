"""Every network: a sweep over hundreds of architectures, as PyTorch and other tools export them, and what goes wrong.

Each network of `architectures/` is exported with random weights, exporters, fixed and free sizes taking turns (some
come in all forms with `--all-forms`), by the tools of `architectures/environments.py`, each in an environment of its
own, which are made in the work folder. What happens then has stages: `optimize` without options, its result timed in
ONNX Runtime beside the original (`optimize`); the same of onnxsim, onnxslim and onnxscript (`peers`);
`compile --threads 1` (`compile`); and the bundle timed beside ONNX Runtime, OpenVINO and MNN on one thread, in rounds,
by CPU time (`speed`).

A network's row is a file of the work folder, written after each stage: a run that was ended goes on, and what a row has
already is not done again, unless `--changed` finds that sources have changed which the stage runs.

    python benchmarks/sweep.py --work FOLDER                              # what is missing, the smallest models first
    python benchmarks/sweep.py --work FOLDER --changed                    # and what a change of the code can touch
    python benchmarks/sweep.py --work FOLDER --only swin llama --again    # these anew
    python benchmarks/sweep.py --work FOLDER --stages optimize --first 60
    python benchmarks/sweep.py --work FOLDER --table docs/benchmarks/sweep.md --section zen3 --quiet-machine

The peers: pip install onnxsim onnxslim onnxscript openvino MNN. A run of everything takes a day.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from eqfuse.benchmarks.architectures.exporting import Export
from eqfuse.benchmarks.sweeping.networks import export_networks, family_of
from eqfuse.benchmarks.sweeping.rows import STAGES, Row, Stage, read_row, write_row
from eqfuse.benchmarks.sweeping.stages import digest_of, do_stage
from eqfuse.benchmarks.sweeping.tables import causes_of, page_lines


def find_networks(options: argparse.Namespace) -> list[Export]:
    """Those that were exported, the smallest files first; the others are told. Raises ExportError without a tool."""
    networks = export_networks(options.only, options.all_forms, not options.no_export, options.work)
    exports = list(networks)
    failed = [each for each in exports if each.problem]
    for export in failed:
        print(f"not exported: {export.name}: {export.problem}", file=sys.stderr)
    ordered = sorted((e for e in exports if not e.problem), key=lambda export: export.path.stat().st_size)
    return ordered[: options.first]


def row_path(options: argparse.Namespace, export: Export) -> Path:
    """Where the row of a network is."""
    work: Path = options.work
    return work / "rows" / f"{export.name}.json"


def is_due(stage: Stage, row: Row, options: argparse.Namespace) -> bool:
    """Whether a stage is to be done."""
    if options.again or stage not in row.digests:
        return True
    return bool(options.changed) and row.digests[stage] != digest_of(stage)


def sweep_network(export: Export, options: argparse.Namespace) -> None:
    """Do the stages that are due, and keep the row after each."""
    path = row_path(options, export)
    row = read_row(path) or Row(export.name, family_of(export))
    for stage in options.stages:
        if is_due(stage, row, options):
            results = do_stage(stage, row, export, options.work / "results" / export.name)
            row = row.with_stage(stage, digest_of(stage), datetime.now(UTC).date().isoformat(), **results)
            write_row(row, path)
            causes = "; ".join(causes_of(row)) or "nothing amiss"
            print(f"{export.name}, {stage}: {causes}", file=sys.stderr, flush=True)


def read_rows(options: argparse.Namespace) -> list[Row]:
    """All rows of the work folder, by name."""
    found = (read_row(path) for path in sorted((options.work / "rows").glob("*.json")))
    return [row for row in found if row is not None]


def write_table(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Put the table between the marks of its section in the page, which keeps everything else."""
    page: Path = options.table
    name = f"sweep {options.section}".strip()
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if start not in text:
        text += f"{start}\n{end}\n"
    before, _, rest = text.partition(start)
    after = rest.partition(end)[2]
    lines = "\n".join(page_lines(rows, options.quiet_machine))
    page.write_text(f"{before}{start}\n{lines}\n{end}{after}", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """The options."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--work", type=Path, required=True, metavar="FOLDER", help="models, environments and rows")
    result.add_argument("--only", nargs="+", default=[], metavar="NAME", help="parts of architectures' names")
    result.add_argument("--all-forms", action="store_true", help="some architectures in all forms that exporters have")
    result.add_argument("--no-export", action="store_true", help="only networks that have been exported")
    result.add_argument("--first", type=int, metavar="N", help="only the N smallest networks")
    result.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, metavar="STAGE", help="only these")
    result.add_argument("--changed", action="store_true", help="redo stages whose sources have changed")
    result.add_argument("--again", action="store_true", help="redo everything that is asked for")
    result.add_argument("--table", type=Path, metavar="FILE", help="write the table of the rows into a page, and end")
    result.add_argument("--section", default="", metavar="NAME", help="with --table: of the page, one for a processor")
    result.add_argument("--quiet-machine", action="store_true", help="with --table: nothing else ran meanwhile")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    options = parser().parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.table:
        write_table(read_rows(options), options)
        return
    for export in find_networks(options):
        sweep_network(export, options)


if __name__ == "__main__":
    main()
