"""A compiled model as a folder: the library, manifest.json, and the ONNX models that ONNX Runtime runs.

It appears whole or not at all, and is looked at before it is run: every field, the machine, every file's checksum.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from ...support.errors import EqfuseError, UsageError
from ...support.files import replace_folder
from ...support.processor import ARM, processor_features
from ...support.scratch import staging_folder
from ..base.errors import BundleError
from ..plan.manifest import PLAN, PROGRAM, WEIGHTS, Manifest, parse_manifest

MANIFEST = "manifest.json"


def check_destination(path: Path) -> None:
    """Raise UsageError if no bundle can be put, or if something else would be lost: before the work."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: is a file; name a folder to write the bundle to")
    if path.is_dir() and any(path.iterdir()) and not (path / MANIFEST).is_file():
        raise UsageError(f"{path}: is a folder with other things in it; name a new one")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: the folder {path.absolute().parent} does not exist")
    if not os.access(path.absolute().parent, os.W_OK):
        raise UsageError(f"{path}: the folder {path.absolute().parent} cannot be written to")


@contextmanager
def stage_bundle(path: Path) -> Iterator[Path]:
    """A folder beside `path` to fill; `publish` moves it there, otherwise it goes. Errors about it name `path`."""
    with staging_folder(path) as outer:
        inner = outer / "bundle"
        inner.mkdir()
        try:
            yield inner
        except EqfuseError as error:
            error.args = (str(error).replace(str(inner), str(path)),)
            raise


def publish(folder: Path, path: Path) -> None:
    """Move a complete folder to `path`, in place of an earlier bundle; whoever opens `path` finds one of the two.

    Raises UsageError if something else was put there meanwhile, EqfuseError if it cannot be moved.
    """
    check_destination(path)
    try:
        replace_folder(folder, path)
    except OSError as error:
        raise EqfuseError(f"{path}: cannot be written: {error.strerror or error}") from None


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the manifest, by its path in the folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / MANIFEST)
    return {file.relative_to(folder).as_posix(): digest(file) for file in files}


def digest(file: Path) -> str:
    """SHA-256 of a file."""
    content = sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            content.update(block)
    return content.hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest; the last file of a bundle."""
    (folder / MANIFEST).write_text(manifest.text(), encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a bundle, checked by itself. Raises BundleError."""
    path = folder / MANIFEST
    if not folder.exists():
        raise BundleError(f"{folder}: no such folder; `eqfuse compile MODEL -o {folder}` makes it")
    if not path.is_file():
        raise BundleError(f"{folder}: is no compiled bundle: it has no {MANIFEST}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BundleError(f"{path}: is no JSON: it is no text") from None
    return parse_manifest(text, str(path))


def read_whole_bundle(folder: Path) -> Manifest:
    """The manifest of a bundle for any machine, none of whose files is missing or changed. Raises BundleError."""
    manifest = read_manifest(folder)
    _check_files(folder, manifest.files)
    return manifest


def read_usable_bundle(folder: Path) -> Manifest:
    """The manifest of a bundle that can run here and is whole but for its library and weights, which whoever loads them
    checks.

    Raises BundleError.
    """
    manifest = read_manifest(folder)
    loaded = (manifest.library, WEIGHTS)
    _check_files(folder, {name: digest for name, digest in manifest.files.items() if name not in loaded})
    _check_machine(folder, manifest)
    return manifest


def _check_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, expected in files.items():
        check_file(folder / name, expected)


def check_file(file: Path, expected: str, copy: Path | None = None) -> None:
    """Raise BundleError if a file of a bundle is missing or is another one.

    `copy` is another path to the same content, by which it will be used: the check is about this one.
    """
    content = copy or file
    if not content.is_file():
        raise missing_file(file)
    if digest(content) != expected:
        raise BundleError(f"{file}: was changed (its checksum differs); compile the model again")


def missing_file(file: Path) -> BundleError:
    """The error of a bundle without a file that its manifest lists."""
    return BundleError(f"{file}: is missing; compile the model again")


def _check_machine(folder: Path, manifest: Manifest) -> None:
    needed, here = manifest.platform.architecture, platform.machine()
    if manifest.library == PLAN:
        raise BundleError(
            f"{folder}: is a C project for {manifest.platform.name}; build it with CMake and run its example"
            + (", or count what it executes with `eqfuse bench --emulate`" if needed == ARM else "")
        )
    if manifest.library == PROGRAM:
        raise BundleError(
            f"{folder}: is a program for {manifest.platform.name}, which a simulator executes; "
            "use `eqfuse run` or `eqfuse bench` without options for processors"
        )
    if needed != here:
        raise BundleError(f"{folder}: was compiled for {needed} ({manifest.platform.name}), and this machine is {here}")
    missing = sorted(set(manifest.platform.features) - processor_features())
    if missing:
        raise BundleError(
            f"{folder}: was compiled for {manifest.platform.cpu}, and this processor has no {', '.join(missing)}; "
            "compile the model here"
        )



def copy_bundle(source: Path, folder: Path) -> None:
    """Copy a bundle into an empty folder."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
