"""The order in which layers of instances run."""

from __future__ import annotations

from dataclasses import replace

from eqfuse.costmodels.dsa_device import DsaDevice, load_dsa_device, single_cluster
from eqfuse.lowering.dsa.codegen.running import running_order
from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.network.subgraphs import sub_graph
from eqfuse.lowering.dsa.program.instructions import Level
from eqfuse.lowering.dsa.schedule.grouping import Group, Split
from eqfuse.lowering.dsa.schedule.instances import instance_graph
from eqfuse.lowering.dsa.schedule.scheduler import Bindings, Schedule
from eqfuse.lowering.dsa.schedule.variants import FULL

from ..graphs import Builder

DEVICE = single_cluster(replace(load_dsa_device("stcp920"), global_buffer=1 << 17))
"""Three quarters of its GB are for feature maps, and the rest keeps 24 KB of weights besides what arrives."""
ABREAST = replace(FULL, abreast=True)
ONE, OTHER = range(2)


def order(widths: list[int], device: DsaDevice = DEVICE, rows: int = 64) -> list[tuple[int, int]]:
    """Instances and numbers of layers: two instances of products of 64 indices, each with an activation behind it."""
    builder = Builder()
    value = builder.value((2 * rows, 64))
    for width in widths:
        value = builder.relu(builder.gemm(value, width))
    network = Network(builder.graph(value))
    own = sub_graph(network, builder.layers)
    graph = instance_graph(network, [Group(own, Split(Level.LB, (0,), (2, 1), 0), ())])
    made = Schedule(device, graph, (ONE, OTHER), Bindings({}, {}))
    return [(instance, builder.layers.index(layer)) for instance, layer in running_order(made, ABREAST)]


def test_instances_take_turns_where_the_gb_does_not_keep_more_weights() -> None:
    """Two products have 16 KB of weights, three 24 and more: the activations belong to the turn of their product."""
    turns = [range(4), range(4, 6)]
    assert order([64, 64, 128]) == [(each, layer) for turn in turns for each in (ONE, OTHER) for layer in turn]


def test_instances_run_one_by_one_if_the_gb_keeps_all_weights() -> None:
    assert order([64, 64]) == [(each, layer) for each in (ONE, OTHER) for layer in range(4)]


ROWS_THAT_FILL_THE_GB = DEVICE.global_buffer * 3 // 4 // (2 * 64 * 2)
"""Of which the GB does not hold the maps of both instances."""


def test_instances_run_one_by_one_if_the_gb_does_not_hold_the_maps_of_both() -> None:
    device = replace(DEVICE, local_buffer=DEVICE.weight_buffer + 1024)
    expected = [(each, layer) for each in (ONE, OTHER) for layer in range(6)]
    assert order([64, 64, 128], device, ROWS_THAT_FILL_THE_GB) == expected


def test_the_lbs_hold_the_maps_of_the_instance_whose_turn_it_is() -> None:
    turns = [range(4), range(4, 6)]
    expected = [(each, layer) for turn in turns for each in (ONE, OTHER) for layer in turn]
    assert order([64, 64, 128], rows=ROWS_THAT_FILL_THE_GB) == expected
