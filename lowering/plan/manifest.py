"""manifest.json: the types of its fields, and how it is written and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from math import prod
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from ...ir.sizes import parse_size
from ...support.json_types import JsonFieldError, convert_json, parse_json, shorten
from ..base.errors import BundleError
from ..base.ports import Port
from ..base.threads import MOST_THREADS

FORMAT = 8
"""Raise it with every change of the manifest's fields, or of the functions that a library must have to be run."""
BACK_ENDS = ("dsa", "ethos_u")
"""Folders of `lowering/` that run bundles of their own; a manifest has an optional field of each of these names."""
_OPTIONAL = (*BACK_ENDS, "tuning", "measurement", "sizes")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_DIMENSIONS = 64
"""Dimensions of an array: numpy allows no more."""
_MOST_ELEMENTS = 1 << 40
"""Elements of one input or output: no machine has memory for more."""
LIBRARY = "model.so"
WEIGHTS = "weights.bin"
PLAN = "plan.json"
PROGRAM = "program.json"
"""The form of the bundle: a library that this machine loads, and its weights; of a C project for another one the plan
of its steps; or a program for an accelerator, which a simulator executes."""

Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True)
class Platform:
    """The processor that the library runs on: the target's name, LLVM's names of it, and the instruction sets that it
    may use."""

    name: str
    architecture: str
    triple: str
    cpu: str
    features: tuple[str, ...]


@dataclass(frozen=True)
class Provenance:
    """Where a bundle comes from. `model` is the path of the original, `sha256` of its content.

    `input_shapes` are those that were fixed; `rules` is how many rules matched; `verification` the verdict in one line,
    "" if nothing was verified; `certificate` the answer of z3 on the partition, "" if there is none; `replaced`
    says of which kernels the schedule was seen to be wrong and replaced by a plain one; `budget_hit` says that a limit
    ended the search for a cheaper graph; `trusted_rules` are the rule files that were used without a check, by name.
    `copies` are kernels beside those of the partition, which copy feature maps; of the
    `groups` that a method drew without asking what a kernel can be, `as_drawn` are one kernel each. `unrounded` says
    what ``--precision fast`` may gain for a quantised model, "" for nothing. `stand_ins` says of each output that
    the model gives as a list of dictionaries, or as text, which numbers compiled code gives in its place.
    """

    model: str
    sha256: str
    input_shapes: Mapping[str, tuple[int | str, ...]]
    rules: Count
    partition: str
    operators: Count
    kernels: Count
    distinct_kernels: Count
    verification: str
    replaced: tuple[str, ...]
    budget_hit: bool
    trusted_rules: tuple[str, ...] = ()
    certificate: str = ""
    copies: Count = 0
    groups: Count = 0
    as_drawn: Count = 0
    unrounded: str = ""
    stand_ins: tuple[str, ...] = ()


@dataclass(frozen=True)
class FallbackEntry:
    """Operators that ONNX Runtime runs: the model in `file`, and why. Inputs and outputs are the model's, in order."""

    file: str
    operators: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Trial:
    """Another way to compile a kernel that was tried: the seconds of a call, None if they were not measured; the
    `problem` if it is wrong or failed."""

    variant: str
    seconds: float | None
    problem: str = ""


@dataclass(frozen=True)
class KernelTrials:
    """A kernel that was slow, or wrong (`problem`), or plain loops that take long, and what was tried for it.

    `seconds` are those of a call as it was compiled first, 0 if it was wrong; `estimate` those that were expected, 0
    for plain loops.
    `chosen` is the variant that replaced it, "" if none did.
    """

    kernel: str
    operators: tuple[str, ...]
    seconds: float
    estimate: float
    problem: str
    trials: tuple[Trial, ...]
    chosen: str


@dataclass(frozen=True)
class MeasurementSummary:
    """How many steps of the bundle were timed when it was compiled, how many seconds that and what followed took, and
    which kernels were replaced. `problem` says why nothing, or no more, was timed.

    `fused` are the seconds of the kernels of one run, and `apart` those of the same operators as kernels by themselves:
    measured if that was in doubt, else predicted, times the usual ratio of measured to predicted times here."""

    timed: Count
    seconds: float
    kernels: tuple[KernelTrials, ...] = ()
    problem: str = ""
    fused: float = 0.0
    apart: float = 0.0


@dataclass(frozen=True)
class SizeSummary:
    """The sizes of dynamic dimensions, by their names: the `typical` ones that choices are made for, and the `special`
    ones that have kernels of their own. The dimensions `batch` count samples."""

    typical: Mapping[str, int]
    special: tuple[Mapping[str, int], ...]
    batch: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """The estimated seconds of a run of the model, the sum of its kernels, after `seconds` of a search."""

    trials: int
    seconds: float
    latency: float


