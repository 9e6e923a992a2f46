"""Damaged models given to the commands: none may end in more than one clear line, or in a result that is wrong.

Each case is a small model of one kind with one kind of damage, and makes a few mutants of it; the same in every run.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random
from stat import S_ISREG

import onnx
import pytest

from eqfuse.support.processes.worker_process import WorkerDiedError, WorkerProcess
from eqfuse.tests.conformance.fuzzing.file_damage import FILE_DAMAGES
from eqfuse.tests.conformance.fuzzing.graph_damage import GRAPH_DAMAGES
from eqfuse.tests.conformance.fuzzing.messages import Command, Comparison, Outcome, Verdict
from eqfuse.tests.conformance.fuzzing.seeds import SEEDS
from eqfuse.tests.conformance.fuzzing.value_damage import VALUE_DAMAGES
from eqfuse.tests.conformance.fuzzing.wire_damage import BYTE_DAMAGES
from eqfuse.tests.conformance.fuzzing.worker import __name__ as WORKER

from ..caches import own_cache

_MUTANTS = 4
"""Of each model and kind of damage; 3,300 in all."""
_LIMIT = 90.0
"""Seconds that a command may take on a busy machine: its own limits are far shorter, those of `compile` apart."""
_COMPARISON_LIMIT = 20.0
_MOST_MEMORY = 3 << 30
_PROGRESS = re.compile(r"(?m)^ *\d+\.\d s  .*\n")
_UNCLEAR = re.compile("internal error|Traceback|out of memory|bad_alloc|--help")
_EXIT_CODES = (0, 1, 2, 3, 5)
_WRITTEN = (0, 5)
_OPTIMIZE = ("optimize", "in.onnx", "-o", "out.onnx", "--time-limit", "3", "--verify-limit", "5")

DAMAGES = {damage.__name__: damage for damage in (*BYTE_DAMAGES, *VALUE_DAMAGES, *GRAPH_DAMAGES, *FILE_DAMAGES)}


@dataclass(frozen=True)
class Mutant:
    """A damaged model `in.onnx` in a folder, beside what it was made of, `sound.onnx`."""

    folder: Path
    random: Random

    def command(self, index: int) -> Command:
        """The first mutants of each case are optimised in three ways; others meet a command by chance."""
        optimizations = ((), ("--no-verify",), self.random.choice(_WAYS))
        arguments = (*_OPTIMIZE, *optimizations[index]) if index < 3 else self.random.choices(*_COMMANDS)[0]
        return Command(self.folder, arguments)

    def files(self) -> Mapping[str, str]:
        """The contents of the folder: a digest of each file, the kind of all else."""
        return {
            str(path.relative_to(self.folder)): sha256(path.read_bytes()).hexdigest()
            if S_ISREG(path.lstat().st_mode)
            else oct(path.lstat().st_mode)
            for path in self.folder.rglob("*")
        }


_WAYS = (("--partition", "joint"), ("--partition", "ago"), ("--partition", "fuseops"), ("--precision", "exact"))
_COMMANDS = (
    (
        ("inspect", "in.onnx"),
        ("inspect", "in.onnx", "--partition", "joint", "--time-limit", "3"),
        ("diff", "sound.onnx", "in.onnx"),
        ("verify", "sound.onnx", "in.onnx", "--verify-limit", "5"),
        ("verify", "in.onnx", "in.onnx", "--verify-limit", "5"),
        ("compile", "in.onnx", "-o", "out.bundle", "--time-limit", "3", "--verify-limit", "20", "--threads", "1"),
    ),
    (5, 2, 4, 3, 3, 1),
)
"""What the other mutants meet, and how often: compiling takes seconds."""


def made(kind: str, damage: str, index: int, folder: Path) -> Mutant:
    """The same mutant for the same arguments, whatever ran before."""
    folder.mkdir()
    random = Random(f"{kind} {damage} {index}")
    seed = SEEDS[kind]()
    for name, content in seed.files.items():
        (folder / name).write_bytes(content)
    sound = seed.model.SerializeToString()
    (folder / "sound.onnx").write_bytes(sound)
    other = SEEDS[random.choice(list(SEEDS))]().model.SerializeToString()
    (folder / "in.onnx").write_bytes(damaged(damage, folder, sound, random, other))
    return Mutant(folder, random)


def damaged(name: str, folder: Path, sound: bytes, random: Random, other: bytes) -> bytes:
    damage: Callable[..., bytes | None] = DAMAGES[name]
    if damage in BYTE_DAMAGES:
        return damage(sound, random, other) or b"\0"
    model = onnx.ModelProto.FromString(sound)
    damage(*((folder,) if damage in FILE_DAMAGES else ()), model, random)
    return bytes(model.SerializeToString())


@dataclass(frozen=True)
class Runner:
    """Two processes: one runs commands, one compares models, for each may crash of its own accord."""

    commands: WorkerProcess
    comparisons: WorkerProcess

    def findings(self, mutant: Mutant, command: Command) -> tuple[int, list[str]]:
        """Run a command; its exit code (-1: none), and all that is wrong with what it did."""
        before = mutant.files()
        try:
            outcome: Outcome = self.commands.ask(command, _LIMIT)
        except WorkerDiedError as error:
            return -1, [f"the process {error}"]
        found = list(_of_outcome(outcome))
        if outcome.peak > _MOST_MEMORY:
            self.commands.end()  # the next one's peak is its own
        after = mutant.files()
        found += [f"{name} was changed" for name, digest in before.items() if after.get(name) != digest]
        written = after.keys() - before.keys()
        allowed = {"out.onnx", "out.onnx.data"} if outcome.code in _WRITTEN else set()
        is_bundle = command.arguments[0] == "compile" and outcome.code in _WRITTEN
        found += [f"left {name}" for name in sorted(written - allowed) if not (is_bundle and "out.bundle" in name)]
        if "out.onnx" in written:
            found += self._of_result(mutant, command)
        return outcome.code, found

    def _of_result(self, mutant: Mutant, command: Command) -> list[str]:
        verified, exact = "--no-verify" not in command.arguments, "exact" in command.arguments
        question = Comparison(mutant.folder / "in.onnx", mutant.folder / "out.onnx", verified, exact)
        try:
            verdict: Verdict = self.comparisons.ask(question, _COMPARISON_LIMIT)
        except WorkerDiedError:
            try:
                self.comparisons.ask(replace(question, result=question.original), _COMPARISON_LIMIT)
            except WorkerDiedError:
                return []  # ONNX Runtime does not survive the original either
            return ["ONNX Runtime crashes on the result, and not on the original"]
        return [verdict.difference] if verdict.difference else []


def _of_outcome(outcome: Outcome) -> Iterator[str]:
    text = outcome.err.decode(errors="replace")
    lines = _PROGRESS.sub("", text).splitlines()
    if outcome.escaped:
        yield f"raises {outcome.escaped.splitlines()[-1]}"
    elif outcome.code not in _EXIT_CODES:
        yield f"exit code {outcome.code}"
    expected = {0: 0, 5: 0, 1: 1, 2: 1, 3: min(len(lines), 1)}.get(outcome.code)
    is_clear = all(line.startswith("eqfuse: error: ") and not _UNCLEAR.search(line) for line in lines)
    if len(lines) != expected or not is_clear:
        yield f"says {lines}"
    for stream in (outcome.out, outcome.err):
        shown = stream.decode(errors="replace").replace("\n", "").replace("\t", "")
        if not shown.isprintable():
            yield f"prints control characters: {shown[:200]!r}"
    if outcome.peak > _MOST_MEMORY:
        yield f"takes {outcome.peak >> 20} MiB"
    if outcome.temporary:
        yield f"leaves temporary files: {outcome.temporary}"


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    paths = [folder for folder in sys.path if folder]
    common = {"PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": own_cache(tmp_path_factory.mktemp("cache"))}
    processes = [
        WorkerProcess(
            f"{WORKER}:commands_and_comparisons",
            setup=(),
            environment={**common, "TMPDIR": str(tmp_path_factory.mktemp(name))},
        )
        for name in ("commands", "comparisons")
    ]
    yield Runner(*processes)
    for process in processes:
        process.end()


@pytest.mark.representatives(4)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", SEEDS)
def test_a_damaged_model_is_refused_or_optimised(
    kind: str, damage: str, tmp_path: Path, runner: Runner, record_property: Callable[[str, object], None]
) -> None:
    wrong = []
    for index in range(_MUTANTS):
        mutant = made(kind, damage, index, tmp_path / str(index))
        command = mutant.command(index)
        code, findings = runner.findings(mutant, command)
        record_property("mutant", (damage, "finding" if findings else str(code)))
        wrong += [f"{mutant.folder}: eqfuse {' '.join(command.arguments)}: {finding}" for finding in findings]
    assert not wrong, "\n".join(wrong)
