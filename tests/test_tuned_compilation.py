"""Keeping the better of two bundles: kernels of the tuned one that are wrong do not cost all that was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from eqfuse.compilation import Compiled, Cut, Work
from eqfuse.lowering.errors import WrongKernelsError
from eqfuse.tuned_compilation import _bundled


@dataclass
class Unlucky:
    """Makes a bundle whose kernel `k` is wrong unless it is compiled plainly."""

    plain: list[Any] = field(default_factory=list)

    def bundle(self, result: Any, folder: Path, wrong: Any = None, cut: Any = None) -> tuple[None, str]:
        (folder / "library").touch(exist_ok=False)
        self.plain.append(wrong)
        if wrong is None:
            raise WrongKernelsError("wrong", {"k": "is off"})
        return None, "manifest"


@dataclass
class Made:
    result: str = "result"


def test_wrong_kernels_are_compiled_again_plainly(tmp_path: Path) -> None:
    work, folder = Unlucky(), tmp_path / "bundle"
    folder.mkdir()
    found = _bundled(cast(Work, work), cast(Compiled, Made()), folder, Cut((), {}))
    assert str(found) == "manifest"
    assert work.plain == [None, {"k": "is off"}]
