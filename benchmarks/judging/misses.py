"""Damaged results: whether verification refuses them, as `optimize` and `compile` call it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import onnx

import eqfuse
from eqfuse.driver.clock import Clock
from eqfuse.driver.compiler.compilation import Compilation
from eqfuse.driver.compiler.processor import Processor
from eqfuse.driver.options import Options
from eqfuse.engine.onnx.model import read
from eqfuse.engine.verification import verify
from eqfuse.lowering.base.target import target_of
from eqfuse.support.errors import EqfuseError, VerificationError

from .damages import DAMAGES
from .referee import Effect, Referee
from .rows import Half, Miss
from .subjects import Subject
from .wounded import Wounded

_DRAWS = 2
"""Ordinary inputs on which the effect of damage is measured."""
_ROUNDS = 3
"""How often each subject is tried for one kind of damage, until a place is found where it moves an output."""
_LEAST_EFFECT = 1e-12
"""Damage below it moves nothing on ordinary inputs: another place is drawn."""
_MOST_NODES: dict[Half, int] = {"optimize": 250, "compile": 100}
"""Larger models take long to judge a hundred times; free sizes, which are tried at several, count twice."""
_LONGEST = 300
"""Characters of a reason that are kept."""


@dataclass(frozen=True)
class Wound:
    """A damaged model, and how far the damage goes."""

    subject: Subject
    damage: str
    place: str
    model: onnx.ModelProto
    effect: Effect


@dataclass
class Ward:
    """Subjects, with what is computed once for each: the optimised model, and exact outputs."""

    subjects: Sequence[Subject]
    folder: Path
    _referees: dict[str, Referee] = field(default_factory=dict)
    _models: dict[Path, onnx.ModelProto] = field(default_factory=dict)

    def wound(self, half: Half, number: int) -> Wound | None:
        """Damage of this number: kinds take turns, and one that has no place gives its turn to the next."""
        kinds = list(DAMAGES)
        turn = number % len(kinds)
        found = (self._wound(half, number, kind) for kind in (*kinds[turn:], *kinds[:turn]))
        return next((wound for wound in found if wound is not None), None)

    def _wound(self, half: Half, number: int, kind: str) -> Wound | None:
        random = Random(f"{half} {number}")
        for subject in self._in_any_order(half, random) * _ROUNDS:
            original = self._load(subject.path)
            if DAMAGES[kind](Wounded(original), Random(number)) is None:
                continue
            wounded = Wounded(original if half == "compile" else self._load(self._optimized(subject)))
            place = DAMAGES[kind](wounded, random)
            if place is None:
                continue
            effect = self._referee(subject).measure(wounded.model)
            if effect is not None and effect.size > _LEAST_EFFECT:
                return Wound(subject, kind, place, wounded.model, effect)
        return None

    def _in_any_order(self, half: Half, random: Random) -> list[Subject]:
        """The subjects that are small enough."""
        small = [
            subject for subject in self.subjects
            if _size_of(self._load(subject.path)) <= _MOST_NODES[half]
        ]  # fmt: skip
        return random.sample(small, len(small))

    def _referee(self, subject: Subject) -> Referee:
        if subject.name not in self._referees:
            draws = [subject.draw(seed) for seed in range(_DRAWS)]
            self._referees[subject.name] = Referee(self._load(subject.path), draws)
        return self._referees[subject.name]

    def _optimized(self, subject: Subject) -> Path:
        """The file of the optimised model, which nothing has verified."""
        path = self.folder / f"{subject.name}.optimized.onnx"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            eqfuse.optimize(subject.path, path, verify=False)
        return path

    def _load(self, path: Path) -> onnx.ModelProto:
        if path not in self._models:
            self._models[path] = onnx.load(path)
        return self._models[path]


def _size_of(model: onnx.ModelProto) -> int:
    sizes = [size for value in model.graph.input for size in value.type.tensor_type.shape.dim]
    return len(model.graph.node) * (2 if any(size.dim_param for size in sizes) else 1)


def try_damaged_result(ward: Ward, half: Half, number: int) -> Miss:
    """The verdict on damage of this number."""
    wound = ward.wound(half, number)
    if wound is None:
        return Miss(number, half, "", "", "", 0.0, "", "undecided", "no model has a place for any damage", 0.0)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="eqfuse-judge-") as folder:
        path = Path(folder) / "damaged.onnx"
        onnx.save(wound.model, path)
        judge = _judge_optimized if half == "optimize" else _judge_compiled
        try:
            status, reason = judge(wound.subject.path, path)
        except EqfuseError as error:
            status, reason = "undecided", str(error)
    return Miss(
        number, half, wound.subject.name, wound.damage, wound.place, wound.effect.size, wound.effect.measured_in,
        status, reason[:_LONGEST], round(time.monotonic() - started, 1),
    )  # fmt: skip


def _judge_optimized(original: Path, damaged: Path) -> tuple[str, str]:
    """The verdict of `optimize` on a result."""
    verification = verify(original, damaged, precision="real")
    status = {"failed": "refused", "passed": "accepted", "not verifiable": "accepted"}.get(
        verification.status, "undecided"
    )
    return status, verification.summary


def _judge_compiled(original: Path, damaged: Path) -> tuple[str, str]:
    """The verdict of `compile` on a bundle that was made from the damaged model in the place of the original."""
    backend = _Compiler(target_of("host", 1), measure=False)
    options = Options(device="host", partition="joint")
    made = Compilation.of(read(damaged), options, Clock(None))
    asked = Compilation.of(read(original), options, Clock(None))
    with tempfile.TemporaryDirectory(prefix="eqfuse-judge-") as folder:
        try:
            built = backend.build(asked, made.optimize(backend), Path(folder))
        except VerificationError as error:
            return "refused", str(error)
    return "accepted", built.manifest.provenance.verification


class _Compiler(Processor):
    """Compiles for this machine as `compile` does, but does not look for the kernel to blame: none is."""

    def _explain_failure(self, message: str, *_: object) -> VerificationError:
        return VerificationError(message)