@dataclass(frozen=True)
class TuningSummary:
    """What the search for a bundle's schedules did.

    `trials` candidates were measured in all, `failed` of them could not be built or did not run, on `tasks` distinct
    kernels; `joined` of these are several kernels of one anchor op that run as one. `ratio` is the run time of the
    untuned model over the tuned one's, end to end, 0 if `problem` says why there is none; `kept` says which of the
    two the bundle is. `learned` is false if candidates were chosen by estimates alone, for lack of xgboost. `curve` has
    a point for each batch of candidates, once all kernels have run.
    """

    trials: int
    failed: int
    tasks: int
    changed: int
    joined: int
    seconds: float
    runner: str
    ratio: float
    kept: Literal["tuned", "untuned"]
    learned: bool
    problem: str = ""
    curve: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """A bundle. `files` are the SHA-256 of every other file in it; `threads` is what it runs on by default.

    `dsa` is about a program for an accelerator (lowering/dsa/bundle/section.py reads it), `ethos_u` about one for an
    Ethos-U (lowering/ethos_u/model.py), `tuning` about the search for its schedules, `measurement` about timed kernels,
    and `sizes` about dynamic dimensions; None for others.
    `custom_ops` are the libraries of operators that ONNX Runtime needs for the fallbacks, outside of the bundle.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    platform: Platform
    precision: str
    threads: Annotated[int, Meta(ge=1, le=MOST_THREADS)]
    provenance: Provenance
    fallbacks: tuple[FallbackEntry, ...]
    versions: Mapping[str, str]
    files: Mapping[str, str]
    library: str = LIBRARY
    dsa: Mapping[str, Any] | None = None
    ethos_u: Mapping[str, Any] | None = None
    tuning: TuningSummary | None = None
    measurement: MeasurementSummary | None = None
    sizes: SizeSummary | None = None
    custom_ops: tuple[str, ...] = ()
    format: int = field(default=FORMAT)

    @property
    def back_end(self) -> str:
        """The folder of `lowering/` that runs the bundle; "" for a bundle of a processor."""
        return next((name for name in BACK_ENDS if getattr(self, name) is not None), "")

    @property
    def typical_sizes(self) -> Mapping[str, int]:
        """The sizes of dynamic dimensions that are optimised for, by their names."""
        return self.sizes.typical if self.sizes is not None else {}

    def text(self) -> str:
        """The file's content; its last field is the digest of the others."""
        content = {n: value for n, value in asdict(self).items() if n not in _OPTIONAL or value is not None}
        return json.dumps({**content, "digest": _digest(content)}, indent=1, ensure_ascii=False) + "\n"


def parse_manifest(text: str, label: str) -> Manifest:
    """The manifest in a text; `label` is what messages call it. Raises BundleError, one line that names the field."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise BundleError(f"{label}: is no JSON: {error}") from None
    try:
        _check_format(content, label)
        digest = content.pop("digest", None)
        manifest = convert_json(content, Manifest)
        _check_fields(manifest)
    except JsonFieldError as error:
        raise BundleError(f"{label}: {error}") from None
    if digest != _digest(content):
        raise BundleError(f"{label}: was changed after it was written (its digest differs); compile the model again")
    return manifest


def _check_format(content: object, label: str) -> None:
    """Raise BundleError for the format of another version of eqfuse, JsonFieldError if none is named."""
    written = content.get("format") if isinstance(content, dict) else None
    if type(written) is not int:
        raise JsonFieldError("format", "missing, or no whole number")
    if written != FORMAT:
        version = "an older" if written < FORMAT else "a newer"
        raise BundleError(
            f"{label}: was compiled by {version} version of eqfuse (its format is {written}, and this version reads "
            f"{FORMAT}); compile the model again"
        )


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check_fields(manifest: Manifest) -> None:
    """Raise JsonFieldError if a field has the right type and a value that it cannot have."""
    for kind, ports in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        for number, port in enumerate(ports):
            _check_port(f"{kind}[{number}]", port)
    names = [port.name for port in manifest.inputs]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise JsonFieldError(f"inputs[{number}].name", f"{name!r} is there twice")
    for name, digest in manifest.files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise JsonFieldError(f"files.{name}", "is no file in the bundle")
        _check_digest(f"files.{name}", digest)
    _check_digest("provenance.sha256", manifest.provenance.sha256)
    listed = {"library": manifest.library}
    listed |= {f"fallbacks[{number}].file": entry.file for number, entry in enumerate(manifest.fallbacks)}
    for field_path, file in listed.items():
        if file not in manifest.files:
            raise JsonFieldError(field_path, f"{shorten(file)} is not among the files")


def _check_digest(path: str, digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise JsonFieldError(path, f"must be 64 hexadecimal digits, not {shorten(digest)}")


def _check_port(path: str, port: Port) -> None:
    try:
        is_numpys = np.dtype(port.dtype).name == port.dtype and np.dtype(port.dtype).kind not in "OSUMm"
    except (TypeError, ValueError):
        is_numpys = False
    if not is_numpys:  # nor are objects, texts and dates elements of tensors
        raise JsonFieldError(f"{path}.dtype", f"{shorten(port.dtype)} is no element type")
    shape = list(port.shape)
    if any(parse_size(extent) is None if isinstance(extent, str) else extent < 0 for extent in shape):
        raise JsonFieldError(f"{path}.shape", f"must be a list of sizes, not {shorten(shape)}")
    if len(shape) > _MOST_DIMENSIONS or prod(e for e in shape if isinstance(e, int)) > _MOST_ELEMENTS:
        raise JsonFieldError(f"{path}.shape", f"is no tensor's that fits into memory: {shorten(shape)}")
