"""The comparison with ZigZag, as far as it needs no ZigZag."""

from __future__ import annotations

from math import prod

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.benchmarks.accelerators.one_core import Core, Ours, layer
from eqfuse.benchmarks.accelerators.zigzag_layers import Case, Theirs, ZigZagRow, accelerator_of, cases, print_table
from eqfuse.costmodels.dsa_device import Dataflow
from eqfuse.costmodels.systolic import Product

PRODUCT = Product(100, 64, 64)
"""Four folds."""
CORE = Core(3 << 16, 64, Dataflow.WEIGHT_STATIONARY)
AHEAD = Core(3 << 16, 64, Dataflow.WEIGHT_STATIONARY, loads_ahead=True)
CYCLES = st.integers(1, 10**6)


def row(core: Core, ours: Ours, theirs: Theirs) -> ZigZagRow:
    return ZigZagRow(Case("a layer", layer(PRODUCT), (PRODUCT,)), core, ours, theirs)


def test_an_array_that_loads_ahead_has_room_for_two_weights_in_each_cell() -> None:
    one, two = accelerator_of(CORE), accelerator_of(AHEAD)
    assert (one["memories"].pop("cells")["size"], two["memories"].pop("cells")["size"]) == (16, 32)
    assert one == two


def test_the_memories_have_the_words_and_the_bandwidth_of_the_core() -> None:
    memories = accelerator_of(Core(1000, 10, Dataflow.WEIGHT_STATIONARY))["memories"]
    assert memories["scratchpad"]["size"] == 16 * 1000
    assert [port["bandwidth_max"] for port in memories["dram"]["ports"]] == [16 * 10]


def test_products_are_those_of_the_models() -> None:
    for case in cases():
        graph = onnx.shape_inference.infer_shapes(case.model).graph
        values = (*graph.value_info, *graph.output)
        shapes = {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim] for value in values}
        weights = {weight.name: weight.dims for weight in graph.initializer}
        nodes = [node for node in graph.node if node.op_type in ("Conv", "MatMul")]
        outputs = 0 if nodes[0].op_type == "Conv" else 1
        macs = [
            prod(shapes[node.output[0]]) * prod(weights[node.input[1]]) // weights[node.input[1]][outputs]
            for node in nodes
        ]
        assert [product.macs for product in case.products] == macs


@given(CYCLES, CYCLES, CYCLES, CYCLES, CYCLES, st.booleans())
def test_the_difference_is_the_sum_of_its_parts(
    computing: int, waiting: int, array: int, stalls: int, loading: int, ahead: bool
) -> None:
    ours, theirs = Ours(computing, computing + waiting, 1), Theirs(array, stalls, array + stalls + loading, 1)
    made = row(AHEAD if ahead else CORE, ours, theirs)
    assert sum(made.parts.values()) == pytest.approx(ours.total - theirs.total)


@pytest.mark.parametrize(
    ("made", "reasons"),
    [
        (row(CORE, Ours(776, 950, 9), Theirs(462, 128, 900, 9)), []),
        (row(CORE, Ours(776, 1050, 9), Theirs(462, 128, 900, 9)), ["folds"]),
        (row(AHEAD, Ours(900, 1200, 9), Theirs(462, 0, 800, 9)), ["tiles"]),
        (row(AHEAD, Ours(462, 800, 9), Theirs(462, 0, 600, 9)), ["waits"]),
        (row(AHEAD, Ours(462, 500, 9), Theirs(462, 0, 900, 9)), ["waits"]),
    ],
)
def test_large_differences_have_reasons(made: ZigZagRow, reasons: list[str]) -> None:
    assert list(made.reasons()) == reasons


def test_the_table_has_both_counts(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([row(AHEAD, Ours(900, 1200, 7), Theirs(462.0, 3.0, 800.0, 9.0))])
    cells = capsys.readouterr().out.splitlines()[-1].strip("| ").split(" | ")
    assert cells[:7] == ["a layer", "100 x 64 x 64", "64", "yes", "900", "1,200", "7"]
    assert cells[7:] == ["462", "3", "800", "9", "+50%", "+0", "+438", "-38", "tiles"]
