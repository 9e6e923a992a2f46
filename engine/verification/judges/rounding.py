"""How far rounding moves values: a float64 run in which numbers are rounded at random.

Each float that float32 would have to round changes by a few units in the last place, up or down at random (Monte Carlo
arithmetic, D. S. Parker 1997). Values that depend on it move like those of two right ways to compute the same. Numbers
that need less than half of the mantissa, such as 0, 0.5 and 6, are exact and do not change: half of 5 is a tie in every
right model.

Floats that a uint32 cannot hold become another one in each run: of these, ONNX Runtime casts the last elements of a
tensor one by one, with other results than by vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from ..inputs.roles import steering_values
from ..runs.structure import Structure, operands
from ..runs.values import Feeds, Value

UNITS = 4.0
"""Units in the last place by which a number changes. One rounding is half a unit; the sum of a product of matrices is
rounded as often as it has terms."""
UNITS_OF_INPUTS = 32.0
"""As above, for inputs if their rounding stands for that of a whole network. On a text detector with inputs of 10 to
10,000, compiled code was off by 0.25 to 1 times the effect of it, ONNX Runtime by 0.1 to 0.3 times."""

_OPEN_CASTS = np.array([0, 1 << 31, (1 << 32) - 1, 0x5A827999], np.uint32)
"""The values for a float that a uint32 cannot hold: the ends at which processors stop, the least signed word, and a
number of other bits, like the last 32 bits of a large number."""


class Extent(Enum):
    """The numbers that are rounded."""

    NONE = auto()
    OPEN = auto()
    """None, but casts to uint32 are drawn if ONNX leaves them open, in this extent as in all that follow."""
    CONSTANTS = auto()
    """Stored numbers, which rewriting computes anew."""
    INPUTS = auto()
    """These and the inputs, which stand for the rounding of a whole network."""
    ALL = auto()
    """These and all numbers that nodes compute from the inputs."""


@dataclass(frozen=True)
class RoundedValues:
    """The values of a main graph that may be rounded, by name: those that depend on the inputs, and the constants that
    are computed with these. None determines a shape or how often a loop runs. `others` do not change.
    """

    inputs: frozenset[str] = frozenset()
    dependent: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()

    @staticmethod
    def of(structure: Structure) -> RoundedValues:
        """The values of a model."""
        dependent, nodes = structure.input_dependent, structure.graph.node
        steering = steering_values(structure, divisors=False)
        computed = (node for node in nodes if not dependent.isdisjoint(node.output))
        constants = frozenset(name for node in computed for name in operands(node)) - dependent
        every = {name for node in nodes for name in (*node.input, *node.output)}
        fed = frozenset(value.name for value in structure.inputs)
        chosen = (fed - steering, dependent - fed - steering, constants - steering)
        return RoundedValues(*chosen, frozenset(every).difference(*chosen))


@dataclass
class Rounding:
    """The rounding of the current run; `epsilon` is the distance of 1 and the next number of the type."""

    extent: Extent = Extent.NONE
    values: RoundedValues = RoundedValues()
    epsilon: float = 2.0**-23
    generator: np.random.Generator = field(default_factory=np.random.default_rng)
    draw: int = 0

    def begin(self, values: RoundedValues, extent: Extent, epsilon: float, draw: int) -> None:
        """Round from now on; the same `draw` rounds the same way."""
        self.values, self.extent, self.epsilon, self.draw = values, extent, epsilon, draw
        self.generator = np.random.default_rng(draw)

    def round_outputs(
        self, node: onnx.NodeProto, inputs: Sequence[Value], outputs: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """The results of a node for its inputs, rounded if its numbers are."""
        if self.extent is Extent.NONE:
            return outputs
        if node.op_type in ("Cast", "CastLike"):
            outputs = (self._draw_open_casts(inputs[0], outputs[0]),)
        pairs = zip(node.output, outputs, strict=False)
        return tuple(self.round(value, self._units(name, node)) for name, value in pairs)

    def _draw_open_casts(self, numbers: Value, cast: Value) -> Value:
        """The cast numbers; those that a uint32 cannot hold become another one of `_OPEN_CASTS` in each draw."""
        if not (isinstance(numbers, np.ndarray) and isinstance(cast, np.ndarray)):
            return cast
        if numbers.dtype.kind != "f" or cast.dtype != np.uint32:
            return cast
        # Casts by vectors and one by one agree on negative numbers of 32 bits, of which both keep the bits.
        is_open = ~((numbers >= -(2.0**31)) & (numbers < 2.0**32))
        places = np.random.default_rng(0).integers(0, len(_OPEN_CASTS), numbers.shape) + self.draw
        return np.where(is_open, _OPEN_CASTS[places % len(_OPEN_CASTS)], cast)

    def round_fed(self, fed: Mapping[str, Value]) -> Feeds:
        """Inputs or initializers, rounded if their numbers are."""
        return {name: self.round(value, self._units(name)) for name, value in fed.items()}

    def _units(self, name: str, node: onnx.NodeProto | None = None) -> float:
        """The units in the last place by which a value changes. Values of bodies and functions have other names."""
        if self.extent is Extent.OPEN:
            return 0.0
        if name in self.values.inputs:
            return {Extent.INPUTS: UNITS_OF_INPUTS, Extent.ALL: UNITS}.get(self.extent, 0.0)
        if name in self.values.constants:
            return UNITS
        if name in self.values.others:
            return 0.0
        is_constant = node is not None and node.op_type == "Constant" and name not in self.values.dependent
        return UNITS if is_constant or self.extent is Extent.ALL else 0.0

    def round(self, value: Value, units: float) -> Value:
        """The value with all its floats changed by this many units in the last place, up or down at random."""
        if isinstance(value, list):
            return [self.round(item, units) for item in value]
        if not units or not isinstance(value, (np.ndarray, np.floating)) or value.dtype != np.float64:
            return value
        array = np.asarray(value)
        signs = self.generator.integers(0, 2, array.shape, np.int8) * 2.0 - 1.0
        with np.errstate(all="ignore"):
            return np.where(_is_short(array, self.epsilon), array, array * (1 + units * self.epsilon * signs))


def _is_short(array: NDArray[Any], epsilon: float) -> NDArray[np.bool_]:
    """Which numbers need less than half of the mantissa of the type."""
    fraction, _ = np.frexp(array)
    scaled = fraction * 2.0 ** (1 - np.log2(epsilon) // 2)
    return np.asarray(scaled == np.rint(scaled))
