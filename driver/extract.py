"""`EGraph -> Selection -> Model`: choose the cheapest graph, and write it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from ..engine.egraph.decode import decode
from ..engine.egraph.folding import OutOfRangeError
from ..engine.egraph.graph import Selection
from ..engine.onnx.model import Model
from ..engine.onnx.nodes import has_body
from ..engine.operator_graph import operator_graph
from ..extract.extraction.quantised import NEVER, UnroundedCost, have_wide_pairs
from ..extract.extraction.select import Criteria
from ..support import units
from ..support.deadlines import OutOfTime, is_over
from ..support.errors import ModelError
from .clock import Clock
from .options import Options
from .saturate import Saturated
from .usage import cost_model_for, runtime_for

GROWTH = 1.01
"""A result may be this many times as large as the original; beyond that, a stored byte costs more and extraction is
repeated."""
COMPILED_GROWTH = 1.25
"""The same for a result that is compiled, of which no file is written: weights of 8 bits are small beside the sums of
32 bits that zero points need for each channel."""
SMALL_GROWTH = 4096
"""A result may always be this many bytes larger: names and shapes of a few new nodes, in a file of any size."""
SMALL_COMPILED_GROWTH = 1 << 16
"""The same for a result that is compiled: so much stays in the second cache. With the bytes of SMALL_GROWTH a network
of 57 KB, depthwise and 1x1 convolutions of 96 channels in turn, could store no sums for zero points, multiplied one by
one and took 2.0 times as long as in floats; it takes 0.74 (Zen 5, dynamic quantisation)."""
_ATTEMPTS = 5
"""The most extractions: one whose constants do not fit their types, or whose file grows, is made again under limits."""


@dataclass(frozen=True)
class Choice:
    """A chosen graph, as a model too. `criteria` are those of the last attempt: stricter if files would grow."""

    model: Model
    selection: Selection
    criteria: Criteria


@dataclass(frozen=True)
class Chosen:
    """The choice of the result, its e-graph, and the options that led to both."""

    saturated: Saturated
    choice: Choice
    options: Options


_WORTH_A_MENTION = 0.9
"""The share of the predicted time of a result up to which that of floats is worth a mention."""


@dataclass(frozen=True)
class Unrounded:
    """Predicted seconds of a quantised model whose numbers stay `unrounded`, and as it is `chosen`."""

    unrounded: float
    chosen: float

    def __str__(self) -> str:
        times = f"{units.seconds(self.unrounded)} predicted in floats, {units.seconds(self.chosen)} as it is"
        return f"{times}; --precision fast leaves numbers unrounded if that is faster"


def predict_unrounded(saturated: Saturated, criteria: Criteria, chosen: float, options: Options) -> Unrounded | None:
    """What the user may gain if numbers stay unrounded; None if that is little, or if they may already.

    The graphs of both are chosen by the same `criteria`, whose costs are seconds; their ratio counts, for `chosen` are
    those of a partition.
    """
    is_quantised = any(node.op == "QuantizeLinear" for class_ in saturated.egraph.classes for node in class_.nodes)
    if options.precision == "fast" or not is_quantised:
        return None
    floats = replace(criteria, model=UnroundedCost(criteria.model))
    rounded, unrounded = (saturated.select(each, options).cost for each in (criteria, floats))
    is_worth = unrounded < min(NEVER, _WORTH_A_MENTION * rounded)
    return Unrounded(chosen * unrounded / rounded, chosen) if is_worth else None


def copy_model(model: Model) -> Model:
    """A copy of a model, as a result without a file."""
    return replace(model, ir=model.ir.clone(), path=None)


def _nest_bodies(model: Model, saturated: Saturated) -> Model:
    """A result with the bodies that its original has."""
    if saturated.flat is not None:
        from ..engine.bodies.nest import nest  # most models have none

        model = nest(model, saturated.flat)
    return replace(model, path=None)


def without_bodies(model: Model) -> Model:
    """The model itself, or the flat form of one with bodies that can be read."""
    if any(has_body(node) for node in model.graph):
        from ..engine.bodies.flatten import flatten

        with suppress(ModelError):
            return flatten(model).model
    return model


def criteria_for(options: Options, saturated: Saturated) -> Criteria:
    """The costs that extraction minimises; measurements are calibrated to the model."""
    model = cost_model_for(options)
    if options.cost == "profile":
        from ..extract.partition.profile_cost import ProfileCost  # with SQLite, which takes time to import

        assert isinstance(model, ProfileCost)
        model = model.calibrate(operator_graph(saturated.model, saturated.knowledge))
    runtime = runtime_for(options)
    saturates = runtime.quantised.saturate and have_wide_pairs(saturated.simplified)
    return replace(Criteria.of(model, runtime), saturates=saturates)


def extract_model(
    saturated: Saturated, criteria: Criteria, options: Options, clock: Clock, *, is_compiled: bool = False
) -> Choice:
    """Choose and write the graph. If it would grow the file, choose again at a higher cost per stored byte; if it has
    constants that their element types cannot hold, choose again without these.

    It is the original if nothing was rewritten, if the time ends before a graph is found that does not grow, or if a
    graph that does not grow costs more than the original by the criteria that were given.
    """
    size, wanted = saturated.model.file_bytes, criteria
    factor, bytes_ = (COMPILED_GROWTH, SMALL_COMPILED_GROWTH) if is_compiled else (GROWTH, SMALL_GROWTH)
    allowed = max(factor * size, size + bytes_)
    barred: frozenset[int] = frozenset()
    for attempt in range(_ATTEMPTS):
        with clock.phase("extract"):
            selection = saturated.select(criteria, options, barred)
        if saturated.egraph.saturation.is_void:
            return Choice(copy_model(saturated.original), selection, criteria)
        try:
            with clock.phase("decode"):
                result = decode(
                    saturated.simplified, saturated.knowledge, saturated.encoding, saturated.egraph, selection,
                    criteria.runtime, clock.deadline,
                )  # fmt: skip
        except OutOfTime:
            return Choice(copy_model(saturated.original), replace(selection, out_of_time=True), criteria)
        except OutOfRangeError as error:
            barred |= error.owners
            continue
        if attempt == _ATTEMPTS - 1 or result.file_bytes <= allowed:
            break
        if is_over(saturated.deadline):
            return Choice(copy_model(saturated.original), selection, criteria)
        criteria = criteria.stricter()
    else:
        return Choice(copy_model(saturated.original), selection, criteria)
    if criteria is not wanted and saturated.is_dearer_than_original(selection, wanted):
        return Choice(copy_model(saturated.original), selection, criteria)
    return Choice(_nest_bodies(result, saturated), selection, criteria)
