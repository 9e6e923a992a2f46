"""What is done with a network, stage by stage: optimised here and by others, compiled, and timed beside others."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from eqfuse.engine.verification.inputs.given import Sample
from eqfuse.lowering.plan.kernel_facts import KERNELS, read_table
from eqfuse.lowering.running.turns import Estimate
from eqfuse.support.errors import BUDGET_HIT
from eqfuse.support.store import source_digest

from ..architectures.exporting import Export
from ..latency import MNN, OPENVINO, OURS, REFERENCE, Record, compete
from ..measuring.contestants import Setup
from ..measuring.results import judge_result, time_result
from ..optimize import PEERS as OPTIMIZERS
from ..optimize import count_layers
from .commands import run_command, run_eqfuse
from .networks import write_inputs
from .rows import Compiled, Optimized, Peer, Ratio, Row, Stage, Timed

_PAIRS = 0.7
"""Seconds of pairs in each session by which a result is compared with its original."""
_ROUNDS = argparse.Namespace(rounds=15, turn=0.03)
"""Turns of each contestant, and their seconds."""
_RUNTIMES = (REFERENCE, OPENVINO, MNN)
_OPTIMIZING = ("cli", "costmodels", "driver", "engine", "extract", "ir", "rules", "support")
"""Packages that `optimize` runs; `compile` runs `lowering` as well."""
_BUNDLE, _RESULT = "bundle", "eqfuse.onnx"


@cache
def digest_of(stage: Stage) -> str:
    """Of the sources that a change of a stage's results can come from. Other optimisers do not change with them."""
    if stage == "peers":
        return "peers"
    packages = _OPTIMIZING if stage == "optimize" else (*_OPTIMIZING, "lowering")
    return source_digest(*packages)[:16]


def do_stage(stage: Stage, row: Row, export: Export, folder: Path) -> Mapping[str, Any]:
    """The fields of the row that the stage gives. The folder keeps what later stages need."""
    folder.mkdir(parents=True, exist_ok=True)
    if stage == "optimize":
        return {"optimized": optimize(export, folder)}
    if stage == "peers":
        return {"peers": {tool: ask_peer(tool, export, folder) for tool in OPTIMIZERS}}
    if stage == "compile":
        return {"compiled": compile_network(export, folder)}
    return {"timed": time_network(export, folder, row)}


# --- optimised


def optimize(export: Export, folder: Path) -> Optimized:
    """Optimise without options, and time the result in ONNX Runtime."""
    result = folder / _RESULT
    ended = run_eqfuse("optimize", str(export.path), "-o", str(result), "--json", "--quiet")
    if ended.code not in (0, BUDGET_HIT):
        return Optimized(ended.code, ended.message, ended.wall, ended.cpu, ended.peak)
    content = json.loads(ended.printed)
    before, after = content["before"], content["after"]
    return Optimized(
        ended.code, ended.message, ended.wall, ended.cpu, ended.peak, (before["layers"], after["layers"]),
        (before["flops"], after["flops"]), _latency(export, result, folder),
        round(after["predicted"] / before["predicted"], 4),
    )  # fmt: skip


def _latency(export: Export, result: Path, folder: Path) -> Ratio | None:
    with np.load(write_inputs(export, folder / "inputs") / "0.npz") as arrays:
        sample = Sample("ordinary", dict(arrays))
    estimate = time_result(export.path, result, sample, 1, _PAIRS)
    return _ratio(estimate) if estimate else None


def _ratio(estimate: Estimate) -> Ratio:
    return Ratio(*(round(each, 4) for each in (estimate.median, estimate.lower, estimate.upper)))


def ask_peer(tool: str, export: Export, folder: Path) -> Peer:
    """Optimise with another tool, compare its result as eqfuse verifies its own, and time it."""
    result, figures = folder / f"{tool}.onnx", folder / "figures.json"
    program = str(Path(__file__).parent.parent / "optimize.py")
    ended = run_command([sys.executable, program, "--work", tool, str(export.path), str(result), str(figures)])
    if ended.code or not result.exists():
        return Peer(ended.cpu, f"exit {ended.code}: {ended.message}")
    verdict = judge_result(export.path, result, None)
    if verdict.is_wrong:
        return Peer(ended.cpu, f"{verdict.status}: {verdict.reason}")
    layers = count_layers(onnx.load(result, load_external_data=False).graph, set())
    return Peer(ended.cpu, "", layers, _latency(export, result, folder))


# --- compiled


def compile_network(export: Export, folder: Path) -> Compiled:
    """Compile for one thread, without other options."""
    bundle = folder / _BUNDLE
    shutil.rmtree(bundle, ignore_errors=True)
    ended = run_eqfuse("compile", str(export.path), "-o", str(bundle), "--threads", "1", "--json", "--quiet")
    if ended.code not in (0, BUDGET_HIT):
        return Compiled(ended.code, ended.message, ended.wall, ended.cpu, ended.peak)
    content = json.loads(ended.printed)
    manifest, origin = content["manifest"], content["manifest"]["provenance"]
    steps = json.loads((bundle / KERNELS).read_text(encoding="utf-8"))["steps"]
    return Compiled(
        ended.code, ended.message, ended.wall, ended.cpu, ended.peak, origin["operators"], origin["kernels"],
        tuple(f"{' '.join(each['operators'])}: {each['reason']}" for each in manifest["fallbacks"]),
        tuple(" ".join(step["operators"]) for step in steps if step["kind"] == "loops"),
        tuple(origin["replaced"]), {phase: round(seconds, 2) for phase, seconds in content["phases"].items()},
    )  # fmt: skip


# --- timed


def time_network(export: Export, folder: Path, row: Row) -> Timed | None:
    """Take turns with the peers on one thread; None for a network that has no bundle."""
    bundle = folder / _BUNDLE
    if row.compiled is None or row.compiled.code not in (0, BUDGET_HIT) or not bundle.exists():
        return None
    inputs = write_inputs(export, folder / "inputs")
    record = Record(row.network, row.family)
    setups = {(OURS, 1): Setup(OURS, export.path, 1, bundle, inputs)}
    setups.update({(peer, 1): Setup(peer, export.path, 1, None, inputs) for peer in _RUNTIMES})
    compete(record, setups, _ROUNDS)
    medians = {who[0]: seconds for who in record.samples if (seconds := record.median(who)) is not None}
    peers = {tool: seconds for tool, seconds in medians.items() if tool != OURS}
    roofline = None if export.form.is_free else sum(each.roofline * each.calls for each in read_table(bundle))
    timed = Timed(medians, "", None, roofline, round(record.others, 2), tuple(record.problems))
    if not peers or OURS not in medians:
        return timed
    best = min(peers, key=peers.__getitem__)
    ratios = [theirs / ours for theirs, ours in zip(record.times((best, 1)), record.times((OURS, 1)), strict=True)]
    return replace(timed, best_peer=best, ratio=_ratio(Estimate.of(ratios)))
