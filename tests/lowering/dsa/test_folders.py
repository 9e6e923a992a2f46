"""The folders of `lowering/dsa` import each other in one direction only, and `lowering/bundle` imports none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqfuse import lowering

from ...test_layers import own_imports

ORDER = ("network", "program", "schedule", "simulate", "tiles", "codegen", "report", "bundle")
"""Each of these imports only from those before it."""
ROOT = Path(lowering.__file__).parents[1]


def dsa_part(module: str) -> str | None:
    """The folder or module of `lowering/dsa` that a dotted name belongs to; None outside of it."""
    names = module.split(".")
    return names[2] if names[:2] == ["lowering", "dsa"] and len(names) > 2 else None


@pytest.mark.parametrize("part", ORDER)
def test_a_folder_imports_from_those_before_it(part: str) -> None:
    later = ORDER[ORDER.index(part) + 1 :]
    own = ROOT / "lowering" / "dsa" / part
    imports = [each for each in own_imports(ROOT) if own in each.file.parents or each.file == own.with_suffix(".py")]
    assert imports
    assert [f"{each.file}:{each.line}" for each in imports if dsa_part(each.target) in later] == []


def test_bundles_do_not_know_accelerators() -> None:
    folder = ROOT / "lowering" / "bundle"
    imports = [each for each in own_imports(ROOT) if folder in each.file.parents]
    assert [f"{each.file}:{each.line}" for each in imports if dsa_part(each.target)] == []
