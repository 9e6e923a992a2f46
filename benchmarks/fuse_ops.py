"""Whether this project's FuseOps draws the groups that TVM's own does, on whole networks.

TVM's ONNX front end reads a model; both passes then run on the same calls of loop nests, at each level of optimisation
and at each depth below. Networks that the front end does not read are listed with its message.

    python benchmarks/fuse_ops.py FOLDER model.onnx
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from tvm.relax.frontend.onnx import from_onnx

from eqfuse.benchmarks.measuring import tvm_groups
from eqfuse.extract.partition.baselines.fuse_ops import FuseOpsLimits

LIMITS = tuple(FuseOpsLimits(fuse_opt_level=level, max_fuse_depth=depth) for level in (0, 2) for depth in (1, 5, 256))
"""What the two are compared with: no fusion, and fusion up to 1, 5 and 256 operators."""


@dataclass(frozen=True)
class Comparison:
    """One network: its calls of loop nests, and by level and depth TVM's groups and whether ours are the same."""

    calls: int
    groups: Mapping[FuseOpsLimits, int]
    is_equal: Mapping[FuseOpsLimits, bool]


def compare(model: onnx.ModelProto) -> Comparison:
    """Both on one network. Raises whatever TVM's front end raises, which may be anything."""
    module = tvm_groups.legalised(from_onnx(model, keep_params_in_input=True))
    graph = tvm_groups.forward_graph_of(module)
    found = {limits: tvm_groups.fused(module, limits.max_fuse_depth, limits.fuse_opt_level) for limits in LIMITS}
    return Comparison(
        calls=len(graph.node_of),
        groups={limits: len(groups) for limits, groups in found.items()},
        is_equal={limits: groups == tvm_groups.grouped(graph, limits) for limits, groups in found.items()},
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="files and folders of models")
    files = [f for p in parser.parse_args().models for f in (sorted(p.rglob("*.onnx")) if p.is_dir() else [p])]
    compared: list[Comparison] = []
    refusals: Counter[str] = Counter()
    for file in files:
        try:
            compared.append(compare(onnx.load(file)))
        except Exception as error:  # the front end has no error of its own
            reason = (str(error).strip().splitlines() or [""])[-1]
            refusals[f"{type(error).__name__}: {reason}"] += 1
            print(f"{file.stem}: not read: {reason}", flush=True)
            continue
        unlike = [limits for limits, is_equal in compared[-1].is_equal.items() if not is_equal]
        verdict = f"DIFFERS: {unlike}" if unlike else "the same"
        print(f"{file.stem}: {compared[-1].calls} calls, {verdict}", flush=True)
    print(f"{len(files)} networks, of which TVM reads {len(compared)}, {sum(each.calls for each in compared)} calls")
    for limits in LIMITS:
        equal = sum(each.is_equal[limits] for each in compared)
        groups = sum(each.groups[limits] for each in compared)
        print(f"level {limits.fuse_opt_level}, depth {limits.max_fuse_depth}: {groups} groups, {equal} networks equal")


if __name__ == "__main__":
    main()
