"""The hidden state of a recurrence in 8 bits: rounded before each step, multiplied by weights of 8 bits.

    low, high = the least and the largest of 0 and H; S = (high - low) / 255; Z = round(-low / S); Q = round(H / S) + Z
    A += Q * R;    the gates begin with  inputs + (A - Z * sum of R) * (S * the scale of R)

All sequences of a direction have one scale in a step. Sums of 32 bits do not wrap: a state has 255 steps at most, and a
weight 128. The sums of R are those of a state of ones, which the loops of a step compute once before all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from . import statements
from .elementary import round_to_integer
from .recurrent_tiling import StateWords

Expr = Any
SUM = "int32"
STEPS = 255
"""The steps of the range of a state."""


def scale_of(low: Expr, high: Expr) -> Expr:
    """The step between the integers of numbers from `low`, which is not above 0, to `high`; 1 if all are 0."""
    one = tirx.const(1.0, "float32")
    return tirx.Select(high > low, (high - low) / tirx.const(float(STEPS), "float32"), one)


def zero_of(low: Expr, scale: Expr) -> Expr:
    """The integer that stands for 0."""
    return round_to_integer(_within(tirx.const(0.0, "float32") - low / scale), SUM)


def integer_of(number: Expr, scale: Expr, zero: Expr) -> Expr:
    """The integer of a number: it is within the limits of a byte before it is rounded, like those of QuantizeLinear."""
    offset = zero.astype("float32")
    limited = tirx.Min(tirx.Max(number / scale, tirx.const(0.0, "float32") - offset), STEPS - offset)
    return round_to_integer(limited, SUM) + zero


def _within(number: Expr) -> Expr:
    return tirx.Min(tirx.Max(number, tirx.const(0.0, "float32")), tirx.const(float(STEPS), "float32"))


@dataclass
class RoundedState:
    """The buffers of the rounded states of all directions, and the statements that fill them.

    `reads` has the scales of the recurrent weights as ``r_scale``, and if they have zero points ``r_zero``: one for
    each direction, or one for each direction and gate of a unit. `lanes` are those of the vectors of units.
    """

    reads: Mapping[str, Any]
    words: StateWords
    directions: int
    batch: Any
    hidden: int
    columns: int
    """The sums of a direction, of weights that are packed by tiles."""
    lanes: int
    allocated: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        length = self.words.padded(self.hidden)
        self.integers = self._allocate((self.directions, self.batch, length), self.words.dtype, "rounded_states")
        self.weight_sums = self._allocate((self.directions, self.columns), SUM, "weight_sums")
        self.scales = self._allocate((self.directions,), "float32", "state_scales")
        self.zeros = self._allocate((self.directions,), SUM, "state_zeros")
        self.ends = self._allocate((self.directions, 2, self.lanes), "float32", "state_ends")
        self.state_sums = None
        if "r_zero" in self.reads:
            self.state_sums = self._allocate((self.directions, self.batch), SUM, "state_sums")

    def _allocate(self, shape: Sequence[Any], dtype: str, name: str) -> Any:
        self.allocated.append(tirx.decl_buffer(shape, dtype, name))
        return self.allocated[-1]

    def fill(self, d: Any) -> Any:
        """Ones for all units, and zeros behind them up to a whole word, where weights are zeros, too."""

        def store(b: Any, k: Any) -> Any:
            one = tirx.Select(k < self.hidden, 1, 0).astype(self.words.dtype)
            return tirx.BufferStore(self.integers, one, [d, b, k])

        return statements.nest(("b", "k"), (self.batch, self.words.padded(self.hidden)), store)

    def round(
        self, d: Any, states: Callable[[Any, Any], Expr], for_vectors: Callable[[Callable[[Any, Any, Any], Any]], Any]
    ) -> Any:
        """The statements that round the states of a direction, which `states` gives by row and unit.

        `for_vectors` makes loops over rows, the first units of vectors and their lanes; the last vector may overlap the
        one before.
        """
        zero = tirx.const(0.0, "float32")

        def begin(i: Any) -> Any:
            return statements.sequence([tirx.BufferStore(self.ends, zero, [d, end, i]) for end in (0, 1)])

        def widen(b: Any, first: Any, i: Any) -> Any:
            def move(end: int, function: Callable[[Expr, Expr], Expr]) -> Any:
                moved = function(self.ends[d, end, i], states(b, first + i))
                return tirx.BufferStore(self.ends, moved, [d, end, i])

            return statements.sequence([move(0, tirx.Min), move(1, tirx.Max)])

        steps = statements.StatementList([statements.vector(self.lanes, begin), for_vectors(widen)])
        low, high = (
            steps.keep(_combine([self.ends[d, end, lane] for lane in range(self.lanes)], f))
            for end, f in ((0, tirx.Min), (1, tirx.Max))
        )
        scale = steps.keep(scale_of(low, high))
        steps.store(self.scales, scale, d)
        point = steps.keep(zero_of(low, scale))
        steps.store(self.zeros, point, d)

        def store(b: Any, first: Any, i: Any) -> Any:
            value = integer_of(states(b, first + i), scale, point) - self.words.shift
            return tirx.BufferStore(self.integers, value.astype(self.words.dtype), [d, b, first + i])

        steps.statements.append(for_vectors(store))
        if self.state_sums is not None:
            steps.statements.append(self._add_up(d))
        return steps.finish()

    def _add_up(self, d: Any) -> Any:
        """The sums of the integers of each sequence."""
        assert self.state_sums is not None
        sums = self.state_sums

        def row(b: Any) -> Any:
            def add(k: Any) -> Any:
                return tirx.BufferStore(sums, sums[d, b] + self.integers[d, b, k].astype(SUM), [d, b])

            return statements.sequence(
                [tirx.BufferStore(sums, tirx.const(0, SUM), [d, b]), statements.loop("k", self.hidden, add)]
            )

        return statements.loop("b", self.batch, row)

    def number(self, d: Any, row: Any, total: Expr, column: Any, gate_unit: Any) -> Expr:
        """The number that a sum of products of integers stands for. `column` is its place among the sums of weights,
        `gate_unit` that among the scales."""
        zero = self.zeros[d] - self.words.shift
        sums = total - zero * self.weight_sums[d, column]
        scale, weight_zero = self.reads["r_scale"], self.reads.get("r_zero")
        if weight_zero is not None:
            assert self.state_sums is not None
            sums -= _at(weight_zero, d, gate_unit).astype(SUM) * (self.state_sums[d, row] - self.hidden * zero)
        return sums.astype("float32") * (self.scales[d] * _at(scale, d, gate_unit))


def _at(parameter: Any, d: Any, gate_unit: Any) -> Expr:
    """A scale or zero point of a direction, or of a gate's unit in it, in a buffer."""
    return parameter[d] if len(parameter.shape) == 1 else parameter[d, gate_unit]


def _combine(values: Sequence[Expr], function: Callable[[Expr, Expr], Expr]) -> Expr:
    """All values, two by two."""
    while len(values) > 1:
        pairs = [values[n : n + 2] for n in range(0, len(values), 2)]
        values = [function(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
    return values[0]
