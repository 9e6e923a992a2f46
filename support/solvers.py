"""HiGHS and z3 under a deadline and under Ctrl-C: integer programs, and z3's word on a solver."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .deadlines import seconds_left

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

Answer = TypeVar("Answer")

_LEAST_SECONDS = 0.05
"""HiGHS gets this long even at the deadline: with less it returns nothing at all."""
_GRACE = 0.05
"""Seconds after which z3, which looks at its own time-out only now and then, is interrupted from outside."""
_INFEASIBLE = 2
"""The status by which scipy says that no values satisfy a program."""


class Row(NamedTuple):
    """A constraint: lower <= sum of factor * column over the terms <= upper."""

    terms: Sequence[tuple[int, float]]
    lower: float = -math.inf
    upper: float = math.inf


class Optimum(NamedTuple):
    """The best values found, None where there are none; no values cost less than `bound`, which is infinite where none
    satisfy the rows."""

    values: NDArray[numpy.float64] | None
    bound: float


@dataclass
class IntegerProgram:
    """Columns with values from 0 to 1, each with its cost, integral or not, and rows that they must satisfy."""

    costs: list[float] = field(default_factory=list)
    is_integral: list[bool] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def add_column(self, cost: float, *, is_integral: bool) -> int:
        """Add a column and return its number."""
        self.costs.append(cost)
        self.is_integral.append(is_integral)
        return len(self.costs) - 1

    def minimise(self, deadline: float) -> Optimum:
        """The cheapest values that HiGHS finds, and its bound, by the deadline (time.monotonic)."""
        import numpy  # here, as scipy: importing them takes longer than most extractions
        from scipy.optimize import Bounds, LinearConstraint, milp

        row_of = [number for number, row in enumerate(self.rows) for _ in row.terms]
        terms = [term for row in self.rows for term in row.terms]
        factors, columns = [factor for _, factor in terms], [column for column, _ in terms]
        matrix = sparse_matrix(factors, row_of, columns, (len(self.rows), len(self.costs)))
        limits = LinearConstraint(matrix, [row.lower for row in self.rows], [row.upper for row in self.rows])
        options = {"time_limit": max(seconds_left(deadline), _LEAST_SECONDS), "mip_rel_gap": 0.0}
        costs, integrality = numpy.array(self.costs), numpy.array(self.is_integral, dtype=int)
        result = interruptible(
            lambda: milp(costs, constraints=limits, integrality=integrality, bounds=Bounds(0, 1), options=options)
        )
        if result.status == _INFEASIBLE:
            return Optimum(None, math.inf)
        bound = result.mip_dual_bound
        return Optimum(result.x, float(bound) if bound is not None and math.isfinite(bound) else 0.0)


def sparse_matrix(factors: Sequence[float], rows: Sequence[int], columns: Sequence[int], shape: tuple[int, int]) -> Any:
    """A scipy csr_array with each factor at its row and column.

    Its indices have 32 bits: scipy makes 64-bit ones of Python's integers, which its HiGHS refuses before scipy 1.15.
    """
    import numpy
    from scipy.sparse import csr_array

    places = (numpy.array(rows, dtype=numpy.int32), numpy.array(columns, dtype=numpy.int32))
    return csr_array((numpy.array(factors, dtype=float), places), shape=shape)


def as_integers(costs: Sequence[float]) -> tuple[list[int], Fraction]:
    """Integers and a unit such that cost = integer * unit exactly (floats are binary fractions)."""
    ratios = [cost.as_integer_ratio() for cost in costs]
    denominator = max((ratio[1] for ratio in ratios), default=1)
    numerators = [numerator * (denominator // own) for numerator, own in ratios]
    divisor = math.gcd(*numerators) or 1
    return [numerator // divisor for numerator in numerators], Fraction(divisor, denominator)


@functools.cache
def z3_context(user: str) -> Any:
    """The z3 context of one user, made once: a new one costs more than most searches."""
    import z3

    return z3.Context()


def check_within(deadline: float, solver: Any, assumptions: Sequence[Any] = ()) -> Any:
    """z3's word on a solver or optimiser: unknown where the deadline (time.monotonic) comes first."""
    import z3

    remaining = seconds_left(deadline)
    solver.set("timeout", max(int(remaining * 1000), 1))
    solver.set("ctrl_c", False)  # z3 would swallow the signal
    watchdog = threading.Timer(remaining + _GRACE, solver.ctx.interrupt)
    watchdog.start()
    try:
        return interruptible(lambda: solver.check(*assumptions), solver.ctx.interrupt)
    except z3.Z3Exception:
        return z3.unknown
    finally:
        watchdog.cancel()


def interruptible(call: Callable[[], Answer], stop: Callable[[], None] = lambda: None) -> Answer:
    """The answer of a call that does not return to Python for long.

    It runs in a thread, so that this one can receive KeyboardInterrupt; then `stop` is called and the call abandoned.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        stop()
        raise
    if errors:
        raise errors[0]
    return answers[0]
