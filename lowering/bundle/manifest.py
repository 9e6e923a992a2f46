"""manifest.json: what a bundle says of itself, read back field by field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from math import prod
from pathlib import PurePosixPath
from typing import Any, TypeVar

import numpy as np

from ..errors import BundleError
from ..interface import Port
from ..tvm_runtime import MOST_THREADS

FORMAT = 2
_OPTIONAL = ("dsa", "tuning")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_DIMENSIONS = 64
"""Of an array of numpy's."""
_MOST_ELEMENTS = 1 << 40
"""Of one input or output: no machine has memory for more."""
LIBRARY = "model.so"
PLAN = "plan.json"
PROGRAM = "program.json"
"""What runs: a library that this machine loads, of a C project for another one the plan of its calls, or a program for
an accelerator, which a simulator executes."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Platform:
    """What the library runs on: the target's name, LLVM's names of it, and the instruction sets that it may use."""

    name: str
    architecture: str
    triple: str
    cpu: str
    features: tuple[str, ...]


@dataclass(frozen=True)
class Provenance:
    """Where a bundle comes from. `model` is the path of the original, `sha256` of its content.

    `input_shapes` are those that were fixed; `rules` is how many rules matched; `verification` the verdict in one line,
    "" where nothing was verified; `replaced` says of which kernels the schedule was seen to be wrong and replaced by a
    plain one; `budget_hit` says that a limit ended the search for a cheaper graph; `trusted_rules` are the rule files
    that were used without a check, by name.
    """

    model: str
    sha256: str
    input_shapes: Mapping[str, tuple[int | str, ...]]
    rules: int
    partition: str
    operators: int
    kernels: int
    distinct_kernels: int
    verification: str
    replaced: tuple[str, ...]
    budget_hit: bool
    trusted_rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class FallbackEntry:
    """Operators that ONNX Runtime runs: the model in `file`, and why. Inputs and outputs are the model's, in order."""

    file: str
    operators: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Manifest:
    """A bundle. `files` are the SHA-256 of every other file in it; `threads` is what it runs on by default.

    `dsa` is about a program for an accelerator (lowering/dsa/section.py reads it), and `tuning` about the search for
    its schedules (lowering/tuning/settings.py reads it); None for other bundles.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    platform: Platform
    precision: str
    threads: int
    provenance: Provenance
    fallbacks: tuple[FallbackEntry, ...]
    versions: Mapping[str, str]
    files: Mapping[str, str]
    library: str = LIBRARY
    dsa: Mapping[str, Any] | None = None
    tuning: Mapping[str, Any] | None = None
    format: int = field(default=FORMAT)

    def text(self) -> str:
        """The file's content; its last field is the digest of the others."""
        content = {n: value for n, value in asdict(self).items() if n not in _OPTIONAL or value is not None}
        return json.dumps({**content, "digest": _digest(content)}, indent=1, ensure_ascii=False) + "\n"


