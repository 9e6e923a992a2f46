"""What limits the size of a fused kernel: the vector registers and the caches of the device.

DNNFusion (Niu et al., PLDI 2021), Listing 1, step 2.2: a fusion is refused where it would cause "excessive register
spills". Its thresholds were found empirically and are not published; here they come from the device file.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....costmodels.device import Device
from ....ir.graph import OperatorGraph
from ....ir.operators.linear import depth
from .mapping_types import MappingType


def fits(graph: OperatorGraph, types: Sequence[MappingType | None], operators: Sequence[int], device: Device) -> bool:
    """Whether one kernel of `operators` (ascending) keeps its values in the registers and a cache of one core.

    `types` are the mapping types of all operators of the graph.
    """
    if live_registers(graph, operators) > device.vector_registers:
        return False
    private = [cache.size for cache in device.caches if not cache.shared]
    return not private or kept_bytes(graph, types, operators) <= max(private)


def live_registers(graph: OperatorGraph, operators: Sequence[int]) -> int:
    """The most values alive at once when `operators`, in this order, compute one vector of each output.

    A value lives in one register from where it is loaded or computed to where it is last read; the accumulators of
    contractions and reductions are those of their outputs.
    """
    last = {v: step for step, index in enumerate(operators) for v in _operands(graph, index)}
    live: set[int] = set()
    most = 0
    for step, index in enumerate(operators):
        live.update(_operands(graph, index))
        live.update(graph.operators[index].outputs)
        most = max(most, len(live))
        live = {v for v in live if last.get(v, step) > step}
    return most


def kept_bytes(graph: OperatorGraph, types: Sequence[MappingType | None], operators: Sequence[int]) -> int:
    """Bytes that a kernel of `operators` has to compute before it can read them, so that a cache must hold them.

    They are operands of its Many-to-Many operators that it computes itself: of each, what one output element needs
    (for all but products and convolutions, the last axis stands for it). Anything else is computed as it is read.
    """
    members = set(operators)
    total = 0
    for index in operators:
        if types[index] is MappingType.MANY_TO_MANY:
            made = [v for v in _operands(graph, index) if graph.values[v].producer in members]
            total += sum(_element_bytes(graph, v) * depth(graph.operations[index]) for v in made)
    return total


def _operands(graph: OperatorGraph, index: int) -> list[int]:
    return [v for v in graph.operators[index].inputs if v is not None]


def _element_bytes(graph: OperatorGraph, value: int) -> int:
    size = graph.values[value].extent
    return -(-size.bytes // max(1, size.elements))
