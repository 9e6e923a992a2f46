"""The files of a program in a bundle: written from a `DsaProgram`, read back to run it or to compile it again.

| file | content |
|---|---|
| program.json, program.txt | the program of a cluster |
| constants.bin | its constants, one after another in the order of their buffers |
| network.json | operators and layers that were scheduled |
| kernels/uses.json | which tile a kernel of the program computes, and how its operands lie in memory |
| kernels/graphs.json | what each tile computes |
| kernels/tiles.so, kernels/library.json | these compiled for the machine that compiled the bundle |
| trace.json, report.html | its simulated run |
| program-1/ and so on | the other programs, of clusters with other shares of the batch, in files of the same names |
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.types import TensorType
from ....support.json_types import JsonFieldError, convert_json
from ...base.errors import BundleError
from ..clusters.compiler import DsaProgram, MadeProgram
from ..codegen.compiler import AcceleratorNetwork
from ..codegen.generated import KernelUse, program_kernels
from ..network.subgraphs import Layer
from ..program.instructions import (
    Barrier,
    Buffer,
    Compute,
    Engine,
    IndexedTransfer,
    Instruction,
    Kernel,
    Level,
    Memory,
    Operand,
    Program,
    ProgramError,
    Transfer,
    Unit,
    Work,
    join_engines,
)
from ..report.trace import trace_json
from .constants import constants_image, split_image


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
    products = [
        f"{each.count} x {each.m}x{each.n}x{each.k}{' of 8 bits' if each.eight_bits else ''}" for each in work.products
    ]
    amounts = products + [str(work.operations)] * bool(work.operations or not products)
    return f"{work.unit.value} {' + '.join(amounts)}"


class _OperatorRow(msgspec.Struct, array_like=True):
    name: str
    op: str
    attributes: dict[str, Any]
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    is_opaque: bool


class _ValueRow(msgspec.Struct, array_like=True):
    name: str
    type: tuple[str, tuple[int | str, ...] | None] | None
    producer: int | None
    is_constant: bool
    is_output: bool


class GraphFile(msgspec.Struct):
    """An operator graph as a file holds it."""

    operators: list[_OperatorRow]
    values: list[_ValueRow]


def graph_data(graph: OperatorGraph) -> dict[str, Any]:
    """Lists, numbers and texts; `graph_of` reads them back."""
    return {
        "operators": [
            [o.name, o.op, dict(o.attributes), list(o.inputs), list(o.outputs), o.is_opaque] for o in graph.operators
        ],
        "values": [
            [v.name, v.type and [v.type.dtype, v.type.shape], v.producer, v.is_constant, v.is_output]
            for v in graph.values
        ],
    }


def graph_of(data: GraphFile | dict[str, Any]) -> OperatorGraph:
    """The graph that `graph_data` wrote. Raises msgspec.ValidationError, which names the place, for other data."""
    file = data if isinstance(data, GraphFile) else msgspec.convert(data, GraphFile)
    operators = (
        Operator(
            row.name, row.op, {name: _tuples(each) for name, each in row.attributes.items()}, row.inputs, row.outputs,
            row.is_opaque,
        )
        for row in file.operators
    )  # fmt: skip
    values = (
        Value(row.name, TensorType(*row.type) if row.type else None, row.producer, row.is_constant, row.is_output)
        for row in file.values
    )
    return OperatorGraph(tuple(operators), tuple(values))


def _tuples(attribute: Any) -> Any:
    """An attribute with tuples in the place of JSON's lists."""
    return tuple(map(_tuples, attribute)) if isinstance(attribute, list) else attribute


Array = np.ndarray[Any, Any]
PROGRAM, TEXT, CONSTANTS, NETWORK = "program.json", "program.txt", "constants.bin", "network.json"
USES, GRAPHS = "kernels/uses.json", "kernels/graphs.json"
TILES, LIBRARY = "kernels/tiles.so", "kernels/library.json"
TRACE, REPORT = "trace.json", "report.html"
Observer = Callable[[str], None]
Content = TypeVar("Content")


class _NetworkFile(GraphFile):
    layers: tuple[Layer, ...]
    element_size: int
    batch_axis: int | None


class _LibraryFile(msgspec.Struct):
    made_for: dict[str, Any]
    functions: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    left: dict[str, str]


def program_folders(folder: Path, count: int) -> list[Path]:
    """The folder of each of the programs of a bundle."""
    return [folder / f"program-{number}" if number else folder for number in range(count)]


def store_programs(
    folder: Path, program: DsaProgram, network: AcceleratorNetwork, contents: Sequence[Mapping[str, Array]]
) -> None:
    """Write everything but the report and the compiled kernels; `contents` are the constants of each program."""
    scheduled = {"layers": network.layers, "element_size": network.element_size, "batch_axis": network.batch_axis}
    _write(folder / NETWORK, {**graph_data(network.graph), **scheduled})
    (folder / TRACE).write_text(trace_json(program.timeline), encoding="utf-8")
    folders = program_folders(folder, len(program.programs))
    for own, made, constants in zip(folders, program.programs, contents, strict=True):
        own.mkdir(exist_ok=True)
        _store_program(own, made, constants)


def _store_program(folder: Path, made: MadeProgram, contents: Mapping[str, Array]) -> None:
    instructions = made.program
    (folder / PROGRAM).write_text(dump_json(instructions), encoding="utf-8")
    (folder / TEXT).write_text(dump_text(instructions), encoding="utf-8")
    (folder / CONSTANTS).write_bytes(constants_image(instructions, contents))
    (folder / GRAPHS).parent.mkdir()
    _write(folder / USES, made.uses)
    _write(folder / GRAPHS, {name: graph_data(graph) for name, graph in made.kernels.items()})


