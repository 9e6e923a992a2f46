"""Whether a rule ever pays: the costs of its right and left side, on the samples on which it fired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf

import numpy as np

from ...costmodels.choices import DEFAULT_DEVICE
from ...costmodels.device import load_device
from ...costmodels.model import CostModel, cost_model
from ...ir.operation import Operation
from ...ir.operators import OPERATORS, Operand, Unsupported
from ...ir.types import TensorType
from ...rules.records import Rule
from .sampling.conditions import Value
from .sampling.elements import draw
from .sampling.evaluation import Evaluation
from .sampling.hits import Hit
from .sampling.left_side import LEAVES
from .sampling.placement import Placement
from .sampling.samples import Sample
from .sampling.scratch import EClass, Fired, ScratchNode


@cache
def _models() -> tuple[CostModel, ...]:
    device = load_device(DEFAULT_DEVICE)
    return cost_model("flops", device), cost_model("roofline", device)


def remark_on_worth(rule: Rule, hits: Sequence[Hit]) -> str:
    """A remark on the worth of a true rule, or "".

    A rewrite whose right side costs more under every cost model, on every sample, only helps if it opens the way for
    another rule. A birewrite gets no remark.
    """
    fired = [(hit.sample, hit.outcome) for hit in hits if isinstance(hit.outcome, Fired)]
    if rule.text.startswith("(birewrite") or not fired:
        return ""
    try:
        worse = all(_costs_more(sample, outcome) for sample, outcome in fired)
    except Unsupported:  # an operator has no meaning for these numbers, which the verdict reports
        return ""
    return "the right side costs more under every cost model" if worse else ""


def _costs_more(sample: Sample, fired: Fired) -> bool:
    """Whether every way to compute the roots that the rule added costs more than the sampled one, under every cost
    model."""
    placement = Placement(sample, fired)
    left = [placement.node_of(root) for root in sample.roots]
    made = [node for number in fired.roots for node in fired.classes[number]]
    added = [node for node in made if node not in left and node.head not in LEAVES]
    if not added or any(node.head in ("Var", "Weight", "Full") for node in made):
        return False
    types, own = _types(sample, fired), [node for node in left if node is not None]
    every = (_Costs(fired, model, types) for model in _models())
    return all(min(map(costs.cost, added)) > max(map(costs.cost, own)) * (1 + 1e-9) for costs in every)


def _types(sample: Sample, fired: Fired) -> dict[EClass, TensorType | None]:
    """The types of all classes. Raises Unsupported if an operator has no meaning."""
    elements = draw(sample, "ordinary", {}, np.random.default_rng(0))
    evaluation = Evaluation(sample, fired, elements, {})
    with np.errstate(all="ignore"):
        for _ in evaluation.comparisons():
            pass
    types: dict[EClass, TensorType | None] = {}
    for number, value in evaluation.classes.items():
        array = value[0] if isinstance(value, tuple) else value
        types[number] = None if array is None else TensorType(array.dtype.name, array.shape)
    return types


@dataclass
class _Costs:
    """The costs of e-nodes with the cheapest trees of their operands."""

    fired: Fired
    model: CostModel
    types: Mapping[EClass, TensorType | None]
    constants: set[EClass] = field(default_factory=set)
    costs: dict[EClass, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.costs = dict.fromkeys(self.fired.classes, inf)
        for _ in range(len(self.costs) + 1):  # by relaxation, because the classes of a rewrite may be cyclic
            for number, nodes in self.fired.classes.items():
                if any(self._is_constant(node) for node in nodes):
                    self.constants.add(number)
                self.costs[number] = min(self.cost(node) for node in nodes)

    def _is_constant(self, node: ScratchNode) -> bool:
        operands = [a for a in node.arguments if isinstance(a, EClass)]
        if node.head in ("Weight", "Full", "Absent"):
            return True
        return bool(operands) and all(a in self.constants for a in operands)

    def cost(self, node: ScratchNode) -> float:
        """The cost of an e-node and of the cheapest operands."""
        operands = [a for a in node.arguments if isinstance(a, EClass)]
        return self._cost(node) + sum(self.costs[a] for a in operands)

    def _cost(self, node: ScratchNode) -> float:
        if node.head in LEAVES:
            return 0.0
        pairs = list(zip(OPERATORS[node.head].arguments, node.arguments, strict=True))
        attributes: Mapping[str, Value] = {n.name: a for n, a in pairs if not isinstance(n, Operand)}  # type: ignore[misc]
        operands = [a for n, a in pairs if isinstance(n, Operand) and isinstance(a, EClass)]
        types = tuple(self.types.get(a) for a in operands)
        output = next((self.types.get(c) for c, nodes in self.fired.classes.items() if node in nodes), None)
        constant = tuple(a in self.constants for a in operands)
        return self.model.cost(Operation.of(node.head, attributes, types, output, constant))
