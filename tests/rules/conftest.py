"""An e-graph with the analyses, shared by the tests of a module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from eqfuse.rules.egglog_bindings import execute, load
from eqfuse.rules.loader import prelude

os.environ.setdefault("RUST_BACKTRACE", "0")


class Analyses:
    """A scratch e-graph that answers what the analyses derive."""

    def __init__(self) -> None:
        self.egraph = load().EGraph()
        execute(self.egraph, prelude())

    def run(self, text: str) -> list[Any]:
        """Run commands."""
        return execute(self.egraph, text)

    def variable(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> str:
        """An input of the graph with its type."""
        term = f'(Var "{name}")'
        dimensions = f"(vec-of {' '.join(map(str, shape))})" if shape else "(vec-empty)"
        self.run(f'(set (shape {term}) {dimensions}) (set (dtype {term}) "{dtype}")')
        return term

    def holds(self, *facts: str) -> bool:
        """Whether facts are derived, after saturation."""
        bindings = load()
        self.run("(run-schedule (saturate analysis))")
        try:
            self.run(f"(check {' '.join(facts)})")
        except bindings.EggSmolError:
            return False
        return True

    def type_of(self, term: str) -> tuple[tuple[int, ...], str] | None:
        """Shape and dtype of a term, None if one is not derived."""
        self.run(term)
        self.run("(run-schedule (saturate analysis))")
        bindings = load()
        try:
            shape = self.run(f"(extract (shape {term}))")[0]
            dtype = self.run(f"(extract (dtype {term}))")[0]
        except bindings.EggSmolError:
            return None
        numbers = str(shape).strip("()\n").split()[1:]
        return tuple(map(int, numbers)), str(dtype).strip('"\n')


@pytest.fixture(scope="session")
def loaded() -> Analyses:
    return Analyses()


@pytest.fixture
def analyses(loaded: Analyses) -> Iterator[Analyses]:
    """The e-graph as it was loaded, whatever the test before did."""
    loaded.run("(push)")
    yield loaded
    loaded.run("(pop)")
