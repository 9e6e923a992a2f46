"""What a report draws of a simulated run."""

from __future__ import annotations

import dataclasses

import pytest

from eqfuse.costmodels.systolic import Product
from eqfuse.lowering.dsa.program.instructions import (
    INITIAL,
    Level,
    Program,
    Role,
    Unit,
    Work,
)
from eqfuse.lowering.dsa.report.run import engine_spans, fillings, layer_rows
from eqfuse.lowering.dsa.simulate.time_report import busy_cycles
from eqfuse.lowering.dsa.simulate.timing import Timeline, simulate_time

from ..accelerator_programs import DEVICE, Builder, layer_program
from ..simulate.test_timing import compute


def timeline() -> Timeline:
    return simulate_time(layer_program(), dataclasses.replace(DEVICE, clock=2e9))


def test_spans_of_an_engine_are_what_it_is_busy_with() -> None:
    run = timeline()
    spans = engine_spans(run)
    assert list(spans) == run.program.engines()
    assert {span.kind for row in spans.values() for span in row} == {"dma", "hoist", "copy", "mme", "vector"}
    for engine, busy in busy_cycles(run).items():
        assert sum(span.end - span.start for span in spans[engine]) == pytest.approx(busy)


def test_what_is_too_small_to_see_is_drawn_together() -> None:
    builder = Builder()
    for _ in range(5000):
        builder.add(compute(0, Work(Unit.VECTOR, 16)))
    builder.add(compute(0, Work(Unit.MME, products=(Product(4, 8, 4990),))))
    spans = engine_spans(simulate_time(builder.program(), DEVICE))
    assert sum(map(len, spans.values())) < 2500


def test_memories_are_as_full_as_the_buffers_that_live() -> None:
    """Counted once more at the middle of each part of the run."""
    run = timeline()
    uses: dict[str, list[float]] = {}
    for each, start, end in zip(run.program.instructions, run.starts, run.ends, strict=True):
        for region in (*each.reads, *each.writes):
            uses.setdefault(region.buffer, []).extend((start, end))
    found = {each.name: each for each in fillings(run)}
    assert found.keys() == {str(each.memory) for each in run.program.buffers if each.memory.level is not Level.DDR}
    for name, filling in found.items():
        assert 0 < max(filling.most) <= filling.capacity
        for part, most in enumerate(filling.most):
            now = (part + 0.5) * run.cycles / len(filling.most)
            held = sum(
                each.size
                for each in run.program.buffers
                if str(each.memory) == name and each.name in uses
                and (each.role in INITIAL or min(uses[each.name]) <= now)
                and (each.role is Role.OUTPUT or now < max(uses[each.name]))
            )  # fmt: skip
            assert most >= held


def test_layers_have_the_tiles_and_times_of_their_computations() -> None:
    run = timeline()
    rows = list(layer_rows(run))
    assert sum(row.tiles for row in rows) == sum(hasattr(each, "kernel") for each in run.program.instructions)
    assert [row.start for row in rows] == sorted(row.start for row in rows)
    assert all(row.start < row.end <= run.cycles and row.cycles > 0 for row in rows)


def test_an_empty_run_has_nothing_to_draw() -> None:
    run = simulate_time(Program("p", "d", 1, (), ()), DEVICE)
    assert (engine_spans(run), [*fillings(run)], [*layer_rows(run)]) == ({}, [], [])
