"""The result of the kernel generator: a program, and the meaning of its names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....ir.graph import OperatorGraph
from ..network.graph import Network
from ..network.storage import Axes, plain_array
from ..program.instructions import Kernel, Program
from .residence import Residence
from .weights import Blob


class KernelUse(NamedTuple):
    """A tile's kernel, and the order of the axes of its operands in memory."""

    tile: str
    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]


@dataclass(frozen=True)
class Generated:
    """A program for one cluster.

    `constants` are the blobs and `tables` the constant values by the name of their buffer in DDR; `inputs` and
    `outputs` are the values of those buffers, which hold them as they are stored (network/storage.py). `kernels` are
    the operators of each tile kernel; `uses` says which of them the names of kernels in the program stand for;
    `residence`, where everything is kept, without the tiles.
    """

    program: Program
    kernels: Mapping[str, OperatorGraph]
    residence: Residence
    constants: Mapping[str, Blob]
    tables: Mapping[str, int]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    uses: Mapping[str, KernelUse]

    @property
    def network(self) -> Network:
        """The operators of the program, at its batch."""
        return self.residence.flow.graph.network


def program_kernels(uses: Mapping[str, KernelUse], compiled: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """The kernels of a program, from those of its tiles: they take arrays as they are stored."""

    def kernel(use: KernelUse) -> Kernel:
        def run(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
            compiled[use.tile](
                [plain_array(axes, array) for axes, array in zip(use.inputs, inputs, strict=True)],
                [plain_array(axes, array) for axes, array in zip(use.outputs, outputs, strict=True)],
            )

        return run

    return {name: kernel(use) for name, use in uses.items()}
