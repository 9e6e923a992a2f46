"""From a saturated e-graph to the cheapest graph in it: ``EGraph -> Selection``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ...costmodels.model import CostModel
from ...engine.choices import Extraction
from ...engine.egraph.collector import pause_collection
from ...engine.egraph.emit import emit_node
from ...engine.egraph.encode import Encoding, opaque_type
from ...engine.egraph.folding import FOLD, is_foldable_class
from ...engine.egraph.graph import EClass, EGraph, ENode, Selection
from ...engine.egraph.plan import Origins
from ...ir.operation import Operation
from ...ir.operators import OPERATORS
from ...ir.types import TensorType
from ...support.deadlines import seconds_left
from .problem import Candidate, Problem
from .solve import solve

_FREE = frozenset({"Var", "Absent", "Out"})
_STORED = frozenset({"Weight", "Full"})
_FILL_BYTES = 128
"""What a constant of one value throughout takes in a file, whatever its size."""


@dataclass(frozen=True)
class Pricing:
    """What decides between e-nodes: the cost model, and a price per stored byte that keeps files from growing.

    Constants of fewer bytes than `free_below`, and those of one value, cost nothing: where many layers share one, its
    price would tie their otherwise independent choices together.
    """

    model: CostModel
    per_byte: float
    free_below: int = 4096

    def storage(self, class_: EClass) -> float:
        """The price of storing a constant."""
        size = class_.type.bytes() if class_.type is not None else 0
        if class_.uniform is not None:
            size = min(size, _FILL_BYTES)
        return 0.0 if size < self.free_below else size * self.per_byte

    @staticmethod
    def of(model: CostModel) -> Pricing:
        """The least price per byte: a mebibyte costs as much as launching one tiny kernel."""
        scalar = TensorType("float32", ())
        launch = model.price(Operation.of("Relu", {}, (scalar,), scalar, (False,)))
        return Pricing(model, launch / 2**20)

    def stricter(self) -> Pricing:
        """A hundred times the price per byte, and for every one."""
        return Pricing(self.model, 100 * self.per_byte, free_below=0)


@dataclass(frozen=True)
class _Priced:
    """The problem, and for each of its candidates the e-node that it stands for."""

    problem: Problem
    nodes: tuple[tuple[ENode, ...], ...]


class _Pricer:
    def __init__(self, egraph: EGraph, encoding: Encoding, origin: Origins, opset: int, pricing: Pricing) -> None:
        self.egraph, self.origin, self.opset, self.pricing = egraph, origin, opset, pricing
        self.symbols = {number: name for name, number in encoding.symbols.items()}
        self.absent = egraph.absent
        self.prices: dict[tuple[object, ...], float | None] = {}
        self.concats = {
            (owner, node.attributes[0])
            for owner, class_ in enumerate(egraph.classes)
            if not class_.constant
            for node in class_.nodes
            if node.op == "Concat"
        }

    def candidates(self, owner: int) -> list[tuple[ENode, float]]:
        class_ = self.egraph.classes[owner]
        found: list[tuple[ENode, float]] = []
        foldable = is_foldable_class(self.egraph, owner)
        if foldable:
            found.append((FOLD, self.pricing.storage(class_)))
        for node in class_.nodes:
            if foldable and (node.op in _STORED or not self._is_original(owner, node)):
                continue
            price = self.price(owner, node)
            if price is not None:
                found.append((node, price))
        return found

    def _is_original(self, owner: int, node: ENode) -> bool:
        return self.origin.find(owner, node, node.children) is not None or node.op in _FREE

    def price(self, owner: int, node: ENode) -> float | None:
        """The price of an e-node; None where it cannot be written at this opset."""
        if node.op in _FREE:
            return 0.0
        operands = tuple(self.egraph.classes[c].type for c in node.children)
        constant = tuple(self.egraph.classes[c].constant for c in node.children)
        output = self.egraph.classes[owner].type
        original = (owner, node) in self.origin.nodes
        continued = self._continued(node)
        absent = tuple(c == self.absent for c in node.children)
        key = (node.op, node.attributes, operands, constant, output, original, continued, absent)
        if key not in self.prices:
            self.prices[key] = self._price(node, operands, constant, output, original, continued)
        return self.prices[key]

    def _price(
        self,
        node: ENode,
        operands: tuple[TensorType | None, ...],
        constant: tuple[bool, ...],
        output: TensorType | None,
        original: bool,
        continued: tuple[int, ...],
    ) -> float | None:
        if not original and not self._is_writable(node, operands, output):
            return None
        if node.op == "Op":
            return self.pricing.model.price(Operation.of(opaque_type(node), {}, operands, output, constant))
        names = (a.name for a in OPERATORS[node.op].attributes)
        attributes: Mapping[str, int | float | str | tuple[int, ...]] = dict(zip(names, node.attributes, strict=True))
        if continued:
            attributes = {**attributes, "continued": continued}
        return self.pricing.model.price(Operation.of(node.op, attributes, operands, output, constant))

    def _is_writable(self, node: ENode, operands: tuple[TensorType | None, ...], output: TensorType | None) -> bool:
        """Whether a new node of this opset can be this e-node, and run."""
        return emit_node(node, operands, output, self.opset, self.symbols, self.absent, runs=True) is not None

    def _continued(self, node: ENode) -> tuple[int, ...]:
        """Which operands of a Concat are Concats of the same axis: writing flattens them."""
        if node.op != "Concat":
            return ()
        return tuple(int((c, node.attributes[0]) in self.concats) for c in node.children)

    def problem(self) -> _Priced:
        rows = [self.candidates(owner) for owner in range(len(self.egraph.classes))]
        problem = Problem(
            tuple(tuple(Candidate(price, node.children) for node, price in row) for row in rows), self.egraph.roots
        )
        return _Priced(problem, tuple(tuple(node for node, _ in row) for row in rows))


@pause_collection()
def select(
    egraph: EGraph,
    encoding: Encoding,
    origin: Origins,
    opset: int,
    pricing: Pricing,
    *,
    time_limit: float,
    method: Extraction = "exact",
) -> Selection:
    """The cheapest graph that can be written at `opset`, with the proof that it is, or the proven gap."""
    deadline = time.monotonic() + time_limit
    priced = _Pricer(egraph, encoding, origin, opset, pricing).problem()
    solution = solve(priced.problem, time_limit=seconds_left(deadline), method=method)
    choice = {owner: priced.nodes[owner][index] for owner, index in solution.choice.items()}
    out_of_time = method == "exact" and solution.status != "optimal"
    return Selection(choice, solution.cost, solution.lower_bound, solution.status, out_of_time)
