"""Checks a program against a device, whatever order the engines run in.

Beyond what each instruction needs by itself (structure.py), every byte that is read must have been written, as a part
of the same buffer, by an instruction that certainly ended before; and bytes that are overwritten must have been read
and written by instructions that certainly ended before. So live buffers overlap nowhere, and no engine runs ahead of
another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from ....costmodels.dsa_device import DsaDevice
from .happens_before import Ordering
from .instructions import INITIAL, Buffer, Compute, Instruction, Memory, Program, ProgramError, Region, Role, describe
from .shadow import INITIALLY, NOBODY, Cells, Piece, Shadow, rows_of
from .structure import structure_problems


def validate(program: Program, device: DsaDevice) -> None:
    """Raises ProgramError with the first problem: instruction, level and addresses."""
    for problem in islice(problems(program, device), 1):
        raise ProgramError(problem)


def problems(program: Program, device: DsaDevice) -> Iterator[str]:
    """All that is wrong with a program; data is followed only where each instruction is right by itself."""
    is_sound = True
    for problem in structure_problems(program, device):
        is_sound = False
        yield problem
    try:
        ordering = Ordering(program)
    except ProgramError as error:
        yield str(error)
        return
    if is_sound:
        yield from _DataFlow(program, ordering).problems()


class _DataFlow:
    def __init__(self, program: Program, ordering: Ordering) -> None:
        self.program = program
        self.ordering = ordering
        self.numbers = {buffer.name: number for number, buffer in enumerate(program.buffers)}
        self.columns = _engines_of(program, ordering.column)
        whole = [_whole(buffer) for buffer in program.buffers if buffer.role is not Role.INTERMEDIATE]
        whole += [buffer.value.region for buffer in program.buffers if buffer.role is Role.OUTPUT]
        regions: dict[Memory, list[Region]] = {}
        for region in (*program.regions(), *whole):
            regions.setdefault(region.memory, []).append(region)
        engines = {memory: max(1, len(columns)) for memory, columns in self.columns.items()}
        self.shadows = {memory: Shadow(each, engines.get(memory, 1)) for memory, each in regions.items()}

    def problems(self) -> Iterator[str]:
        for buffer in self.program.buffers:
            if buffer.role in INITIAL:
                yield from self._initial(buffer)
        for index, instruction in enumerate(self.program.instructions):
            for problem in self._instruction(index, instruction):
                yield f"{describe(index, instruction)} {problem}"
        for buffer in self.program.buffers:
            if buffer.role is Role.OUTPUT:
                yield from self._output(buffer)

    def _initial(self, buffer: Buffer) -> Iterator[str]:
        region, shadow = _whole(buffer), self.shadows[buffer.memory]
        for piece in shadow.pieces(region):
            if piece.writer == INITIALLY:
                other = self.program.buffers[piece.buffer].name
                what = f"{buffer.role.value} {_bytes(region, piece)}"
                yield f"{what} overlaps {other!r}, which is there from the start too"
        shadow.write(shadow.cells(region), INITIALLY, self.numbers[buffer.name])

    def _instruction(self, index: int, instruction: Instruction) -> Iterator[str]:
        reads, writes = instruction.reads, instruction.writes
        if len(reads) + len(writes) > 1:
            yield from _overlaps(instruction, reads, writes)
        read = [(region, *self._cells(region)) for region in reads]
        for region, shadow, cells in read:
            if not self._readable(index, self.numbers[region.buffer], shadow.owners(cells)):
                yield from self._reads(index, region)
        for region, shadow, cells in read:
            shadow.read(cells, index, self.columns[region.memory][self.ordering.column[index]])
        written = [(region, *self._cells(region)) for region in writes]
        for region, shadow, cells in written:
            if not self._writable(index, shadow.owners(cells), shadow.readers(cells)):
                yield from self._writes(index, region)
        for region, shadow, cells in written:
            shadow.write(cells, index, self.numbers[region.buffer])

    def _cells(self, region: Region) -> tuple[Shadow, Cells]:
        shadow = self.shadows[region.memory]
        return shadow, shadow.cells(region)

    def _readable(self, index: int, number: int, owners: list[tuple[int, int]]) -> bool:
        """Whether `_reads` has nothing to say, in less time."""
        for writer, buffer in owners:
            if buffer != number or writer == NOBODY:
                return False
            if writer != INITIALLY and not self.ordering.before(writer, index):
                return False
        return True

    def _writable(self, index: int, owners: list[tuple[int, int]], readers: list[int]) -> bool:
        """Whether `_writes` has nothing to say, in less time."""
        for earlier in (*[writer for writer, _ in owners if writer >= 0], *readers):
            if earlier != index and not self.ordering.before(earlier, index):
                return False
        return True

    def _reads(self, index: int, region: Region) -> Iterator[str]:
        for piece in self.shadows[region.memory].pieces(region):
            what = _bytes(region, piece)
            if piece.writer == NOBODY:
                yield f"reads {what} before anything is written there"
            elif piece.buffer != self.numbers[region.buffer]:
                yield f"reads {what}, overwritten {self._by(piece)}: two live buffers overlap"
            elif piece.writer != INITIALLY and not self.ordering.before(piece.writer, index):
                yield f"reads {what}, which {self._name(piece.writer)} writes: not ordered by a wait or barrier"

    def _writes(self, index: int, region: Region) -> Iterator[str]:
        shadow = self.shadows[region.memory]
        for piece in shadow.pieces(region):
            if piece.writer >= 0 and piece.writer != index and not self.ordering.before(piece.writer, index):
                what = _bytes(region, piece)
                yield f"writes {what}, which {self._name(piece.writer)} writes too: not ordered by a wait or barrier"
        for reader in shadow.readers(shadow.cells(region)):
            if reader != index and not self.ordering.before(reader, index):
                yield f"writes {region}, which {self._name(reader)} reads: not ordered by a wait or barrier"

    def _output(self, buffer: Buffer) -> Iterator[str]:
        region = buffer.value.region
        for piece in self.shadows[buffer.memory].pieces(region):
            if piece.writer == NOBODY:
                yield f"output {_bytes(region, piece)} is never written"
            elif piece.buffer != self.numbers[buffer.name]:
                yield f"output {_bytes(region, piece)} is overwritten {self._by(piece)}"

    def _by(self, piece: Piece) -> str:
        buffer = self.program.buffers[piece.buffer].name
        return f"as {buffer!r}" + (f" by {self._name(piece.writer)}" if piece.writer >= 0 else " from the start")

    def _name(self, index: int) -> str:
        return describe(index, self.program.instructions[index])


def _engines_of(program: Program, column: Sequence[int]) -> dict[Memory, dict[int, int]]:
    """Per memory, the engines (by column) that read or write it, numbered; an instruction counts for its first."""
    engines: dict[Memory, dict[int, int]] = {}
    for engine, instruction in zip(column, program.instructions, strict=True):
        for region in (*instruction.reads, *instruction.writes):
            columns = engines.setdefault(region.memory, {})
            if engine not in columns:
                columns[engine] = len(columns)
    return engines


def _whole(buffer: Buffer) -> Region:
    return Region(buffer.name, buffer.memory, buffer.address, buffer.size)


def _bytes(region: Region, piece: Piece) -> str:
    return f"{region.buffer!r} at {region.memory}:{piece.start:#x}..{piece.end:#x}"


def _overlaps(instruction: Instruction, reads: Sequence[Region], writes: Sequence[Region]) -> Iterator[str]:
    """An instruction must not write what it reads (but see `Compute.in_place`), or write anything twice."""
    in_place = isinstance(instruction, Compute) and instruction.in_place
    for position, written in enumerate(writes):
        for read in reads:
            if overlap(written, read) and not (in_place and rows_of(written) == rows_of(read)):
                yield f"writes {written} while it reads {read}"
        for other in writes[:position]:
            if overlap(written, other):
                yield f"writes {written} and {other}, which overlap"


def overlap(first: Region, second: Region) -> bool:
    """Whether two regions have a byte in common."""
    if first.memory != second.memory or first.end <= second.address or second.end <= first.address:
        return False
    if first.rows == 1 and second.rows == 1:
        return True
    many, few = (first, second) if first.rows >= second.rows else (second, first)
    positions = many.starts.searchsorted(few.starts + few.row_bytes) - 1
    return bool(((positions >= 0) & (many.starts[positions] + many.row_bytes > few.starts)).any())
