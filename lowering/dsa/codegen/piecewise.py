"""Steps whose tiles each read from one source, though all of them together read from several.

Where an instance takes samples that several instances made (Fig. 8's concatenations), nothing has to be concatenated
if its tiles are cut between the samples: each reads the part that one of them left in the LB.
"""

from __future__ import annotations

from ..network.boxes import piece, shape_of
from ..tiles.core_parts import CorePart, LayerParts, Sharing
from .flow import Flow, Piecewise, Read


def piecewise(flow: Flow, sharing: Sharing) -> Piecewise:
    """The steps for which there is such a cut, the coarsest."""
    found = Piecewise()
    for number, reads in enumerate(flow.reads):
        if any(len(read.sources) > 1 for read in reads):
            _cut(flow, sharing, number, found)
    return found


def _cut(flow: Flow, sharing: Sharing, number: int, found: Piecewise) -> None:
    step = flow.steps[number]
    extents = {shape_of(part.made[step.primary])[0] for part in step.cores if part and part.made[step.primary]}
    for factor in range(2, min(extents, default=0) + 1):
        if all(extent % factor == 0 for extent in extents):
            reads = _reads(flow, sharing, number, factor)
            several = [read for read in flow.reads[number] if len(read.sources) > 1]
            if all(len(r.sources) == 1 for read in several for r in reads[number, read.core, read.value]):
                found.cuts[number] = factor
                found.reads.update({key: reads[key] for key in ((number, r.core, r.value) for r in several)})
                return


def _reads(
    flow: Flow, sharing: Sharing, number: int, factor: int
) -> dict[tuple[int, int, int], tuple[Read, ...]]:
    """What each core reads for each of so many tiles along the first axis."""
    step = flow.steps[number]
    found: dict[tuple[int, int, int], tuple[Read, ...]] = {}
    for core, part in enumerate(step.cores):
        for tile in [] if part is None else _tiles(sharing, step, part, factor):
            for value, box in tile.inputs.items():
                read = Read(number, core, value, box, flow.sources(step.instance, value, box))
                found[number, core, value] = (*found.get((number, core, value), ()), read)
    return found


def _tiles(sharing: Sharing, step: LayerParts, part: CorePart, factor: int) -> list[CorePart]:
    primary = part.made[step.primary]
    shape, found = shape_of(primary), []
    for index in range(factor):
        first = piece(shape[:1], (factor,), (index,))[0]
        rows = primary[0][0] + first[0], primary[0][0] + first[1]
        made = {value: (rows, *box[1:]) for value, box in part.made.items() if box == primary}
        tile = sharing.part(step.instance, step.layer, made)
        assert tile is not None
        found.append(tile)
    return found
