"""Whether a rule ever pays: its right side priced against its left on the samples it fired on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf

import numpy as np

from ...costmodels.device import DEFAULT, load_device
from ...costmodels.model import CostModel, cost_model
from ...ir.operation import Operation
from ...ir.operators import OPERATORS, Operand, Unsupported
from ...ir.types import TensorType
from ...rules.records import Rule
from .drawing.elements import draw
from .drawing.evaluation import Evaluation
from .drawing.hits import Hit
from .drawing.left_side import LEAVES, Value
from .drawing.placement import Placement
from .drawing.samples import Sample
from .drawing.scratch import Class, Fired, Node


@cache
def _models() -> tuple[CostModel, ...]:
    device = load_device(DEFAULT)
    return cost_model("flops", device), cost_model("roofline", device)


def remark(rule: Rule, hits: Sequence[Hit]) -> str:
    """What there is to say about the worth of a true rule.

    A rewrite whose right side costs more under every cost model, on every sample, is worse than nothing unless it opens
    the way for another rule. One that is also written the other way round is not looked at.
    """
    fired = [hit for hit in hits if isinstance(hit.outcome, Fired)]
    if rule.text.startswith("(birewrite") or not fired:
        return ""
    pairs = ((hit.sample, hit.outcome) for hit in fired if isinstance(hit.outcome, Fired))
    try:
        worse = all(_loses(sample, outcome, model) for sample, outcome in pairs for model in _models())
    except Unsupported:  # numbers for which an operator has no meaning; the verdict knows of them
        return ""
    return "the right side costs more under every cost model" if worse else ""


def _loses(sample: Sample, fired: Fired, model: CostModel) -> bool:
    """Whether every way to compute the roots that the rule added costs more than the sampled one."""
    prices = _Prices(sample, fired, model)
    placement = Placement(sample, fired)
    left = [placement.node_of(root) for root in sample.roots]
    added = [
        prices.cost(node)
        for number in fired.roots
        for node in fired.classes[number]
        if node not in left and node.head not in LEAVES
    ]
    if any(isinstance(fired.classes[n][0], Node) and _has_leaf(fired.classes[n]) for n in fired.roots) or not added:
        return False
    return min(added) > max(prices.cost(node) for node in left if node is not None) * (1 + 1e-9)


def _has_leaf(nodes: Sequence[Node]) -> bool:
    return any(node.head in ("Var", "Weight", "Full") for node in nodes)


@dataclass
class _Prices:
    """The cost of e-nodes as trees: of each operand the cheapest."""

    sample: Sample
    fired: Fired
    model: CostModel
    types: dict[Class, TensorType | None] = field(default_factory=dict)
    constants: set[Class] = field(default_factory=set)
    costs: dict[Class, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        elements = draw(self.sample, "ordinary", {}, np.random.default_rng(0))
        evaluation = Evaluation(self.sample, self.fired, elements, {})
        with np.errstate(all="ignore"):
            for _ in evaluation.comparisons():
                pass
        for number, value in evaluation.known.items():
            array = value[0] if isinstance(value, tuple) else value
            self.types[number] = None if array is None else TensorType(array.dtype.name, array.shape)
        self._settle()

    def _settle(self) -> None:
        """Cheapest costs by relaxation, for the classes of a rewrite may be cyclic."""
        self.costs = dict.fromkeys(self.fired.classes, inf)
        for _ in range(len(self.costs) + 1):
            for number, nodes in self.fired.classes.items():
                if any(self._constant(node) for node in nodes):
                    self.constants.add(number)
                self.costs[number] = min(self.cost(node) for node in nodes)

    def _constant(self, node: Node) -> bool:
        operands = [a for a in node.arguments if isinstance(a, Class)]
        if node.head in ("Weight", "Full", "Absent"):
            return True
        return bool(operands) and all(a in self.constants for a in operands)

    def cost(self, node: Node | None) -> float:
        """The price of an e-node and of the cheapest operands."""
        if node is None:
            return inf
        operands = [a for a in node.arguments if isinstance(a, Class)]
        return self._price(node) + sum(self.costs[a] for a in operands)

    def _price(self, node: Node) -> float:
        if node.head in LEAVES:
            return 0.0
        named = OPERATORS[node.head].arguments
        pairs = list(zip(named, node.arguments, strict=True))
        attributes: Mapping[str, Value] = {n.name: a for n, a in pairs if not isinstance(n, Operand)}  # type: ignore[misc]
        operands = [a for n, a in pairs if isinstance(n, Operand) and isinstance(a, Class)]
        types = tuple(self.types.get(a) for a in operands)
        output = next((self.types.get(c) for c, nodes in self.fired.classes.items() if node in nodes), None)
        constant = tuple(a in self.constants for a in operands)
        return self.model.price(Operation.of(node.head, attributes, types, output, constant))
