"""Whether models with free dimensions lose rules: each model is optimised as it is, and with its sizes fixed.

The sizes are the first at which the model runs in ONNX Runtime. Compared are the rules that match and the layers that
are left; a rule that matches at fixed sizes only either needs numbers, or a shape that is not known of free ones.

    python benchmarks/free_dimensions.py model.onnx folder/ [--dim H=32k] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.errors import EqfuseError
from eqfuse.lowering.running.onnx_runtime import RuntimeContest

_SECONDS = 300.0
"""To find sizes at which a model runs."""


@dataclass(frozen=True)
class Comparison:
    """A model with sizes free and fixed: its layers, and the rules that match in both runs, or in one only."""

    model: str
    shapes: dict[str, tuple[int, ...]]
    layers: int
    free_layers: int
    fixed_layers: int
    both: tuple[str, ...]
    only_free: tuple[str, ...]
    only_fixed: tuple[str, ...]

    @property
    def agreement(self) -> float:
        """The share of the rules that match at fixed sizes which match at free ones, too."""
        fixed = len(self.both) + len(self.only_fixed)
        return len(self.both) / fixed if fixed else 1.0


def has_free_dimensions(path: Path) -> bool:
    return any(not isinstance(d, int) or d < 0 for i in read(path).graph.inputs for d in i.shape or (None,))


def compare(path: Path, facts: Sequence[str]) -> Comparison:
    with RuntimeContest(path, (), 0, 1) as contest:
        shapes = contest.input_shapes(_SECONDS)
    free = eqfuse.optimize_with_result(path, dim=facts, verify=False)
    fixed = eqfuse.optimize_with_result(path, input_shapes=shapes, verify=False)
    free_rules, fixed_rules = ({rule.name for rule in run.saturation.matched} for run in (free, fixed))
    return Comparison(
        path.stem,
        shapes,
        free.before.layers,
        free.after.layers,
        fixed.after.layers,
        tuple(sorted(free_rules & fixed_rules)),
        tuple(sorted(free_rules - fixed_rules)),
        tuple(sorted(fixed_rules - free_rules)),
    )


def model_files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.onnx")) if path.is_dir() else (path,)


def report(comparisons: Sequence[Comparison]) -> None:
    console = Console()
    table = Table("model", "layers", "free", "fixed", "rules in both", "only free", "only fixed", "agreement")
    for row in comparisons:
        counts = (row.layers, row.free_layers, row.fixed_layers, len(row.both), len(row.only_free), len(row.only_fixed))
        table.add_row(row.model, *map(str, counts), f"{row.agreement:.1%}")
    console.print(table)
    both = sum(len(row.both) for row in comparisons)
    missing = Counter(name for row in comparisons for name in row.only_fixed)
    console.print(f"agreement over all rules of all models: {both / max(1, both + missing.total()):.1%}")
    for name, count in missing.most_common():
        console.print(f"  only at fixed sizes: {name} ({count} models)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--dim", action="append", default=[], help="a fact about the free dimensions; repeatable")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    comparisons = []
    for path in model_files(arguments.models):
        try:
            if has_free_dimensions(path):
                comparisons.append(compare(path, arguments.dim))
        except EqfuseError as error:
            Console(stderr=True).print(f"{path}: {error}", highlight=False)
    if arguments.json:
        print(json.dumps([{**asdict(row), "agreement": row.agreement} for row in comparisons], indent=2))
    else:
        report(comparisons)


if __name__ == "__main__":
    main()
