"""Digits that the right side of a rule loses by cancellation, and what looks alike but is no loss."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np

from eqfuse.rules.records import read_file
from eqfuse.tools.checking.check import scratch_for
from eqfuse.tools.checking.oracles.cancellation import find_cancellation
from eqfuse.tools.checking.oracles.numeric import Counterexample
from eqfuse.tools.checking.sampling.hits import Hit, hits

from ..conftest import RECORD


def hits_of(folder: Path, left: str, right: str, conditions: str = "") -> list[Hit]:
    path = folder / "trial.egg"
    record = RECORD.format(sound="real", example=f"{left} => {right}")
    path.write_text(f'{record}(rewrite {left} {right} :when ({conditions}) :ruleset explore :name "trial")\n')
    file = read_file(path)
    return list(chain(*hits(file.rules[0], scratch_for(file))))


def lost(found: list[Hit], seeds: int) -> list[Counterexample]:
    tried = (find_cancellation(found, "real", np.random.default_rng(seed)) for seed in range(seeds))
    return [counterexample for counterexample in tried if counterexample is not None]


def test_difference_of_nearly_equal_numbers_loses_digits(tmp_path: Path) -> None:
    """2 sigmoid(2x) - 1 = tanh(x) is right over the reals alone."""
    one, two = (f'(Full (vec-empty) {number} "float32")' for number in ("1.0", "2.0"))
    found = hits_of(tmp_path, "(Tanh x)", f"(Sub (Mul {two} (Sigmoid (Mul {two} x))) {one})", '(= "float32" (dtype x))')
    assert lost(found, seeds=2)


def test_product_that_some_order_takes_out_of_range_keeps_nothing(tmp_path: Path) -> None:
    """The left side happens to multiply large and small factors in turn; no order is prescribed."""
    axes = "(vec-of 0 1)"
    left, right = f"(ReduceProd (Concat x y 1) {axes} k)", f"(Mul (ReduceProd x {axes} k) (ReduceProd y {axes} k))"
    sizes = '(= "float32" (dtype x)) (= (shape x) (vec-of 5 3)) (= (shape y) (vec-of 5 3))'
    assert lost(hits_of(tmp_path, left, right, sizes), seeds=20) == []
