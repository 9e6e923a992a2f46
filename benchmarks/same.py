"""Whether two checkouts make the same of the same models: for changes that are meant to change nothing.

    python benchmarks/same.py BEFORE AFTER model.onnx folder/ ... [--rules] [--jobs 2]

Each checkout has its own `.venv` (`make setup`). Every command runs in both, in a new folder at one path, with empty
caches; what it writes (ONNX files, `kernels.json`, manifests, libraries, C projects, programs) is compared byte by
byte, and so is the JSON that it prints, without measured figures. The same LLVM makes one library of equal schedules.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCELERATORS = sorted(path.stem for path in (Path(__file__).parents[1] / "costmodels/devices/dsa").glob("*.toml"))
_COMPILE = ("compile", "MODEL", "-o", "bundle", "--json", "--no-verify")
COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", "MODEL", "--json"),
    "optimize": ("optimize", "MODEL", "-o", "out.onnx", "--json", "--no-verify"),
    "optimize, joint": ("optimize", "MODEL", "-o", "out.onnx", "--partition", "joint", "--json", "--no-verify"),
    "compile for the host": (*_COMPILE, "--threads", "1", "--no-measure"),
    "compile for Arm": (*_COMPILE, "--target", "arm-cortex-a76"),
    **{f"compile for {name}": (*_COMPILE, "--target", f"dsa-{name}") for name in ACCELERATORS},
}
RULES = ("rules", "check", "--json", "--fresh")
_MEASURED = re.compile(r"seconds|phases|time|latency_measured|curve")
"""Names of fields whose numbers are of one run; predicted seconds are compared by the files."""
_LIMIT = 1800
"""Seconds that one command may take, on a busy machine."""
_SHOWN = 12
"""Lines of a difference that are printed."""


@dataclass(frozen=True)
class Outcome:
    """What a command did: its exit code, what it printed without figures of that run, and the files it wrote."""

    code: int
    printed: str
    files: dict[str, bytes]


def run(checkout: Path, command: Sequence[str], model: Path | None, place: Path) -> Outcome:
    """Run a command of a checkout in a new folder at `place`, `MODEL` standing for a copy of the model in it."""
    place.mkdir()
    try:
        folder = place / "work"
        folder.mkdir()
        given: set[str] = set()
        if model is not None:
            for file in (model, *model.parent.glob(f"{model.stem}*.data"), *model.parent.glob("*.bin")):
                shutil.copy(file, folder / file.name)
                given.add(file.name)
        arguments = [model.name if model is not None and part == "MODEL" else part for part in command]
        environment = {**os.environ, "XDG_CACHE_HOME": str(place / "cache")}
        done = subprocess.run(
            [checkout / ".venv/bin/eqfuse", *arguments], cwd=folder, env=environment,
            capture_output=True, text=True, timeout=_LIMIT,
        )  # fmt: skip
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in given
        }
        printed = done.stdout if done.returncode in (0, 5) else done.stdout + _last_line(done.stderr)
        return Outcome(done.returncode, _without_measurements(printed), files)
    finally:
        shutil.rmtree(place)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def _without_measurements(printed: str) -> str:
    try:
        return json.dumps(_stripped(json.loads(printed)), indent=1, sort_keys=True)
    except ValueError:
        return printed


def _stripped(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _stripped(value) for name, value in content.items() if not _MEASURED.search(name)}
    return [_stripped(value) for value in content] if isinstance(content, list) else content


def differences(before: Outcome, after: Outcome) -> Iterator[str]:
    """What differs, in lines."""
    if before.code != after.code:
        yield f"exit code {before.code} and {after.code}"
    lines = difflib.unified_diff(before.printed.splitlines(), after.printed.splitlines(), "before", "after", n=1)
    yield from list(lines)[:_SHOWN]
    for name in sorted(before.files.keys() | after.files.keys()):
        if before.files.get(name) != after.files.get(name):
            sizes = [len(f[name]) if name in f else None for f in (before.files, after.files)]
            yield f"{name}: {sizes[0]} and {sizes[1]} bytes"


def compare(name: str, command: Sequence[str], model: Path | None, checkouts: Sequence[Path]) -> bool:
    """Run a command in both checkouts, and print what differs. True if nothing does."""
    with tempfile.TemporaryDirectory() as scratch:  # one path for both, for it is written into what they make
        before, after = (run(checkout, command, model, Path(scratch) / "place") for checkout in checkouts)
    found = list(differences(before, after))
    label = f"{model.stem if model else 'catalogue'}: {name}"
    print(f"{label}: {'the same' if not found else 'DIFFERS'} (exit code {after.code})", flush=True)
    print(*(f"    {line}" for line in found), sep="\n", end="\n" if found else "", flush=True)
    return not found


def models_in(paths: Sequence[Path]) -> list[Path]:
    """Models by name, and those of folders."""
    return [found for path in paths for found in (sorted(path.rglob("*.onnx")) if path.is_dir() else [path])]


def main() -> int:
    """Compare, and fail where something differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--rules", action="store_true", help="compare the verdicts on the shipped rules, too")
    parser.add_argument("--commands", nargs="*", choices=list(COMMANDS), default=list(COMMANDS))
    parser.add_argument("--jobs", type=int, default=1, help="commands to run at once")
    arguments = parser.parse_args()
    checkouts = [arguments.before.resolve(), arguments.after.resolve()]
    work: list[tuple[str, Sequence[str], Path | None]] = [
        (name, COMMANDS[name], model) for model in models_in(arguments.models) for name in arguments.commands
    ]
    work += [("rules check", RULES, None)] if arguments.rules else []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        same = list(pool.map(lambda item: compare(item[0], item[1], item[2], checkouts), work))
    print(f"{sum(same)} of {len(same)} are the same")
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
