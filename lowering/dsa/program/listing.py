"""A program as text for people: its buffers, then one line for each instruction."""

from __future__ import annotations

from collections.abc import Iterator

from .instructions import (
    Barrier,
    Buffer,
    Compute,
    IndexedTransfer,
    Instruction,
    Operand,
    Program,
    Transfer,
    Work,
    join_engines,
)


def dump_text(program: Program) -> str:
    """The whole program; addresses are hexadecimal, sizes are decimal bytes."""
    return "".join(f"{line}\n" for line in _lines(program))


def _lines(program: Program) -> Iterator[str]:
    yield f"program {program.name} for {program.device}, batch {program.batch}"
    scopes = program.scopes
    yield f"tensors: {scopes.ddr} in DDR, {scopes.gb} in GB, {scopes.lb} in LB"
    yield f"buffers ({len(program.buffers)}):"
    yield from (f"  {_buffer(buffer)}" for buffer in program.buffers)
    yield f"instructions ({len(program.instructions)}):"
    yield from (f"  {index:>6} {_instruction(each)}" for index, each in enumerate(program.instructions))


def _buffer(buffer: Buffer) -> str:
    place = f"{buffer.memory}:{buffer.address:#x}..{buffer.address + buffer.size:#x}"
    return f"{buffer.name}: {place} {buffer.size} bytes, {_tensor(buffer.dtype, buffer.shape)}, {buffer.role.value}"


def _tensor(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def _instruction(instruction: Instruction) -> str:
    label = f"  ; {instruction.label}" if instruction.label else ""
    waits = f" after {','.join(map(str, instruction.waits))}" if instruction.waits else ""
    return f"{join_engines(instruction.engines)}: {_action(instruction)}{waits}{label}"


def _action(instruction: Instruction) -> str:
    match instruction:
        case Transfer():
            targets = ", ".join(map(str, instruction.targets))
            return f"{instruction.kind.value} {targets} <- {instruction.source} ({instruction.source.size} bytes)"
        case IndexedTransfer(table=table, indices=indices, target=target):
            rows = f"{instruction.count} rows of {instruction.row_bytes} bytes"
            return f"gather {target} <- {table} by {_operand(indices)} ({rows})"
        case Compute():
            outputs = ", ".join(map(_operand, instruction.outputs))
            inputs = ", ".join(map(_operand, instruction.inputs))
            work = "; ".join(map(_work, instruction.work))
            return f"{instruction.kernel} {outputs} <- {inputs}{' in place' * instruction.in_place} [{work}]"
        case Barrier():
            return "barrier"


def _operand(operand: Operand) -> str:
    return f"{operand.region} {_tensor(operand.dtype, operand.shape)}"


def _work(work: Work) -> str:
    products = [f"{each.count} x {each.m}x{each.n}x{each.k}" for each in work.products]
    amounts = products + [str(work.operations)] * bool(work.operations or not products)
    return f"{work.unit.value} {' + '.join(amounts)}"