def parse(text: str, label: str) -> Manifest:
    """What a manifest says; `label` is what messages call it. Raises BundleError, one line that names the field."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{label}: is no JSON: {error}") from None
    reader = _Reader(label, "", content if isinstance(content, dict) else {})
    if reader.integer("format") != FORMAT:
        raise reader.fail("format", f"is {content['format']}, and this version of eqfuse reads {FORMAT}")
    found = _manifest(reader)
    reader.only((*Manifest.__dataclass_fields__, "digest"))
    digest = content.pop("digest", None)
    if digest != _digest(content):
        raise BundleError(f"{label}: was changed after it was written (its digest differs); compile the model again")
    return found


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class _Reader:
    """A JSON object that knows where it stands, for the messages."""

    label: str
    where: str
    table: Mapping[str, Any]

    def fail(self, name: str, problem: str) -> BundleError:
        return BundleError(f"{self.label}: field {self.where}{name}: {problem}")

    def get(self, name: str, kind: type[Item], wanted: str) -> Item:
        if name not in self.table:
            raise self.fail(name, "missing")
        value = self.table[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.fail(name, f"must be {wanted}, not {_short(value)}")
        return value

    def text(self, name: str) -> str:
        return self.get(name, str, "a text")

    def integer(self, name: str, least: int = 0, most: int | None = None) -> int:
        value = self.get(name, int, "a whole number")
        if value < least:
            raise self.fail(name, f"must be at least {least}, not {value}")
        if most is not None and value > most:
            raise self.fail(name, f"must be at most {most}, not {_short(value)}")
        return value

    def digest(self, name: str) -> str:
        value = self.text(name)
        if not _DIGEST.fullmatch(value):
            raise self.fail(name, f"must be 64 hexadecimal digits, not {_short(value)}")
        return value

    def table_of(self, name: str) -> _Reader:
        return _Reader(self.label, f"{self.where}{name}.", self.get(name, dict, "an object"))

    def tables(self, name: str, read: Callable[[_Reader], Item]) -> tuple[Item, ...]:
        items = self.get(name, list, "a list")
        for position, item in enumerate(items):
            if not isinstance(item, dict):
                raise self.fail(f"{name}[{position}]", f"must be an object, not {_short(item)}")
        return tuple(read(_Reader(self.label, f"{self.where}{name}[{n}].", item)) for n, item in enumerate(items))

    def texts(self, name: str) -> tuple[str, ...]:
        items = self.get(name, list, "a list")
        if not all(isinstance(item, str) for item in items):
            raise self.fail(name, f"must be a list of texts, not {_short(items)}")
        return tuple(items)

    def only(self, fields: tuple[str, ...]) -> None:
        for name in self.table:
            if name not in fields:
                raise self.fail(name, "unknown")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _manifest(reader: _Reader) -> Manifest:
    inputs, outputs = reader.tables("inputs", _port), reader.tables("outputs", _port)
    _require_different(reader, inputs)
    files = reader.table_of("files")
    library = reader.text("library")
    if library not in files.table:
        raise reader.fail("library", f"{_short(library)} is not among the files")
    fallbacks = reader.tables("fallbacks", _fallback)
    for position, entry in enumerate(fallbacks):
        if entry.file not in files.table:
            raise reader.fail(f"fallbacks[{position}].file", f"{_short(entry.file)} is not among the files")
    versions = reader.table_of("versions")
    return Manifest(
        inputs,
        outputs,
        _platform(reader.table_of("platform")),
        reader.text("precision"),
        reader.integer("threads", 1, MOST_THREADS),
        _provenance(reader.table_of("provenance")),
        fallbacks,
        {name: versions.text(name) for name in versions.table},
        {_file_name(files, name): files.digest(name) for name in files.table},
        library,
        _optional(reader, "dsa"),
        _optional(reader, "tuning"),
    )


def _optional(reader: _Reader, name: str) -> dict[str, Any] | None:
    return reader.get(name, dict, "an object") if name in reader.table else None


def _file_name(reader: _Reader, name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise reader.fail(name, "is no file in the bundle")
    return name


def _require_different(reader: _Reader, ports: tuple[Port, ...]) -> None:
    names = [port.name for port in ports]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise reader.fail(f"inputs[{position}].name", f"{name!r} is there twice")


def _port(reader: _Reader) -> Port:
    reader.only(("name", "dtype", "shape"))
    dtype = reader.text("dtype")
    try:
        known = np.dtype(dtype).name == dtype and np.dtype(dtype).kind not in "OSUMm"  # objects, texts, dates
    except (TypeError, ValueError):
        known = False
    if not known:
        raise reader.fail("dtype", f"{_short(dtype)} is no element type")
    shape = reader.get("shape", list, "a list")
    if not all(isinstance(d, int) and not isinstance(d, bool) and d >= 0 for d in shape):
        raise reader.fail("shape", f"must be a list of sizes, not {_short(shape)}")
    if len(shape) > _MOST_DIMENSIONS or prod(shape) > _MOST_ELEMENTS:
        raise reader.fail("shape", f"is no tensor's that fits into memory: {_short(shape)}")
    return Port(reader.text("name"), dtype, tuple(shape))


def _platform(reader: _Reader) -> Platform:
    reader.only(tuple(Platform.__dataclass_fields__))
    return Platform(
        reader.text("name"),
        reader.text("architecture"),
        reader.text("triple"),
        reader.text("cpu"),
        reader.texts("features"),
    )


def _fallback(reader: _Reader) -> FallbackEntry:
    reader.only(tuple(FallbackEntry.__dataclass_fields__))
    return FallbackEntry(reader.text("file"), reader.texts("operators"), reader.text("reason"))


def _provenance(reader: _Reader) -> Provenance:
    reader.only(tuple(Provenance.__dataclass_fields__))
    shapes = reader.table_of("input_shapes")
    return Provenance(
        reader.text("model"),
        reader.digest("sha256"),
        {name: tuple(shapes.get(name, list, "a list")) for name in shapes.table},
        reader.integer("rules"),
        reader.text("partition"),
        reader.integer("operators"),
        reader.integer("kernels"),
        reader.integer("distinct_kernels"),
        reader.text("verification"),
        reader.texts("replaced"),
        reader.get("budget_hit", bool, "true or false"),
        reader.texts("trusted_rules"),
    )
