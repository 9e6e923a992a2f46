"""Which instructions have certainly ended before another one starts: vector clocks over the engines of a program."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from .instructions import Compute, Engine, IndexedTransfer, Program, ProgramError, Transfer, describe


def predecessors(program: Program) -> Iterator[Collection[int]]:
    """For each instruction, those that end before it starts: what it waits for, and the last to hold its engines.

    A kernel holds the first of its units until it ends; for those that it only uses see `users`.

    Raises ProgramError if an instruction waits for one that does not come earlier.
    """
    last: dict[Engine, int] = {}
    for index, instruction in enumerate(program.instructions):
        engines, waits = instruction.engines, instruction.waits
        for wait in waits:
            if not 0 <= wait < index:
                raise ProgramError(f"{describe(index, instruction)} waits for #{wait}, which does not come before it")
        before = [last[engine] for engine in engines if engine in last]
        before += waits
        yield before if len(before) < 2 else dict.fromkeys(before)
        for engine in engines[:1] if isinstance(instruction, Compute) else engines:  # until the instruction ends
            last[engine] = index


def users(program: Program) -> Iterator[Sequence[tuple[int, int]]]:
    """For each instruction, the kernels before it on its engines that only used one, and the number of that unit.

    It starts when they have used it, which may be before they end.
    """
    last: dict[Engine, tuple[int, int]] = {}
    for index, instruction in enumerate(program.instructions):
        if isinstance(instruction, Transfer | IndexedTransfer):  # no kernel uses channels
            yield ()
            continue
        engines = instruction.engines
        yield [last[engine] for engine in engines if engine in last]
        for number, engine in enumerate(engines):
            last.pop(engine, None)
            if number and isinstance(instruction, Compute):
                last[engine] = index, number


class Ordering:
    """Happens-before of a program's instructions. Mattern, "Virtual time and global states of distributed systems"
    (1989).
    """

    def __init__(self, program: Program) -> None:
        """Raises ProgramError like `predecessors`."""
        columns = {engine: column for column, engine in enumerate(program.engines())}
        count = len(program.instructions)
        own = [[columns[engine] for engine in each.engines] for each in program.instructions]
        self.column = [each[0] if each else 0 for each in own]
        self._ended = np.full((count, max(len(columns), 1)), -1, np.int32)
        for index, before in enumerate(predecessors(program)):
            row = self._ended[index]
            for earlier in before:
                np.maximum(row, self._ended[earlier], out=row)
            row[own[index]] = index

    def before(self, first: int, second: int) -> bool:
        """Whether `first` ends before `second` starts in every run."""
        return first < second and bool(self._ended[second, self.column[first]] >= first)
