"""The files of a program in a bundle: written from a `DsaProgram`, read back to run it or to compile it again.

| file | content |
|---|---|
| program.json, program.txt | the program of one cluster |
| constants.bin | its constants, one after another in the order of their buffers |
| network.json | operators and layers that were scheduled |
| kernels/uses.json | which tile a kernel of the program computes, and how its operands lie in memory |
| kernels/graphs.json | what each tile computes |
| kernels/tiles.so, kernels/library.json | these compiled for the machine that compiled the bundle |
| trace.json, report.html | its simulated run |
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ....ir.graph import OperatorGraph
from ...errors import BundleError
from ..codegen.generated import KernelUse, stored_kernels
from ..compiler import AcceleratorNetwork, DsaProgram
from ..program.instructions import Kernel, Program
from ..program.json_format import dump_json, load_json
from ..program.listing import dump_text
from ..report.trace import trace_json
from .constants import constants_image, constants_of
from .graph_json import graph_data, graph_of

Array = np.ndarray[Any, Any]
PROGRAM, TEXT, CONSTANTS, NETWORK = "program.json", "program.txt", "constants.bin", "network.json"
USES, GRAPHS = "kernels/uses.json", "kernels/graphs.json"
TILES, LIBRARY = "kernels/tiles.so", "kernels/library.json"
TRACE, REPORT = "trace.json", "report.html"
Observer = Callable[[str], None]


def store_program(folder: Path, made: DsaProgram, network: AcceleratorNetwork, contents: Mapping[str, Array]) -> None:
    """Everything but the report and the compiled kernels."""
    program = made.generated.program
    (folder / PROGRAM).write_text(dump_json(program), encoding="utf-8")
    (folder / TEXT).write_text(dump_text(program), encoding="utf-8")
    (folder / CONSTANTS).write_bytes(constants_image(program, contents))
    layers = {"layers": [list(layer) for layer in network.layers], "element_size": network.element_size}
    _write(folder / NETWORK, {**graph_data(network.graph), **layers})
    (folder / GRAPHS).parent.mkdir()
    uses = {name: [use.tile, use.inputs, use.outputs] for name, use in made.generated.uses.items()}
    _write(folder / USES, uses)
    _write(folder / GRAPHS, {name: graph_data(graph) for name, graph in made.kernels.items()})
    (folder / TRACE).write_text(trace_json(made.timeline), encoding="utf-8")


def store_kernels(folder: Path, observer: Observer) -> None:
    """Compile the tile kernels of a stored program, so that running it does not have to."""
    from ..tiles.compiled_kernels import build_kernels

    built = build_kernels(read_graphs(folder), folder / TILES, observer)
    functions = {name: [list(inputs), list(outputs)] for name, (inputs, outputs) in built.functions.items()}
    _write(folder / LIBRARY, {"made_for": made_for(), "functions": functions, "left": dict(built.left)})


def made_for() -> dict[str, Any]:
    """What has to be the same where compiled kernels are loaded."""
    from ....support.processor import processor_features
    from ...bundle.bundle import versions

    needed = {name: found for name, found in versions().items() if name.startswith("apache-tvm")}
    return {"architecture": platform.machine(), "features": sorted(processor_features()), **needed}


def read_program(folder: Path) -> Program:
    """The program. Raises ProgramError."""
    return load_json((folder / PROGRAM).read_text(encoding="utf-8"))


def read_network(folder: Path) -> AcceleratorNetwork:
    """What was scheduled, its constants by name only. Raises BundleError."""
    data = _read(folder / NETWORK)
    try:
        layers = tuple(tuple(layer) for layer in data["layers"])
        return AcceleratorNetwork(graph_of(data), layers, data["element_size"], {})
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(folder / NETWORK, error) from None


def read_graphs(folder: Path) -> dict[str, OperatorGraph]:
    """What each tile kernel computes. Raises BundleError."""
    try:
        return {name: graph_of(data) for name, data in _read(folder / GRAPHS).items()}
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(folder / GRAPHS, error) from None


def read_constants(folder: Path, program: Program) -> dict[str, Array]:
    """The content of each constant buffer, read from the file when it is used. Raises BundleError."""
    path = folder / CONSTANTS
    image = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    try:
        return constants_of(program, image)
    except ValueError as error:
        raise _damaged(path, error) from None


def read_kernels(folder: Path, opset: int, observer: Observer = lambda line: None) -> dict[str, Kernel]:
    """The kernels of a program: those that were compiled, where this machine can run them; else they are now."""
    return stored_kernels(_read_uses(folder), _tile_kernels(folder, opset, observer))


def _read_uses(folder: Path) -> dict[str, KernelUse]:
    try:
        return {
            name: KernelUse(tile, tuple(map(tuple, inputs)), tuple(map(tuple, outputs)))
            for name, (tile, inputs, outputs) in _read(folder / USES).items()
        }
    except (TypeError, ValueError) as error:
        raise _damaged(folder / USES, error) from None


def _tile_kernels(folder: Path, opset: int, observer: Observer) -> dict[str, Kernel]:
    from ..tiles.compiled_kernels import TileLibrary, compiled_kernels, loaded_kernels

    graphs = read_graphs(folder)
    data = _read(folder / LIBRARY) if (folder / LIBRARY).is_file() else {}
    if data.get("made_for") != made_for():
        return compiled_kernels(graphs, observer, opset)
    functions = {name: (tuple(inputs), tuple(outputs)) for name, (inputs, outputs) in data["functions"].items()}
    return loaded_kernels(graphs, TileLibrary(functions, data["left"]), folder / TILES, opset)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None
    return dict(found)


def _damaged(path: Path, error: Exception) -> BundleError:
    return BundleError(f"{path}: cannot be used ({error}); compile the model again")
