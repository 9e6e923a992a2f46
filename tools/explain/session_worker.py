"""The process behind a session, which runs programs and reads tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...rules.egglog_bindings import execute, load
from .messages import Cell, Contents, Load, Refused, Request, Run

_TERMS = ("T", "N", "Ts")


class SessionEGraph:
    """An e-graph that answers requests; `prelude` is its first program, and tables of facts are in `folder`."""

    def __init__(self, folder: str, prelude: str) -> None:
        self.bindings = load()
        self.egraph = self.bindings.EGraph(fact_directory=folder)
        self.numbers: dict[Any, int] = {}
        self.literals: dict[tuple[str, Any], Cell] = {}
        self.converters: dict[str, Callable[[Any], Cell]] = {
            "i64": self.egraph.value_to_i64,
            "f64": self.egraph.value_to_f64,
            "String": self.egraph.value_to_string,
            "bool": self.egraph.value_to_bool,
            "Ints": lambda v: tuple(map(self.egraph.value_to_i64, self.egraph.value_to_vec(v))),
        }

        execute(self.egraph, prelude)

    def __call__(self, request: Request) -> Any:
        """Execute a request and return its result. Raises Refused."""
        try:
            return self._content(request)
        except self.bindings.EggSmolError as error:
            raise Refused(" ".join(str(error).split())) from None

    def _content(self, request: Request) -> Any:
        if isinstance(request, Load):
            execute(self.egraph, request.program)
            return None
        if isinstance(request, Run):
            return execute(self.egraph, f"(run-schedule {request.schedule})")[0].report.updated
        functions = self.egraph.freeze().functions
        constructors = [n for n, f in functions.items() if request.terms and f.output_sort in _TERMS]
        return Contents(
            {name: self._rows(functions[name]) for name in request.tables},
            {name: self._rows(functions[name]) for name in constructors},
        )

    def _rows(self, function: Any) -> list[tuple[Cell, ...]]:
        sorts = (*function.input_sorts, function.output_sort)
        return [tuple(map(self._cell, sorts, (*row.inputs, row.output))) for row in function.rows]

    def _cell(self, sort: str, value: Any) -> Cell:
        if sort not in self.converters:
            return self.numbers.setdefault(value, len(self.numbers))
        key = (sort, value)
        if key not in self.literals:
            self.literals[key] = self.converters[sort](value)
        return self.literals[key]
