"""Tiles as kernels: their names, their work on the units of a core, and their graphs (GraphTurbo, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ....costmodels.dsa_device import DsaDevice
from ....ir.graph import OperatorGraph
from ..network.graph import Network
from ..program.instructions import Work
from .local_graph import Tile, local_graph
from .tile_shifts import Parts, Shifts
from .work import work_of

_NAMED_OPERATORS = 3
"""The name of a kernel names this many of its operators, the first ones."""


@dataclass(frozen=True)
class TileKernel:
    """A kernel. Tiles that are equal but for where in their tensors they lie, and which weights they have, share it.

    `work` is what each unit does that is used, at least one.
    """

    name: str
    work: tuple[Work, ...]


class TileKernels:
    """The kernels of a network's tiles. `graphs` has the local graph of every kernel asked for so far, by name."""

    def __init__(self, network: Network, device: DsaDevice) -> None:
        self._network, self._device = network, device
        self._graphs: dict[str, OperatorGraph] = {}
        self.graphs: Mapping[str, OperatorGraph] = MappingProxyType(self._graphs)
        self._shifts: dict[tuple[int, ...], Shifts] = {}
        self._by_tile: dict[tuple[tuple[int, ...], Parts, Parts], TileKernel] = {}
        self._by_structure: dict[object, TileKernel] = {}
        self._numbers: dict[str, int] = {}

    def kernel(self, tile: Tile) -> TileKernel:
        """The kernel of a tile. Raises DsaError where the tile's inputs are less than it needs."""
        shifts = self._shifts.get(tile.members)
        if shifts is None:
            shifts = self._shifts[tile.members] = Shifts(self._network, tile.members)
        key = (tile.members, *shifts.normal(tile.inputs, tile.outputs))
        kernel = self._by_tile.get(key)
        if kernel is None:
            kernel = self._by_tile[key] = self._kernel_of_structure(Tile(*key))
        return kernel

    def _kernel_of_structure(self, tile: Tile) -> TileKernel:
        graph = local_graph(self._network, tile)
        key = structure(graph)
        if key not in self._by_structure:
            kernel = TileKernel(self._name(graph), work_of(graph, self._device))
            self._graphs[kernel.name] = graph
            self._by_structure[key] = kernel
        return self._by_structure[key]

    def _name(self, graph: OperatorGraph) -> str:
        """``conv_add_relu_3``, a C identifier."""
        stem = "_".join(operator.op.lower() for operator in graph.operators[:_NAMED_OPERATORS])
        stem = "".join(c if c.isalnum() else "_" for c in stem)
        number = self._numbers[stem] = self._numbers.get(stem, -1) + 1
        return f"{stem}_{number}"


def structure(graph: OperatorGraph) -> object:
    """A key that is equal for graphs that compute the same way from operands of the same types."""
    operators = tuple(
        (o.op, tuple(sorted(o.attributes.items())), o.inputs, o.outputs, o.is_opaque) for o in graph.operators
    )
    return operators, tuple((v.type, v.producer, v.is_constant, v.is_output) for v in graph.values)
