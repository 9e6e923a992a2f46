"""Building and measuring candidates of tasks, with a record of each: ``(Task, Decisions) -> Trial``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from pathlib import Path
from statistics import median

from ...costmodels.measurement import canonical_json
from ...ir.types import TensorType
from ...support.store import source_digest
from ..bundle.bundle import versions
from ..kernels.messages import Answer, Request
from ..running.turns import Middle
from ..schedules.decisions import Decisions, DecisionSite
from ..target import Target
from .cost_model import features_of
from .records import Record, RecordDatabase
from .runners.builders import Builder
from .runners.local_runner import LOCAL
from .runners.measuring import MOST_BETWEEN, KernelObject, Runner, Timing
from .space import decisions_of
from .task import Task

NOTICEABLE = 0.99
"""What a schedule takes at most, as a share of the analytic one's time, to be faster."""
_SCHEDULES = ("lowering/schedules", "lowering/compute", "costmodels/devices")
"""The packages that decide which code decisions give."""


@dataclass(frozen=True)
class Built:
    """A candidate that was compiled, or the `problem`; its decisions are what its schedule took, in normal form."""

    task: Task
    decisions: Decisions
    trace: tuple[DecisionSite, ...]
    kernel: KernelObject | None
    digest: str = ""
    problem: str | None = None
    lost: bool = False


@dataclass(frozen=True)
class Trial:
    """A candidate that was `wanted`, what it was built as, and the record of it.

    `lost`: it failed, maybe through no fault of its own; such a record is not kept, so that a later run tries again.
    """

    wanted: Decisions
    built: Built
    record: Record
    lost: bool = False

    @property
    def latency(self) -> float | None:
        """Its seconds; None where it failed."""
        return self.record.latency


@dataclass
class Laboratory:
    """Builds candidates in a folder, and measures and records them for a target.

    `between`: bytes of constants that a run of the model reads between two calls of a kernel.
    """

    target: Target
    builder: Builder
    runner: Runner
    database: RecordDatabase
    folder: Path
    between: int = 0
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _measured: dict[tuple[str, str], Timing] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """What records are of: the device, and how many threads."""
        return f"{self.target.device.name}/{self.target.threads}"

    @property
    def software(self) -> dict[str, str]:
        """What decides which code decisions give, and what runs it."""
        device = sha256(repr((self.target.device, self.target.cpu)).encode()).hexdigest()
        return {**versions(), "schedules": source_digest(*_SCHEDULES)[:12], "device": device[:12]}

    @property
    def versions(self) -> str:
        """The software as one text, which records are kept under."""
        return canonical_json(self.software)

    def records(self, task: Task) -> tuple[Record, ...]:
        """What was measured of a task before."""
        return self.database.of(self._name(task), self.device, self.runner.name, self.versions)

    def _name(self, task: Task) -> str:
        """What records of the task are kept under: one whose constants come from nearer is another one."""
        if self.runner.name != LOCAL or not task.constants:
            return task.key
        return f"{task.key}/{(min(self.between, MOST_BETWEEN) >> 20).bit_length()}"

    def build(self, wanted: Sequence[tuple[Task, Decisions]]) -> list[Built]:
        """Compile candidates, in their order."""
        names = [f"candidate_{next(self._numbers):08d}" for _ in wanted]
        requests = [self._request(name, *each) for name, each in zip(names, wanted, strict=True)]
        answers = {answer.name: answer for answer in self.builder.build(requests)}
        pairs = zip(names, wanted, strict=True)
        return [self._built(task, decisions, answers[name]) for name, (task, decisions) in pairs]

    def try_out(self, wanted: Sequence[tuple[Task, Decisions]]) -> list[Trial]:
        """Compile, measure and record candidates. Code that was measured before in this run is not measured again."""
        built = self.build(wanted)
        fresh = {(b.task.key, b.digest): b for b in built if b.kernel and (b.task.key, b.digest) not in self._measured}
        kernels = [b.kernel for b in fresh.values() if b.kernel is not None]
        self._measured.update(zip(fresh, self.runner.measure(kernels), strict=True))
        pairs = zip(wanted, built, strict=True)
        trials = [self._trial(decisions, each) for (_, decisions), each in pairs]
        self.database.add(*(trial.record for trial in trials if not trial.lost))
        for each in built:
            if each.kernel is not None:
                each.kernel.object_file.unlink(missing_ok=True)
        return trials

    def choose_confirmed(self, task: Task, leaders: Sequence[Decisions]) -> Decisions:
        """The leader that is faster than the analytic schedule by most, in interleaved pairs; {} where none is."""
        incumbent, *challengers = self.build([(task, {}), *((task, decisions) for decisions in leaders)])
        able = [(each.decisions, each.kernel) for each in challengers if each.kernel is not None]
        if incumbent.kernel is None or not able:
            return able[0][0] if able else {}
        compared = self.runner.compare(incumbent.kernel, [kernel for _, kernel in able])
        ratios = [median(new / old for old, new in pairs) if pairs else inf for pairs in compared]
        best = min(range(len(able)), key=ratios.__getitem__)
        return able[best][0] if ratios[best] < NOTICEABLE else {}

    def _request(self, name: str, task: Task, decisions: Decisions) -> Request:
        target = self.target
        file = str(self.folder / f"{name}.o")
        return Request(
            name, task.prim_func, target.device, target.description, file, target.threads, decisions=decisions
        )

    def _built(self, task: Task, wanted: Decisions, answer: Answer) -> Built:
        if answer.problem is not None:
            return Built(task, wanted, (), None, problem=answer.problem, lost=answer.lost)
        file = self.folder / f"{answer.name}.o"
        kernel = KernelObject(
            answer.name, file, tuple(_packed(task.parameters, answer)), task.outputs, task.constants, self.between
        )
        return Built(task, decisions_of(answer.trace), answer.trace, kernel, kernel.digest)

    def _trial(self, wanted: Decisions, built: Built) -> Trial:
        timing = self._measured.get((built.task.key, built.digest)) if built.kernel is not None else None
        lost = built.lost or (timing is not None and timing.lost)
        return Trial(wanted, built, self._record(built, timing), lost)

    def _record(self, built: Built, timing: Timing | None) -> Record:
        seconds = timing.seconds if timing is not None and timing.problem is None else ()
        middle = Middle.of(seconds) if seconds else None
        problem = built.problem or (timing.problem if timing is not None else None)
        return Record(
            self._name(built.task),
            self.device,
            self.runner.name,
            self.versions,
            built.decisions,
            middle.median if middle is not None else None,
            middle.upper - middle.lower if middle is not None else 0.0,
            len(seconds),
            features_of(built.task.features, built.trace),
            problem or "",
        )


def _packed(parameters: Sequence[TensorType], answer: Answer) -> Iterable[TensorType]:
    """The types that a kernel is called with: constants as its schedule wants them packed."""
    for number, known in enumerate(parameters):
        shape = tuple(int(extent) for extent in known.shape or ())
        for repack in answer.repack:
            if repack.parameter == number:
                shape = repack.packed_shape(shape)
        yield TensorType(known.dtype, shape)
