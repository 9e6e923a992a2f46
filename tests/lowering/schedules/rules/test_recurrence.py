"""Recurrences in register tiles compute what ONNX Runtime computes, for processors of several kinds."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tvm
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from eqfuse.costmodels.device import load_device
from eqfuse.ir.operators import evaluate
from eqfuse.ir.operators.recurrent import read_cell
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.compute.recurrent_tiling import Pass, RecurrenceTiling, RecurrentWeights
from eqfuse.lowering.kernels.prim_funcs import lower_kernel
from eqfuse.lowering.schedules import mark_constants, schedule
from eqfuse.lowering.schedules.rules.recurrence import list_plans

from ....ir.recurrent_calls import LARGE, Array, RecurrentCall, assert_close, recurrent_calls
from ....properties import examples
from ...in_tvm import Call

WEIGHTS = ("w", "r", "b", "p")


def run(call: RecurrentCall, device: str, threads: int) -> tuple[list[Array], str]:
    """The outputs of a call whose kernel is scheduled for a device, and the rule."""
    model = Call(call.model, call.feeds)
    graph, values = model.graph.at_call, model.values
    function = lower_kernel(graph, range(len(graph)), "main")
    constants = tuple(n for n, value in enumerate(function.inputs) if graph.values[value].is_constant)
    scheduled = schedule(mark_constants(function.prim_func, constants), load_device(device), threads)
    target = tvm.target.Target(target_of(device, threads).description)
    with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):
        library = tvm.compile(scheduled.schedule.mod, target=target)
    arguments = []
    for position, value in enumerate(function.inputs):
        array = np.array(values[graph.values[value].name], order="C")
        for packing in scheduled.repack:
            array = packing(array) if packing.parameter == position else array
        arguments.append(tvm.runtime.tensor(array))
    x, r = (call.operands[name] for name in ("x", "r"))
    assert x is not None
    assert r is not None
    state = np.full((len(r), x.shape[1], call.hidden), np.nan, x.dtype)
    empty = {"y": np.full((len(x), *state.shape), np.nan, x.dtype)}
    shaped = [call.swap(name, empty.get(name, state)) for name in call.outputs]
    outputs = [tvm.runtime.tensor(array.flatten().reshape(array.shape)) for array in shaped]
    library["main"](*arguments, *outputs)
    return [output.numpy() for output in outputs], scheduled.rule


def by_the_table(call: RecurrentCall) -> list[Array]:
    """What the operator table says that a call computes, for ONNX Runtime has no float64."""
    operands = [None if array is None else call.swap(name, array) for name, array in call.operands.items()]
    literals = (call.hidden, call.direction, call.layout, json.dumps(call.config))
    return list(evaluate(call.op, [*operands, *literals]))


@settings(examples(2), phases=[Phase.explicit, Phase.generate])
@given(
    call=recurrent_calls(largest=19), device=st.sampled_from(["host", "x86-64-v3"]), threads=st.sampled_from([1, 2]),
    weights=st.sampled_from([WEIGHTS, ()]), is_free=st.booleans(),
)  # fmt: skip
def test_computes_what_onnx_runtime_does(
    call: RecurrentCall, device: str, threads: int, weights: tuple[str, ...], is_free: bool
) -> None:
    constants = tuple(name for name in weights if call.operands.get(name) is not None)
    results, rule = run(replace(call, weights=constants, is_free=is_free), device, threads)
    assert "recurrence" in rule
    assert_close(results, call.in_onnx_runtime())


@settings(examples(1), phases=[Phase.explicit, Phase.generate])
@given(call=recurrent_calls(largest=9, dtype="float64"), is_free=st.booleans())
def test_computes_in_float64(call: RecurrentCall, is_free: bool) -> None:
    results, _ = run(replace(call, weights=("w", "r"), is_free=is_free), "host", 1)
    for result, answer in zip(results, by_the_table(call), strict=True):
        assume(np.abs(answer).max() < LARGE)
        np.testing.assert_allclose(result, answer, rtol=1e-9, atol=1e-12)


def test_no_steps_leave_the_states_as_they_were() -> None:
    state = np.ones((1, 2, 3), np.float32)
    operands = {
        "x": np.zeros((0, 2, 4), np.float32), "w": np.ones((1, 12, 4), np.float32),
        "r": np.ones((1, 12, 3), np.float32), "b": None, "lengths": None, "h": state, "c": 2 * state, "p": None,
    }  # fmt: skip
    call = RecurrentCall("LSTM", 3, "forward", {}, operands, ("y", "last", "cell"), ("w", "r"), is_free=True)
    (_, last, cell), _ = run(call, "host", 1)
    np.testing.assert_array_equal(last, state)
    np.testing.assert_array_equal(cell, 2 * state)


@given(
    kind=st.sampled_from(["RNN", "GRU", "LSTM"]), hidden=st.sampled_from([64, 100, 512]), batch=st.integers(2, 40),
    device=st.sampled_from(["host", "x86-64-v3", "arm-cortex-a76"]),
)  # fmt: skip
def test_sequences_of_a_batch_share_the_weights_that_a_tile_reads(
    kind: str, hidden: int, batch: int, device: str
) -> None:
    plans = list_plans(read_cell(kind, hidden, "forward", "{}"), batch, "float32", load_device(device))
    assert min(plans, key=lambda plan: plan.cycles).tiling.rows > 1


@pytest.mark.parametrize("has_state", [False, True])
def test_the_first_step_multiplies_the_state_only_where_there_is_one(has_state: bool) -> None:
    r = np.full((1, 3, 3), np.inf, np.float32)
    operands = {
        "x": np.ones((1, 2, 4), np.float32), "w": np.ones((1, 3, 4), np.float32), "r": r, "b": None, "lengths": None,
        "h": np.ones((1, 2, 3), np.float32) if has_state else None,
    }  # fmt: skip
    call = RecurrentCall("RNN", 3, "forward", {"activations": ["Relu"]}, operands, ("y", "last"), ("w", "r"))
    (states, _), _ = run(call, "host", 1)
    np.testing.assert_array_equal(states, np.inf if has_state else 4.0)


@given(hidden=st.integers(1, 40), rows=st.integers(1, 3), lanes=st.sampled_from([1, 4, 8]), gates=st.integers(1, 4))
def test_packed_weights_stand_in_the_order_they_are_read(hidden: int, rows: int, lanes: int, gates: int) -> None:
    lanes = min(lanes, hidden)
    weights = RecurrentWeights(0, hidden, RecurrenceTiling((Pass(0, gates),), rows, lanes))
    array = np.arange(2 * gates * hidden * hidden).reshape(2, gates * hidden, hidden)
    packed = weights(array)
    assert packed.shape == weights.packed_shape(array.shape)
    tiles = packed.reshape(2, weights.tiles(0), hidden, gates, lanes)
    for tile in range(weights.tiles(0)):
        unit = min(tile * lanes, hidden - lanes)
        for gate in range(gates):
            rows_of_gate = array[:, gate * hidden + unit : gate * hidden + unit + lanes]
            np.testing.assert_array_equal(tiles[:, tile, :, gate], rows_of_gate.transpose(0, 2, 1))
