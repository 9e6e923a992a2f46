"""Where a network is cut that several clusters run together."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.costmodels.dsa_device import DsaDevice, load_dsa_device
from eqfuse.lowering.dsa.clusters.segments import Segments, Time, part_of
from eqfuse.lowering.dsa.codegen.compiler import accelerator_network
from eqfuse.lowering.dsa.network.boxes import size
from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.schedule.grouping import topological_order

from ..small_networks import cnn, scheduled_parts, transformer

DEVICE = load_dsa_device("stcp920-1mb")


def segments_of(source: onnx.ModelProto, device: DsaDevice = DEVICE) -> Segments:
    graph, layers, _ = scheduled_parts(source)
    network = accelerator_network(graph, layers, device, 4)
    whole = Network(network.graph, 4)
    return Segments(whole, topological_order(whole, network.layers), device, device.clusters)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(0, 4), st.integers(1, 8))
def test_clusters_make_all_of_a_result_once(shape: list[int], axis: int, clusters: int) -> None:
    parts = [part_of(tuple(shape), axis, cluster, clusters) for cluster in range(clusters)]
    whole = part_of(tuple(shape), None, 0, clusters)
    assert sum(map(size, parts)) == size(whole)
    made = [part for part in parts if part is not None]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("source", [cnn(1), transformer()])
def test_segments_follow_each_other_through_the_whole_network(source: onnx.ModelProto) -> None:
    slow = replace(DEVICE, dma_latency=0.0)
    segments = segments_of(source, slow)
    for found in segments.faster_than(1.0, 1, 1):
        ends = [segment.last for segment in found]
        assert [segment.first for segment in found] == [0, *ends[:-1]]
        assert ends[-1] == len(segments.layers)


def test_a_network_of_small_layers_is_not_cut() -> None:
    """Exchanges would take longer than all of its work."""
    segments = segments_of(cnn(1))
    assert segments.faster_than(segments.alone.seconds, 1, 1) == []


def test_large_maps_are_cut_if_exchanges_take_no_time() -> None:
    device = replace(DEVICE, dma_latency=0.0, ddr_bandwidth=1e15)
    segments = segments_of(cnn(1), device)
    assert segments.faster_than(segments.alone.seconds, 1, 1)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(1, 4))
def test_slower_units_explain_a_time(units: float, ddr: float, factor: float) -> None:
    time = Time(units, ddr)
    assert time.slowness(time.slower(factor).seconds) == pytest.approx(factor)
