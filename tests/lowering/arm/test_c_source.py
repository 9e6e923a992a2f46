"""Generated C: what does not fit is refused, names are data, weights are aligned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eqfuse.lowering.arm.c_source import generate
from eqfuse.lowering.arm.plan import Buffer, Plan, PlanError

from .plans import chain

PLAN = replace(
    chain(4, 8, 2),
    buffers=(*chain(4, 8, 2).buffers, Buffer("w", "float32", (3,)), Buffer("v", "int64", (1,))),
    weights=(3, 4),
)
WEIGHTS: dict[int, np.ndarray] = {3: np.array([1, 2, 3], np.float32), 4: np.array([7], np.int64)}


def test_weights_start_at_multiples_of_a_line() -> None:
    blob = generate(PLAN, WEIGHTS).weights
    assert len(blob) == 128
    assert blob[:12] == WEIGHTS[3].tobytes()
    assert blob[64:72] == WEIGHTS[4].tobytes()


def test_the_same_plan_gives_the_same_text() -> None:
    assert generate(PLAN, WEIGHTS) == generate(PLAN, dict(reversed(WEIGHTS.items())))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({3: WEIGHTS[3]}, r"weight 4 \(v\): is int64 \(1,\), not nothing"),
        ({**WEIGHTS, 3: np.zeros(3)}, r"weight 3 \(w\): is float32 \(3,\), not float64 \(3,\)"),
        ({**WEIGHTS, 3: np.zeros((1, 3), np.float32)}, r"not float32 \(1, 3\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: dict[int, np.ndarray], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        generate(PLAN, weights)


def test_no_inputs_is_refused() -> None:
    with pytest.raises(PlanError, match="at least one input and one output"):
        generate(Plan((), (), (), (), ()), {})


def test_names_cannot_leave_their_string_or_comment() -> None:
    buffers = (Buffer('a"; */ int x;\n\u00e9?', "float32", (4,)), *PLAN.buffers[1:])
    model = generate(replace(PLAN, buffers=buffers), WEIGHTS)
    assert '{"a\\042; */ int x;\\012\\303\\251\\077", "<f4", 1, shape_0, 16},' in model.source
    assert 'a"; *? int x; \u00e9?: float32 4, 16 bytes' in model.header
