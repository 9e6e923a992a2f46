"""Layers with results that one loop nest cannot make piece by piece."""

from __future__ import annotations

import pytest

from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.network.results import with_results_apart

from ..graphs import Builder


@pytest.mark.parametrize(("room", "layers"), [(4 * 4 * 12, [(0, 1, 2, 3)]), (4 * 4 * 12 - 1, [(0, 1), (2,), (3,)])])
def test_a_turned_result_is_a_layer_of_its_own_if_there_is_no_room_for_it(
    room: int, layers: list[tuple[int, ...]]
) -> None:
    """Operators 0 and 1 are shared."""
    build = Builder()
    shared = build.relu(build.relu(build.value((4, 12))), joined=True)
    turned = build.add("Transpose", [shared], (12, 4), joined=True, perm=(1, 0))
    straight = build.relu(shared, joined=True)
    network = Network(build.graph(turned, straight), element_size=4)
    assert list(with_results_apart(network, build.layers, room)) == layers


def test_results_of_one_shape_stay_together() -> None:
    build = Builder()
    shared = build.relu(build.value((4, 12)))
    results = [build.relu(shared, joined=True) for _ in range(2)]
    network = Network(build.graph(*results), element_size=4)
    assert list(with_results_apart(network, build.layers, 0)) == build.layers
