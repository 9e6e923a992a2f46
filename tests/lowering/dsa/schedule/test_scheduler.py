"""Properties of every schedule, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from eqfuse.ir.graph import Value
from eqfuse.ir.types import TensorType
from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.network.boxes import Box, contains, intersection, size, whole
from eqfuse.lowering.dsa.network.core_factors import core_count
from eqfuse.lowering.dsa.program.instructions import Level
from eqfuse.lowering.dsa.schedule.instances import InstanceGraph, instance_graph
from eqfuse.lowering.dsa.schedule.orders import bfs_order, dfs_order
from eqfuse.lowering.dsa.schedule.scheduler import Schedule

from ....properties import examples
from ..graphs import HALVING_LOCAL_BYTES, Builder, accelerator, halving_stages
from ..random_graphs import Case, cases
from ..scheduled import schedule

PROPERTY = examples(8)


def scheduled(case: Case) -> Schedule:
    graph, layers, device, up_sampling = case
    return schedule(graph, layers, device, up_sampling=up_sampling)


def counts(boxes: list[Box], shape: tuple[int, ...]) -> np.ndarray:
    found = np.zeros(shape, int)
    for box in boxes:
        found[tuple(slice(*interval) for interval in box)] += 1
    return found


@PROPERTY
@given(cases())
def test_every_layer_is_in_one_sub_graph(case: Case) -> None:
    found = scheduled(case)
    layers = [layer for g in found.graph.groups for layer in g.subgraph.layers]
    assert sorted(layers) == sorted(case[1])


@PROPERTY
@given(cases())
def test_instances_make_every_element_of_every_output_once(case: Case) -> None:
    found = scheduled(case)
    for number, item in enumerate(found.graph.groups):
        for value in item.subgraph.outputs:
            boxes = [i.written[value] for i in found.graph.instances if i.subgraph == number and value in i.written]
            assert (counts(boxes, found.network.shapes[value]) == 1).all()


@PROPERTY
@given(cases())
def test_what_an_instance_writes_and_reads_inside_is_covered(case: Case) -> None:
    """Each operator finds all that it needs in what its instance has of its operands."""
    found = scheduled(case)
    network = found.network
    for instance in found.graph.instances:
        for value, box in instance.written.items():
            assert contains(instance.needed[value], box)
        for index in found.graph.groups[instance.subgraph].subgraph.members:
            operator = network.graph.operators[index]
            for result in (v for v in operator.outputs if v in instance.needed):
                operands = network.operands(index, result, instance.needed[result])
                assert all(
                    contains(instance.needed.get(v), b)
                    for v, b in zip(operator.inputs, operands, strict=True)
                    if v is not None
                )


@PROPERTY
@given(cases())
def test_dependences_are_complete(case: Case) -> None:
    """What an instance needs of each input is made by the producers it waits for, each element by one."""
    graph = scheduled(case).graph
    for instance, transfers in zip(graph.instances, graph.transfers, strict=True):
        for value in graph.groups[instance.subgraph].subgraph.inputs:
            if value in instance.needed and graph.network.graph.values[value].producer is not None:
                boxes = [t.box for t in transfers if t.value == value]
                needed = tuple(slice(*interval) for interval in instance.needed[value])
                found = counts(boxes, graph.network.shapes[value])
                assert (found[needed] == 1).all()
                assert found.sum() == size(instance.needed[value])


@PROPERTY
@given(cases())
def test_no_edge_is_redundant(case: Case) -> None:
    """Between two instances there is an edge only if one makes what the other reads."""
    graph = scheduled(case).graph
    for index, producers in enumerate(graph.producers):
        for producer in producers:
            written, needed = graph.instances[producer].written, graph.instances[index].needed
            assert any(intersection(box, needed.get(value)) for value, box in written.items())


@PROPERTY
@given(cases())
def test_edges_left_out_for_orders_are_implied(case: Case) -> None:
    graph = scheduled(case).graph
    assert ancestors(graph.producers) == ancestors(graph.earlier)
    assert all(set(few) <= set(all_) for few, all_ in zip(graph.earlier, graph.producers, strict=True))


def ancestors(producers: tuple[tuple[int, ...], ...]) -> list[set[int]]:
    found: list[set[int]] = []
    for sources in producers:
        found.append({*sources, *(a for source in sources for a in found[source])})
    return found


@PROPERTY
@given(cases())
def test_orders_are_topological(case: Case) -> None:
    graph = scheduled(case).graph
    for order in (bfs_order(graph), dfs_order(graph)):
        place = {index: number for number, index in enumerate(order)}
        assert sorted(order) == list(range(len(graph)))
        assert all(place[p] < place[i] for i, sources in enumerate(graph.producers) for p in sources)


@PROPERTY
@given(cases())
def test_dfs_is_algorithm_3_word_for_word(case: Case) -> None:
    graph = scheduled(case).graph
    assert dfs_order(graph) == algorithm_3(graph)


def algorithm_3(graph: InstanceGraph) -> tuple[int, ...]:
    """As printed, with lists."""
    producers = [set(sources) for sources in graph.earlier]
    visit = list(range(len(graph)))
    ready = [i for i in visit if not producers[i]]
    visit = [i for i in visit if producers[i]]
    order: list[int] = []
    while ready:
        p = len(ready) - 1
        while producers[ready[p]]:
            p -= 1
        index = ready.pop(p)
        order.append(index)
        for other in [*visit, *ready]:
            if index in producers[other]:
                producers[other].discard(index)
                if other in visit:
                    ready.append(other)
                    visit.remove(other)
    return tuple(order)


@PROPERTY
@given(cases())
def test_sub_graphs_fit_their_level(case: Case) -> None:
    found = scheduled(case)
    for item in found.graph.groups:
        capacity = found.device.activation_buffer * found.device.cores
        if item.split.level is not Level.LB:
            capacity = found.device.global_buffer
        assert item.split.level is Level.DDR or item.split.footprint <= capacity


@PROPERTY
@given(cases())
def test_bindings_use_no_more_cores_than_there_are_and_balance(case: Case) -> None:
    found = scheduled(case)
    assert found.bindings.binding.keys() == found.bindings.scope.keys()
    for (index, value), binding in found.bindings.binding.items():
        box = found.graph.instances[index].written[value]
        assert core_count(binding) <= found.device.cores
        assert all((b - a) % factor == 0 for (a, b), factor in zip(box, binding, strict=True))


def test_a_batch_can_be_given() -> None:
    builder, result = halving_stages(1)
    found = schedule(builder.graph(result), builder.layers, accelerator(1 << 16), batch=8)
    assert found.network.shapes[result] == (8, 8, 2, 8)


def test_elements_have_the_size_asked_for() -> None:
    builder, result = halving_stages()
    small, large = (
        schedule(builder.graph(result), builder.layers, accelerator(1 << 20), element_size=n) for n in (1, 4)
    )
    assert 4 * small.graph.groups[0].split.footprint == large.graph.groups[0].split.footprint


def test_an_order_can_be_asked_for() -> None:
    builder, result = halving_stages()
    found = schedule(builder.graph(result), builder.layers, accelerator(1 << 14), order="bfs")
    assert found.order == bfs_order(found.graph)


def test_a_symbolic_shape_names_the_tensor() -> None:
    builder = Builder()
    x = builder.value((1, 4))
    builder.values[x] = Value("x", TensorType("float32", ("N", 4)))
    y = builder.add("Relu", [x], (1, 4))
    with pytest.raises(DsaError, match="tensor 'x': its shape is not static"):
        schedule(builder.graph(y), builder.layers, accelerator(1 << 16))


def test_a_tensor_that_ddr_does_not_hold_is_named() -> None:
    builder, result = halving_stages()
    device = accelerator(1 << 10, ddr_capacity=1 << 14)
    with pytest.raises(DsaError, match="tensor 'x0': its 32768 bytes do not fit the 4096 bytes of DDR of a cluster"):
        schedule(builder.graph(result), builder.layers, device)


def test_instances_that_read_too_many_parts_of_each_other_are_refused() -> None:
    builder, result = halving_stages()
    found = schedule(builder.graph(result), builder.layers, accelerator(HALVING_LOCAL_BYTES)).graph
    assert instance_graph(found.network, found.groups, most=14).transfers == found.transfers
    with pytest.raises(DsaError, match="the 15 instances that fit the buffers read more than 13 parts"):
        instance_graph(found.network, found.groups, most=13)


def test_whole_boxes_stay_whole_without_a_split() -> None:
    builder, result = halving_stages()
    found = schedule(builder.graph(result), builder.layers, accelerator(1 << 20))
    assert [i.written for i in found.graph.instances] == [{result: whole((8, 8, 2, 8))}]
