"""The search over graphs and settings: never worse than Vela's defaults, and nothing that Vela refuses is silent."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from eqfuse.costmodels.ethos_device import EthosDevice, ethos_device
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.ethos_u import search as searching
from eqfuse.lowering.ethos_u.search import search
from eqfuse.lowering.ethos_u.tosa.graph import Graph
from eqfuse.lowering.ethos_u.vela import Estimate, Program, Setting

from .networks import emitted, float_model, quantised
from .test_emission import NETWORKS

HOUR = 3600.0


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return emitted(quantised(float_model(*NETWORKS["residual"]), tmp_path))[0].graph


def program(cycles: int, sram: int) -> Program:
    empty = Program.__dataclass_fields__["estimate"].default
    assert isinstance(empty, Estimate)
    estimate = Estimate(cycles, cycles, {"Sram": sram}, {}, 1, 0, 0, 0)
    return Program(np.empty(0), np.empty(0), estimate=estimate)


@pytest.mark.parametrize("device", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_the_choice_is_never_worse(device: str, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ethosu.regor", reason="pip install 'eqfuse[ethos-u]'")
    looks = count()
    monkeypatch.setattr(searching, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    lines: list[str] = []
    found = search([("as exported", graph)], ethos_device(device), 60, lines.append)
    assert found.program.estimate.cycles <= found.plain.estimate.cycles * (1.02 if device == "ethos-u55-128" else 1)
    assert found.candidates > 1
    assert str(found.first) == "as exported; Performance"


def test_a_refused_candidate_is_told(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(content: bytes, device: EthosDevice, setting: Setting) -> Program:
        if setting.disabled:
            raise LoweringError(f"Vela ({setting}): died")
        return program(100, 100)

    monkeypatch.setattr(searching, "compile_by_vela", refuse)
    lines: list[str] = []
    found = search([("as exported", graph)], ethos_device("ethos-u65-256"), HOUR, lines.append)
    assert found.refused
    assert all("died" in line for line in found.refused)
    assert [line for line in lines if "died" in line] == list(found.refused)
    assert found.choice == found.first


@pytest.mark.parametrize(("used", "cycles", "part"), [(1_000_000, 1015, 0.3), (200_000, 1000, 0.6)])
def test_shared_memory_is_saved_at_two_percent(
    used: int, cycles: int, part: float, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is plenty, at none."""

    def trade(content: bytes, device: EthosDevice, setting: Setting) -> Program:
        limit = setting.arena or used
        return program(1000 if limit > 0.6 * used else 1015 if limit > 0.3 * used else 1100, limit)

    monkeypatch.setattr(searching, "compile_by_vela", trade)
    found = search([("as exported", graph)], ethos_device("ethos-u55-128"), HOUR, lambda line: None)
    assert found.program.estimate.cycles == cycles
    assert part < found.program.estimate.sram / used < part + 0.1


def test_an_equal_form_is_not_compiled_again(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Setting] = []

    def note(content: bytes, device: EthosDevice, setting: Setting) -> Program:
        seen.append(setting)
        return program(100, 100)

    monkeypatch.setattr(searching, "compile_by_vela", note)
    search([("as exported", graph), ("as rewritten", graph)], ethos_device("ethos-u65-256"), 0.0, lambda line: None)
    assert len(seen) == 1


def test_rows_are_split_where_memory_is_shared(tmp_path: Path) -> None:
    """Vela's estimate of a Softmax whose integers of 32 bits are most of the memory."""
    pytest.importorskip("ethosu.regor", reason="pip install 'eqfuse[ethos-u]'")
    text = "a = MatMul(x, w) b = Softmax<axis=-1>(a) y = MatMul(b, v)"
    model = float_model(text, (1, 128, 48), {"w": (48, 96), "v": (96, 48)})
    made = emitted(quantised(model, tmp_path))[0].graph
    found = search([("as exported", made)], ethos_device("ethos-u55-128"), 30.0, lambda line: None)
    assert found.program.estimate.cycles <= 1.02 * found.plain.estimate.cycles
    assert found.program.estimate.sram < 0.6 * found.plain.estimate.sram
    assert any("in parts of" in each for each in found.choice.changes)


@pytest.mark.parametrize(("waits", "cycles"), [(50, 60), (0, 100)])
def test_where_the_network_waits_neighbourhoods_do_not_decide(
    waits: int, cycles: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbourhood without the SLICE is slower by its estimate, and the whole network is faster."""
    text = "a = Conv<kernel_shape=[1,1]>(x, w) y = Conv<kernel_shape=[1,1], strides=[2,2]>(a, v)"
    weights = {"w": (4, 4, 1, 1), "v": (6, 4, 1, 1)}
    whole = emitted(quantised(float_model(text, (1, 4, 8, 8), weights), tmp_path))[0].graph
    last = whole.operators[-1].output
    table = {"header": ["name", "op_cycles", "npu_cycles"], "data": [[last, str(waits + 40), "40"]]}

    def estimate(graph: Graph, device: EthosDevice, setting: Setting) -> Program:
        is_sliced = any(each.op == "SLICE" for each in graph.operators)
        if graph.outputs != whole.outputs or any("from outside" in name for name in graph.inputs):
            return program(10 if is_sliced else 20, 10)
        return replace(program(100 if is_sliced else 60, 10), layers={"perf": table})

    monkeypatch.setattr(searching, "to_bytes", lambda graph: graph)
    monkeypatch.setattr(searching, "compile_by_vela", estimate)
    found = search([("as exported", whole)], ethos_device("ethos-u85-256"), HOUR, lambda line: None)
    assert found.program.estimate.cycles == cycles
