"""Whether models with free dimensions lose rules: each model is optimised as it is, and with its sizes fixed, twice.

The first sizes are typical ones at which the model runs in ONNX Runtime, the second ones are larger, batches included.
A rule that matches at one of them only needs numbers (a dimension of 1, one larger than another) and says nothing of
free dimensions. A rule that matches at both, but not with the dimensions free, needs a fact that is not known of these.

    python benchmarks/free_dimensions.py model.onnx folder/ [--dim H=32k] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.errors import EqfuseError
from eqfuse.lowering.running.onnx_runtime import RuntimeContest

Shapes = dict[str, tuple[int, ...]]
"""Of inputs, by name."""
_SECONDS = 300.0
"""To find sizes at which a model runs, and for each optimisation: how fast the machine is must not decide."""


@dataclass(frozen=True)
class Comparison:
    """A model with sizes free and fixed: its layers, and the rules that match in both runs, or in one only.

    `only_some` are those that match at one of two fixed sizes only, and not with sizes free; `other_shapes` is {} where
    the model runs at no other sizes.
    """

    model: str
    shapes: Shapes
    other_shapes: Shapes
    layers: int
    free_layers: int
    fixed_layers: int
    both: tuple[str, ...]
    only_free: tuple[str, ...]
    only_fixed: tuple[str, ...]
    only_some: tuple[str, ...]

    @property
    def agreement(self) -> float:
        """The share of the rules that match at fixed sizes, whichever these are, which match at free ones, too."""
        return share(len(self.both), len(self.only_fixed))

    @property
    def agreement_with_numbers(self) -> float:
        """The same share of the rules that match at some fixed sizes."""
        return share(len(self.both), len(self.only_fixed) + len(self.only_some))


def share(both: int, missing: int) -> float:
    return both / (both + missing) if both + missing else 1.0


def has_free_dimensions(path: Path) -> bool:
    return any(not isinstance(d, int) or d < 0 for i in read(path).graph.inputs for d in i.shape or (None,))


def compare(path: Path, facts: Sequence[str]) -> Comparison:
    with RuntimeContest(path, (), 0, 1) as contest:
        shapes = contest.input_shapes(_SECONDS)
    other_shapes = next((other for other in larger_shapes(path, shapes) if runs(path, other)), {})
    optimize = partial(eqfuse.optimize_with_result, path, verify=False, time_limit=_SECONDS)
    free = optimize(dim=facts)
    fixed = [optimize(input_shapes=each) for each in (shapes, other_shapes) if each]
    free_rules, *fixed_rules = ({rule.name for rule in run.saturation.matched} for run in (free, *fixed))
    some, every = set().union(*fixed_rules), fixed_rules[0].intersection(*fixed_rules)
    return Comparison(
        path.stem,
        shapes,
        other_shapes,
        free.before.layers,
        free.after.layers,
        fixed[0].after.layers,
        tuple(sorted(free_rules & some)),
        tuple(sorted(free_rules - some)),
        tuple(sorted(every - free_rules)),
        tuple(sorted(some - every - free_rules)),
    )


def larger_shapes(path: Path, shapes: Shapes) -> Iterator[Shapes]:
    """Shapes in which each free dimension is a multiple of that in `shapes`, where possible another one for batches."""
    free = {i.name or "": tuple(i.shape or ()) for i in read(path).graph.inputs}
    for batch, other in _FACTORS:
        factors: dict[str, int] = {}
        for dimensions in free.values():
            for axis, dimension in enumerate(dimensions):
                if not isinstance(dimension, int):
                    factors[str(dimension)] = factors.get(str(dimension)) or (batch if axis == 0 else other)
        yield {
            name: tuple(
                size if isinstance(dimension, int) else size * factors[str(dimension)]
                for size, dimension in zip(sizes, free[name], strict=True)
            )
            for name, sizes in shapes.items()
        }


_FACTORS = ((3, 2), (3, 1), (1, 2))
"""Of batches, which are first dimensions, and of all other free dimensions, in the order to try them."""


def runs(path: Path, shapes: Shapes) -> bool:
    """Whether ONNX Runtime runs the model on zeros of these shapes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        session.run(None, {i.name: np.zeros(shapes[i.name], _DTYPES[i.type]) for i in session.get_inputs()})
    except Exception:  # of any of the runtime's own kinds
        return False
    return True


_DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


def model_files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.onnx")) if path.is_dir() else (path,)


def report(comparisons: Sequence[Comparison]) -> None:
    console = Console()
    columns = ("rules in both", "only free", "only fixed", "only some sizes", "agreement", "with those of some sizes")
    table = Table("model", "layers", "free", "fixed", *columns)
    for row in comparisons:
        rules = map(len, (row.both, row.only_free, row.only_fixed, row.only_some))
        counts = map(str, (row.layers, row.free_layers, row.fixed_layers, *rules))
        table.add_row(row.model, *counts, f"{row.agreement:.1%}", f"{row.agreement_with_numbers:.1%}")
    console.print(table)
    both = sum(len(row.both) for row in comparisons)
    missing = Counter(name for row in comparisons for name in row.only_fixed)
    some = Counter(name for row in comparisons for name in row.only_some)
    console.print(f"agreement over all rules of all models: {share(both, missing.total()):.1%}")
    console.print(f"those of some sizes included: {share(both, missing.total() + some.total()):.1%}")
    for text, names in (("fixed", missing), ("some", some)):
        for name, count in names.most_common():
            console.print(f"  only at {text} sizes: {name} ({count} models)")


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
        shares = ({"agreement": c.agreement, "agreement_with_numbers": c.agreement_with_numbers} for c in comparisons)
        print(json.dumps([asdict(c) | s for c, s in zip(comparisons, shares, strict=True)], indent=2))
    else:
        report(comparisons)


if __name__ == "__main__":
    main()