def store_kernels(folder: Path, count: int, observer: Observer) -> None:
    """Compile the tile kernels of `count` stored programs, so that running them does not have to."""
    from ..tiles.compiled_kernels import build_kernels

    for own in program_folders(folder, count):
        built = build_kernels(_read_graphs(own), own / TILES, observer)
        _write(own / LIBRARY, {"made_for": made_for(), "functions": built.functions, "left": built.left})


def made_for() -> dict[str, Any]:
    """The processor and versions that have to be the same when compiled kernels are loaded."""
    from ....support.processor import processor_features
    from ...base.toolchain import versions

    needed = {name: version for name, version in versions().items() if name.startswith("apache-tvm")}
    return {"architecture": platform.machine(), "features": sorted(processor_features()), **needed}


def read_program(folder: Path) -> Program:
    """The program. Raises ProgramError."""
    return load_json((folder / PROGRAM).read_text(encoding="utf-8"))


def read_network(folder: Path) -> AcceleratorNetwork:
    """The network that was scheduled, its constants by name only. Raises BundleError."""
    file = _read(folder / NETWORK, _NetworkFile)
    return AcceleratorNetwork(graph_of(file), file.layers, file.element_size, {}, file.batch_axis)


def read_constants(folder: Path, program: Program) -> dict[str, Array]:
    """The content of each constant buffer, read from the file when it is used. Raises BundleError."""
    path = folder / CONSTANTS
    image = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    try:
        return split_image(program, image)
    except ValueError as error:
        raise _damage_error(path, error) from None


def read_kernels(folder: Path, opset: int) -> dict[str, Kernel]:
    """The kernels of a program: the compiled ones if this machine can run them, else they are compiled now.

    Raises BundleError.
    """
    return program_kernels(_read(folder / USES, dict[str, KernelUse]), _tile_kernels(folder, opset))


def _tile_kernels(folder: Path, opset: int) -> dict[str, Kernel]:
    from ..tiles.compiled_kernels import TileLibrary, compiled_kernels, loaded_kernels

    graphs = _read_graphs(folder)
    library = _read(folder / LIBRARY, _LibraryFile) if (folder / LIBRARY).is_file() else None
    if library is None or library.made_for != made_for():
        return compiled_kernels(graphs, opset=opset)
    return loaded_kernels(graphs, TileLibrary(library.functions, library.left), folder / TILES, opset)


def _read_graphs(folder: Path) -> dict[str, OperatorGraph]:
    return {name: graph_of(graph) for name, graph in _read(folder / GRAPHS, dict[str, GraphFile]).items()}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, separators=(",", ":"), default=dict), encoding="utf-8")


def _read(path: Path, kind: type[Content]) -> Content:
    """A file's content. (Python's own reader, for attributes may be infinite.) Raises BundleError."""
    try:
        return convert_json(json.loads(path.read_text(encoding="utf-8")), kind)
    except (OSError, ValueError, JsonFieldError) as error:
        raise _damage_error(path, error) from None


def _damage_error(path: Path, error: Exception) -> BundleError:
    return BundleError(f"{path}: cannot be used ({error}); compile the model again")


FORMAT = "eqfuse-dsa-program"
VERSION = 2
_MEMORY = re.compile(r"(DDR)|GB\[(\d+)\]|LB\[(\d+)\.(\d+)\]")
_ENGINE = re.compile(rf"(\d+)\.(?:(\d+)\.)?({'|'.join(unit.value for unit in Unit)})(\d*)")
_PLACE_OF_ERROR = re.compile(r"(.*) - at `\$\.?(.*)`")


class _Header(msgspec.Struct):
    format: str = ""
    version: int | None = None


class _Document(msgspec.Struct):
    format: str
    version: int
    program: Program


def dump_json(program: Program) -> str:
    """Write a program as JSON, which `load_json` reads back."""
    return msgspec.json.encode(_Document(FORMAT, VERSION, program), enc_hook=str).decode()


def load_json(text: str) -> Program:
    """Read what `dump_json` wrote. Raises ProgramError that names the field: ``program.buffers[3].size``."""
    try:
        header = msgspec.json.decode(text, type=_Header)
    except msgspec.ValidationError:
        header = _Header()
    except msgspec.DecodeError as error:
        raise ProgramError(f"a program file that is not JSON: {error}") from None
    if header.format != FORMAT:
        raise ProgramError(f'a program file needs "format": "{FORMAT}"')
    if header.version != VERSION:
        raise ProgramError(f"a program file of version {header.version}; this eqfuse reads version {VERSION}")
    try:
        return msgspec.json.decode(text, type=_Document, dec_hook=_read_place).program
    except msgspec.ValidationError as error:
        match = _PLACE_OF_ERROR.fullmatch(str(error))
        raise ProgramError(f"{match[2]}: {match[1]}" if match else f"a program file: {error}") from None


def _read_place(kind: type, text: Any) -> Memory | Engine:
    """Read a memory or an engine. Raises ValueError, whose text msgspec reports with the field."""
    place = None
    if isinstance(text, str):
        place = _memory(text) if kind is Memory else _engine(text)
    if place is None:
        raise ValueError(f"{text!r} is no {kind.__name__.lower()}")
    return place


@cache
def _memory(text: str) -> Memory | None:
    if not (match := _MEMORY.fullmatch(text)):
        return None
    ddr, gb, cluster, core = match.groups()
    if ddr:
        return Memory(Level.DDR)
    return Memory(Level.GB, int(gb)) if gb else Memory(Level.LB, int(cluster), int(core))


@cache
def _engine(text: str) -> Engine | None:
    if not (match := _ENGINE.fullmatch(text)):
        return None
    cluster, core, unit, channel = match.groups()
    return Engine(int(cluster), int(core) if core else None, Unit(unit), int(channel or 0))
