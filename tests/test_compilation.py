"""Bundles with kernels that are wrong: these are compiled again by the plainest schedule, all others as before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from eqfuse.driver.compilation import Built, Compilation
from eqfuse.driver.optimize import Result
from eqfuse.driver.processor import Cut, Processor
from eqfuse.lowering.bundle.manifest import Manifest
from eqfuse.lowering.errors import WrongKernelsError
from eqfuse.lowering.target import target_of

CUT = Cut(((0,),), {})
BUILT = Built(cast(Manifest, "manifest"))


@dataclass(frozen=True)
class Unlucky(Processor):
    """Finds the kernels `bad` wrong unless they are compiled plainly; keeps what each attempt was asked for."""

    bad: tuple[str, ...] = ()
    attempts: list[tuple[Mapping[str, str], Cut | None]] = field(default_factory=list)

    def _attempt(self, _: Any, __: Any, folder: Path, wrong: Mapping[str, str], cut: Cut | None) -> Built:
        (folder / "library").touch(exist_ok=False)
        self.attempts.append((wrong, cut))
        still = {name: "is off" for name in self.bad if len(self.attempts) == 1 or name not in wrong}
        if still:
            raise WrongKernelsError("wrong", still)
        return BUILT


def built(processor: Processor, folder: Path, cut: Cut | None = None) -> Built:
    return processor.build(cast(Compilation, None), cast(Result, None), folder, cut)


@pytest.mark.parametrize("cut", [None, CUT])
def test_wrong_kernels_are_compiled_again_plainly(tmp_path: Path, cut: Cut | None) -> None:
    processor = Unlucky(target_of("host", 1), bad=("k",))
    assert built(processor, tmp_path, cut) is BUILT
    assert processor.attempts == [({}, cut), ({"k": "is off"}, cut)]


def test_right_ones_are_compiled_once(tmp_path: Path) -> None:
    processor = Unlucky(target_of("host", 1))
    built(processor, tmp_path)
    assert processor.attempts == [({}, None)]
