"""`EGraph -> Selection -> Model`: choose the cheapest graph, and write it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..costmodels.model import CostModel
from ..engine.egraph.decode import decode
from ..engine.egraph.graph import Selection
from ..engine.onnx.model import Model
from ..extract.extraction.select import Pricing
from ..extract.partition.operator_graph import operator_graph
from ..extract.partition.profile_cost import ProfileCost
from ..support.deadlines import is_over
from .clock import Clock
from .options import Options
from .saturate import Saturated

GROWTH = 1.01
"""How much larger than the original a result may be; where it is, choosing pays more for every byte stored."""
_ATTEMPTS = 5


@dataclass(frozen=True)
class Choice:
    """A graph chosen and written. `pricing` is what it was chosen by in the end: stricter where files would grow."""

    model: Model
    selection: Selection
    pricing: Pricing


def unchanged(model: Model) -> Model:
    """A copy of a model, as a result that was not written yet."""
    return replace(model, ir=model.ir.clone(), path=None)


def cost_model_for(options: Options, known: Saturated) -> CostModel:
    """What extraction minimises over the graphs that are equal to a model."""
    model = options.cost_model
    return model.calibrated(operator_graph(known.model, known.knowledge)) if isinstance(model, ProfileCost) else model


def extract_model(known: Saturated, pricing: Pricing, options: Options, clock: Clock) -> Choice:
    """Choose and write the graph; where it would grow the file, choose again at a higher price per stored byte.

    It is the original where nothing was rewritten, or where the time ends before a graph is found that does not grow.
    """
    allowed = GROWTH * known.model.file_bytes
    for attempt in range(_ATTEMPTS):
        with clock.phase("extract"):
            selection = known.select(pricing, options)
        if known.egraph.saturation.is_void:
            return Choice(unchanged(known.model), selection, pricing)
        with clock.phase("decode"):
            result = decode(known.model, known.knowledge, known.encoding, known.egraph, selection)
        if attempt == _ATTEMPTS - 1 or result.file_bytes <= allowed:
            break
        if is_over(known.deadline):
            return Choice(unchanged(known.model), selection, pricing)
        pricing = pricing.stricter()
    return Choice(replace(result, path=None), selection, pricing)
