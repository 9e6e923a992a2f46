"""HiGHS and z3 under a deadline and under Ctrl-C: integer programs, answers of z3, and orders of a graph's nodes.

An order is asked of z3's difference logic: each node has an integer that z3 is free to choose, its place in the order,
and each pair of nodes says that the first has the lower one. A set of pairs that no places satisfy has a cycle.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .deadlines import seconds_left
from .directed_graphs import find_short_cycle
from .errors import EqfuseError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

Answer = TypeVar("Answer")

_LEAST_SECONDS = 0.05
"""HiGHS gets this long even at the deadline: with less it returns nothing at all."""
_GRACE = 0.05
"""Seconds after which z3, which checks its own time-out only now and then, is interrupted from outside."""
_DIFFERENCE_LOGIC = 1
"""z3's number of its solver for differences of integers: with 6,000 nodes it takes half the time of the others."""

Pair = tuple[int, int]
"""Two nodes, the first of which comes before the second."""


class Row(NamedTuple):
    """A constraint: lower <= sum of factor * column over the terms <= upper."""

    terms: Sequence[tuple[int, float]]
    lower: float = -math.inf
    upper: float = math.inf


class Optimum(NamedTuple):
    """The best values found, None if there are none; no values cost less than `bound`, which is infinite if none
    satisfy the rows."""

    values: NDArray[numpy.float64] | None
    bound: float


@dataclass
class IntegerProgram:
    """Columns with the values 0 or 1, each with its cost, and rows that they must satisfy."""

    costs: list[float]
    rows: list[Row] = field(default_factory=list)

    def minimise(self, deadline: float, nodes: int | None = None, gap: float = 0.0) -> Optimum:
        """The cheapest values that HiGHS finds, and its bound, by the deadline (time.monotonic) and within `nodes` of
        its search tree. It ends once the values cost at most 1 + `gap` times as much as the cheapest ones."""
        import highspy  # here, as numpy: importing them takes longer than most extractions
        import numpy

        solver: Any = vars(highspy)["_Highs"]()  # Highs, which adds callbacks and operators, prints a line
        options: dict[str, Any] = {"output_flag": False, "threads": 1, "mip_rel_gap": gap}
        if nodes is not None:
            options |= {"mip_max_nodes": nodes, "mip_allow_restart": False}  # a restart begins with the root again
        for name, value in {**options, "time_limit": max(seconds_left(deadline), _LEAST_SECONDS)}.items():
            solver.setOptionValue(name, value)
        solver.passModel(self._linear_program())
        interruptible(solver.run)
        if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return Optimum(None, math.inf)
        figures = solver.getInfo()
        is_solved = figures.primal_solution_status == highspy.kSolutionStatusFeasible
        values = numpy.array(solver.getSolution().col_value) if is_solved else None
        return Optimum(values, figures.mip_dual_bound if math.isfinite(figures.mip_dual_bound) else 0.0)

    def _linear_program(self) -> Any:
        """The program as HiGHS takes it."""
        import highspy

        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self.costs), len(self.rows)
        program.col_cost_ = self.costs
        program.col_lower_, program.col_upper_ = [0.0] * len(self.costs), [1.0] * len(self.costs)
        program.integrality_ = [highspy.HighsVarType.kInteger] * len(self.costs)
        program.row_lower_, program.row_upper_ = [row.lower for row in self.rows], [row.upper for row in self.rows]
        matrix = program.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        rows = [_add_up(row.terms) for row in self.rows]
        matrix.start_ = [0, *itertools.accumulate(map(len, rows))]
        matrix.index_ = [column for row in rows for column in row]
        matrix.value_ = [factor for row in rows for factor in row.values()]
        return program


def _add_up(terms: Sequence[tuple[int, float]]) -> dict[int, float]:
    """The factor of each column."""
    factors: dict[int, float] = {}
    for column, factor in terms:
        factors[column] = factors.get(column, 0.0) + factor
    return factors


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
    """z3's answer on a solver or optimiser: unknown if the deadline (time.monotonic) comes first."""
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


class UndecidedOrderError(EqfuseError):
    """z3 did not answer within the time limit."""


@dataclass(frozen=True)
class OrderQuestion:
    """Whether nodes have an order in which every pair ascends; z3 may take `seconds` to answer."""

    pairs: tuple[Pair, ...]
    seconds: float

    def answer(self) -> tuple[int, ...]:
        """The positions of the pairs that form a cycle, along it; () if there is an order. Raises
        UndecidedOrderError."""
        return find_cycle(self.pairs, time.monotonic() + self.seconds)


def find_cycle(pairs: Sequence[Pair], deadline: float) -> tuple[int, ...]:
    """The positions of pairs that form a cycle, along it; () if z3 finds an order in which every pair ascends.

    Raises UndecidedOrderError if z3 has no answer by the deadline (time.monotonic).
    """
    if not pairs:
        return ()
    if time.monotonic() >= deadline:
        raise UndecidedOrderError("z3 had no time to look for an order")
    import z3  # here: importing it takes longer than most answers

    context = z3_context("orders")
    solver = z3.SimpleSolver(ctx=context)
    solver.set("arith.solver", _DIFFERENCE_LOGIC)
    places = {node: z3.Int(f"place{node}", context) for node in sorted({node for pair in pairs for node in pair})}
    claims = [z3.Bool(f"pair{position}", context) for position in range(len(pairs))]
    for claim, (before, after) in zip(claims, pairs, strict=True):
        solver.add(z3.Implies(claim, places[before] < places[after]))
    status = check_within(deadline, solver, claims)
    if status == z3.unknown:
        raise UndecidedOrderError("z3 did not find in time whether there is an order")
    if status == z3.sat:
        return ()
    # z3 would look for a minimal core after its time limit: seconds for a cycle of thousands of pairs
    core = [int(str(claim).removeprefix("pair")) for claim in solver.unsat_core()]
    return tuple(core[position] for position in find_short_cycle([pairs[position] for position in core]))


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
