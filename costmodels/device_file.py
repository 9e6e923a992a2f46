"""Device files: TOML whose figures each state their origin, read by the types of their fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec

from ..support.errors import EqfuseError
from ..support.processor import ProcessorModel

Origin = Literal["documented", "measured", "assumed", "detected"]
_FIGURE = f"write {{ value = NUMBER, origin = {' | '.join(map(repr, get_args(Origin)))} }}"
_LARGEST = 2.0**200
"""No figure of a device is larger, in any unit; this refuses infinity."""
_PLAIN_WORDS = {
    r"(object|array) \| null": r"\1",
    r"object": "a table",
    r"array": "a list",
    r"bool": "true or false",
    r"float that's a multiple of 1.0": "a whole number",
    r"float > 0.0": "a positive number",
    r"float >= 0.0": "a number of at least 0",
    r"float <= \S+": "a finite number",
    r"(float|int)": "a number",
    r"str matching regex .*": "one word of letters, digits and '._+-'",
}
"""Regular expressions of msgspec's words for types, and words that users of TOML know."""
_FIELD = re.compile(r"Object (contains unknown|missing required) field (\w+)")

CACHE_WAYS, CACHE_LINE = 8, 64
VECTOR_REGISTERS = 16
ISSUE_WIDTH, LOAD_PORTS, STORE_PORTS = 4, 2, 1
"""Figures for device files without these fields. x86-64 without AVX-512 has 16 vector registers, others have more."""

Positive = Annotated[float, msgspec.Meta(gt=0, le=_LARGEST)]
Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._+-]*\Z")]
"""One word of LLVM's, or nothing."""

Instruction = Literal["", "vpdpbusd", "vpmaddwd", "sdot"]
"""The instruction that adds up products of bytes in 32 bits, or of bytes that were made numbers of 16 bits; or none."""


class DeviceError(EqfuseError):
    """A device that does not exist, or a device file that cannot be used."""


class Figure(msgspec.Struct, frozen=True):
    """A positive number and where it comes from."""

    value: Positive
    origin: Origin

    @property
    def number(self) -> float:
        """The figure as a device holds it."""
        return self.value


class Overhead(Figure, frozen=True):
    """A figure that may be 0."""

    value: Annotated[float, msgspec.Meta(ge=0, le=_LARGEST)]


class Count(Figure, frozen=True):
    """A figure that is a whole number."""

    value: Annotated[float, msgspec.Meta(gt=0, le=_LARGEST, multiple_of=1)]

    @property
    def number(self) -> int:
        """The figure as a device holds it."""
        return int(self.value)


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a device file."""

    def arguments(self) -> dict[str, Any]:
        """The fields by name, figures as plain numbers; the description is left out, for it is for people only."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "description"}
        return {name: field.number if isinstance(field, Figure) else field for name, field in fields.items()}


class CacheTable(Table, frozen=True):
    """A [[caches]] table; the fields are those of a `Cache`."""

    level: int
    size: Count
    bandwidth: Figure
    shared: bool
    ways: Count = Count(CACHE_WAYS, "assumed")
    line: Count = Count(CACHE_LINE, "assumed")

    def __post_init__(self) -> None:
        size, ways, line = self.size.number, self.ways.number, self.line.number
        if line & (line - 1):
            raise ValueError(f"line must be a power of two, not {line}")
        if size < ways * line:
            raise ValueError(f"size must hold at least {ways} ways of one {line}-byte line, not {size} bytes")


class DeviceFile(Table, frozen=True):
    """A device file; the fields are those of a `Device`."""

    cores: Count
    vector_bits: Count
    fma_ports: Count
    clock: Figure
    caches: tuple[CacheTable, ...]
    dram_bandwidth: Figure
    launch_overhead: Overhead
    view_overhead: Overhead
    vector_registers: Count = Count(VECTOR_REGISTERS, "assumed")
    issue_width: Count = Count(ISSUE_WIDTH, "assumed")
    load_ports: Count = Count(LOAD_PORTS, "assumed")
    store_ports: Count = Count(STORE_PORTS, "assumed")
    mtriple: Word = ""
    mcpu: Word = ""
    mattr: tuple[Word, ...] = ()
    dot_product: Instruction = ""
    description: str = ""

    def __post_init__(self) -> None:
        order = [(cache.size.value, -cache.bandwidth.value) for cache in self.caches]
        if order != sorted(order):
            raise ValueError("the caches must go from the smallest to the largest, and not get faster")


