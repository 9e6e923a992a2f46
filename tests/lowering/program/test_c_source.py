"""Generated C: what does not fit is refused, names are data, weights are aligned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.plan.plan import Buffer, Callback, Plan, PlanError
from eqfuse.lowering.program import c_source
from eqfuse.lowering.program.c_source import header, source, write_weights
from eqfuse.lowering.program.project import write_project

from ..plan.plans import chain

PLAN = replace(
    chain(4, 8, 2),
    buffers=(*chain(4, 8, 2).buffers, Buffer("w", "float32", (3,)), Buffer("v", "int64", (1,))),
    weights=(3, 4),
)
WEIGHTS: dict[int, np.ndarray] = {3: np.array([1, 2, 3], np.float32), 4: np.array([7], np.int64)}


def test_weights_start_at_multiples_of_a_line(tmp_path: Path) -> None:
    write_weights(PLAN, WEIGHTS, tmp_path / "weights.bin")
    blob = (tmp_path / "weights.bin").read_bytes()
    assert len(blob) == 128
    assert blob[:12] == WEIGHTS[3].tobytes()
    assert blob[64:72] == WEIGHTS[4].tobytes()


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6), block=st.sampled_from([64, 128, 1 << 24]))
def test_weights_are_written_in_blocks(sizes: list[int], block: int) -> None:
    buffers = tuple(Buffer(f"w{n}", "float32", (size,)) for n, size in enumerate(sizes))
    plan = replace(PLAN, buffers=(*chain(4, 8, 2).buffers, *buffers), weights=tuple(range(3, 3 + len(sizes))))
    arrays: dict[int, np.ndarray] = {n: np.full(plan.buffers[n].shape, n, np.float32) for n in plan.weights}
    with TemporaryDirectory() as folder, patch.object(c_source, "BLOCK_BYTES", block):
        write_weights(plan, arrays, Path(folder) / "weights.bin")
        values = np.fromfile(Path(folder) / "weights.bin", np.float32)
    expected = [np.pad(arrays[n], (0, -arrays[n].size % 16)) for n in plan.weights]
    assert np.array_equal(values, np.concatenate(expected))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({3: WEIGHTS[3]}, r"weight 4 \(v\): is int64 \(1,\), not nothing"),
        ({**WEIGHTS, 3: np.zeros(3)}, r"weight 3 \(w\): is float32 \(3,\), not float64 \(3,\)"),
        ({**WEIGHTS, 3: np.zeros((1, 3), np.float32)}, r"not float32 \(1, 3\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: dict[int, np.ndarray], message: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=message):
        write_weights(PLAN, weights, tmp_path / "weights.bin")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan((), (), (), (), ()), "at least one input and one output"),
        (replace(chain(4, 4), steps=(Callback(0, (0,), (1,)),)), "no other runtime to call"),
    ],
)
def test_a_project_without_a_host_program_is_refused_what_needs_one(plan: Plan, message: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=message):
        write_project(tmp_path, plan, {}, [])


def test_names_cannot_leave_their_string_or_comment() -> None:
    buffers = (Buffer('a"; */ int x;\n\u00e9?', "float32", (4,)), *PLAN.buffers[1:])
    plan = replace(PLAN, buffers=buffers)
    assert '{"a\\042; */ int x;\\012\\303\\251\\077", "<f4", 1, extents + 0, 16},' in source(plan)
    assert 'a"; *? int x; \u00e9?: float32 4, 16 bytes' in header(plan)
