"""Bundles with kernels that are wrong: these are compiled again by the plainest schedule, all others as before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eqfuse.api import Options, Result
from eqfuse.compilation import Cut, Work
from eqfuse.lowering.errors import WrongKernelsError
from eqfuse.lowering.manifest import Manifest
from eqfuse.lowering.target import target_of
from eqfuse.pipeline import Clock

CUT = Cut(((0,),), {})


@dataclass(frozen=True)
class Unlucky(Work):
    """Finds the kernels `bad` wrong unless they are compiled plainly; keeps what each attempt was asked for."""

    bad: tuple[str, ...] = ()
    attempts: list[tuple[Mapping[str, str], Cut | None]] = field(default_factory=list)

    def _bundle(self, result: Result, folder: Path, wrong: Mapping[str, str], cut: Cut | None) -> tuple[Any, Manifest]:
        (folder / "library").touch(exist_ok=False)
        self.attempts.append((wrong, cut))
        still = {name: "is off" for name in self.bad if len(self.attempts) == 1 or name not in wrong}
        if still:
            raise WrongKernelsError("wrong", still)
        return SimpleNamespace(answers={}), cast(Manifest, "manifest")


def unlucky(*bad: str) -> Unlucky:
    nothing: Any = None
    return Unlucky(nothing, nothing, (), Options(), target_of("host", 1), Clock(lambda *_: None), bad=bad)


@pytest.mark.parametrize("cut", [None, CUT])
def test_wrong_kernels_are_compiled_again_plainly(tmp_path: Path, cut: Cut | None) -> None:
    work = unlucky("k")
    found = work.bundle(cast(Result, None), tmp_path, Path("build"), cut)
    assert (str(found.manifest), found.path) == ("manifest", Path("build"))
    assert work.attempts == [({}, cut), ({"k": "is off"}, cut)]


def test_right_ones_are_compiled_once(tmp_path: Path) -> None:
    work = unlucky()
    work.bundle(cast(Result, None), tmp_path, Path("build"))
    assert work.attempts == [({}, None)]