class Microarchitecture(Table, frozen=True):
    """Figures of some processors of a device class; `models` are the first and the last of each range."""

    name: str
    class_: str = msgspec.field(name="class")
    vendor: str = ""
    family: int = 0
    models: tuple[tuple[int, int], ...] = ()
    figures: Mapping[str, Figure] = {}
    bandwidths: Mapping[int, Figure] = {}

    def includes(self, model: ProcessorModel) -> bool:
        """Whether a processor is one of these."""
        is_in_range = any(first <= model.model <= last for first, last in self.models)
        return is_in_range and (model.vendor, model.family) == (self.vendor, self.family)


class MicroarchitectureFile(Table, frozen=True):
    """The list of microarchitectures."""

    microarchitectures: tuple[Microarchitecture, ...]


TableType = TypeVar("TableType", bound=Table)


def device_path(name_or_path: str | Path, directory: Path) -> Path:
    """A file of a directory by its name, or any file whose path ends in ``.toml``."""
    path = Path(name_or_path)
    return path if path.suffix == ".toml" else directory / f"{path.name}.toml"


def read_device_file(path: Path, asked: str, names: Sequence[str], kind: type[TableType]) -> TableType:
    """The contents of the device file that the user `asked` for. Raises DeviceError; `names` are its suggestions."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        suggestions = ", ".join(names)
        raise DeviceError(
            f"there is no device {asked!r}; use one of {suggestions}, or the path of a .toml file"
        ) from None
    except UnicodeDecodeError as error:
        raise DeviceError(f"{path}: not a TOML file: {error}") from None
    return parse_device_file(text, path, kind)


def parse_device_file(text: str, path: Path, kind: type[TableType]) -> TableType:
    """The contents of a device file. Raises DeviceError, which names `path` and the field."""
    try:
        return msgspec.toml.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise DeviceError(f"{path}: {_explain(str(error), kind)}") from None
    except msgspec.DecodeError as error:
        raise DeviceError(f"{path}: not a TOML file: {error}") from None


def _explain(message: str, kind: type[Table]) -> str:
    """The wrong field and its correction, from msgspec's message ``PROBLEM - at `$.PATH` ``."""
    problem, _, place = message.partition(" - at `$")
    place = place.strip(".`")
    problem = problem.replace("`", "").replace("Expected", "expected")
    for words, plain in _PLAIN_WORDS.items():
        problem = re.sub(rf"(?<=expected ){words}", plain, problem)
    field = _FIELD.fullmatch(problem)
    if field:
        fields = ", ".join(_type_at(kind, place).__struct_fields__)
        problem = "missing" if field[1] == "missing required" else f"unknown; the fields are {fields}"
        place = ".".join(filter(None, (place, field[2])))
    elif problem.startswith("Invalid enum value"):
        expected = _type_at(kind, place)
        choices = get_args(expected) or [member.value for member in expected]
        problem = problem.replace("Invalid enum value", f"expected one of {', '.join(choices)}, got")
    if place.endswith(".value") or problem == "missing" or "a table" in problem:
        problem += f"; {_FIGURE}"
    return f"field {place}: {problem}" if place else problem


def _type_at(kind: Any, place: str) -> Any:
    """The declared type at a path such as ``caches[0].size``."""
    for step in re.findall(r"\w+|\[", place.replace("...", "")):
        if step == "[":
            kind = get_args(kind)[0]
        elif not step.isdecimal():
            kind = get_type_hints(kind)[step]
            kind = get_args(kind)[0] if isinstance(kind, UnionType) else kind
    return kind
