"""Across-layer instruction scheduling (GraphTurbo, OSDI 2023, section 4.4): the order of a program's instructions.

The generator writes layer after layer. Engines run their own instructions in the order of the program, so a unit that
several kernels share, as the vector unit that ends both convolutions and depthwise ones, would keep the tiles of the
second layer waiting for the last of the first. Instructions are put in the order in which they start when nobody waits
for such a unit.
"""

from __future__ import annotations

from msgspec.structs import replace

from ....costmodels.dsa_device import DsaDevice
from ..program.instructions import Program
from ..simulate.timing import simulate_time


def rescheduled(program: Program, device: DsaDevice) -> Program:
    """The program in the order of starting times. Whatever an instruction has to follow still comes before it."""
    starts = simulate_time(program, device, in_order=False).starts
    order = sorted(range(len(starts)), key=lambda index: (starts[index], index))
    place = {old: new for new, old in enumerate(order)}
    instructions = tuple(
        replace(instruction, waits=tuple(sorted(place[wait] for wait in instruction.waits)))
        for instruction in (program.instructions[old] for old in order)
    )
    return replace(program, instructions=instructions)
