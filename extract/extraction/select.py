"""From a saturated e-graph to the cheapest graph in it: ``EGraph -> Selection``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...costmodels.model import CostModel
from ...costmodels.runtime import NO_RUNTIME, Quantised, Runtime
from ...engine.choices import Extraction
from ...engine.egraph.collector import pause_collection
from ...engine.egraph.emit import Emission, emit_node
from ...engine.egraph.encode import Encoding, opaque_type
from ...engine.egraph.folding import FOLD, find_foldable
from ...engine.egraph.graph import EClass, EGraph, ENode, Selection
from ...engine.egraph.loops import find_loops
from ...engine.egraph.plan import Origins
from ...ir.operation import VARIADIC, Operation
from ...ir.operators import OPERATORS, RESHAPES
from ...ir.operators.quantization import CONVERSIONS
from ...ir.types import BYTES, TensorType
from ...support.deadlines import seconds_left
from .layouts import Place, PlacedProblem, Row, layout_problem
from .problem import Candidate, ExtractionError, Problem, Solution
from .quantised import find_computed_addends, find_lone_integers, find_unsigned_twins
from .sizes import Types
from .solve import solve

_FREE = frozenset({"Var", "Absent", "Out"})
_STORED = frozenset({"Weight", "Full"})
_NEXT_TO_READER = 0.9
"""The share of the cost of a DequantizeLinear behind a view, of two places with equal costs the one to take."""
_FILL_BYTES = 128
"""Bytes in a file of a constant of one value throughout, of any size."""


@dataclass(frozen=True)
class Criteria:
    """The criteria between e-nodes: the cost model, and a cost per stored byte that keeps files from growing.

    Constants of fewer bytes than `free_below`, and those of one value, cost nothing: if many layers share one, its
    cost would tie their otherwise independent choices together. If the runtime `saturates` products of the model's
    integers, these keep their signs.
    """

    model: CostModel
    per_byte: float
    free_below: int = 4096
    runtime: Runtime = NO_RUNTIME
    saturates: bool = False

    def storage(self, class_: EClass) -> float:
        """The cost of storing a constant."""
        size = class_.type.bytes() if class_.type is not None else 0
        if class_.uniform is not None:
            size = min(size, _FILL_BYTES)
        return 0.0 if size < self.free_below else size * self.per_byte

    def copy(self, type_: TensorType) -> float:
        """The cost of reading a tensor and writing it."""
        return self.model.cost(Operation.of("Relu", {}, (type_,), type_, (False,)))

    @staticmethod
    def of(model: CostModel, runtime: Runtime = NO_RUNTIME) -> Criteria:
        """The criteria with the least cost per byte: a mebibyte costs as much as launching one tiny kernel."""
        launch = Criteria(model, 0.0).copy(TensorType("float32", ()))
        return Criteria(model, launch / 2**20, runtime=runtime)

    def stricter(self) -> Criteria:
        """The criteria with a hundred times the cost per byte, and for every byte."""
        return replace(self, per_byte=100 * self.per_byte, free_below=0)


class _NodeCosts:
    """Costs of the e-nodes of an e-graph, for a model of one opset."""

    def __init__(
        self,
        egraph: EGraph,
        encoding: Encoding,
        origin: Origins,
        opset: int,
        criteria: Criteria,
        assumptions: Types,
        barred: frozenset[int],
    ) -> None:
        self.egraph, self.origin, self.opset, self.criteria = egraph, origin, opset, criteria
        self.assumptions, self.barred = assumptions, barred
        self.foldable = find_foldable(egraph)
        self.symbols = {number: name for name, number in encoding.symbols.items()}
        self.costs: dict[tuple[object, ...], float | None] = {}
        quantised = criteria.runtime.quantised
        self.unsigned = find_unsigned_twins(egraph, encoding.terms) if quantised.products else frozenset()
        self.barred |= find_computed_addends(egraph) if quantised.products else frozenset()
        is_signed = criteria.saturates and not quantised.signed
        self.lone = find_lone_integers(egraph, encoding.terms) if is_signed else frozenset()
        anchors = {anchor for fused in criteria.runtime.fused for anchor in fused.into}
        self.fused = {anchor: criteria.runtime.operators_fused_into(anchor) for anchor in sorted(anchors)}
        self.links = {
            (owner, node.op, node.attributes)
            for owner, class_ in enumerate(egraph.classes)
            if not class_.constant
            for node in class_.nodes
            if node.op in VARIADIC
        }

    def candidates(self, owner: int) -> list[tuple[ENode, float]]:
        """The e-nodes of a class that can be written, with their costs; of a constant, computing it now comes first,
        and of the others only those of the original model remain.

        A node that a rule subsumed computes the same less well, as the logarithm of a sum of exponentials does that
        overflows: it never stands for a better one that the model has.
        """
        if owner in self.barred:
            return []
        class_ = self.egraph.classes[owner]
        is_foldable = owner in self.foldable
        candidates = self.candidates_of(owner, FOLD) if is_foldable else []
        better = (n for n in class_.nodes if class_.subsumed and n not in class_.subsumed)
        worse = class_.subsumed if any(self._is_original(owner, n) for n in better) else ()
        for node in class_.nodes:
            if node in worse:
                continue
            is_original = node.op in _FREE or self._is_original(owner, node)
            if not is_original and self._is_refused(owner, node):
                continue
            is_stored = node.op in _STORED or not (is_original or self._widens_weights(node))
            if is_foldable and is_stored:
                continue
            candidates += self.candidates_of(owner, node)
        return [each for each in candidates if not self._is_again(owner, each[0])] or candidates

    def _widens_weights(self, node: ENode) -> bool:
        """Whether a node makes numbers of stored bytes, in a model that is compiled: its file keeps the bytes."""
        if node.op != "DequantizeLinear" or self.criteria.runtime.quantised.products:
            return False
        bytes_, scale, *_ = node.children
        is_weight = any(n.op == "Weight" for n in self.egraph.classes[bytes_].nodes)
        return is_weight and self.egraph.classes[scale].constant

    def _is_again(self, owner: int, node: ENode) -> bool:
        """Whether a node rounds what its own integers stand for: a graph with it has a cycle, or a node too many."""
        if node.op != "QuantizeLinear":
            return False
        again = self.egraph.classes[node.children[0]].nodes
        return any(other.op == "DequantizeLinear" and other.children[0] == owner for other in again)

    def _is_original(self, owner: int, node: ENode) -> bool:
        return self.origin.find(owner, node, node.children) is not None

    def _is_refused(self, owner: int, node: ENode) -> bool:
        """Whether the runtime does not compute it as well, or not the same, as what it stands for."""
        quantised, type_ = self.criteria.runtime.quantised, self.egraph.classes[owner].type
        dtype = "" if type_ is None else type_.dtype
        if node.op in quantised.products or (self.criteria.saturates and node in self.unsigned):
            return True
        if node.op in CONVERSIONS:
            return bool(quantised.products) and self._is_for_kernels(node, dtype)
        is_parting = node.op in quantised.whole or (dtype == "int8" and node.op in RESHAPES | quantised.moving)
        return is_parting and dtype in BYTES and not self.egraph.classes[owner].constant

    def _is_for_kernels(self, node: ENode, dtype: str) -> bool:
        """Whether a conversion has a form of which only compiled kernels take advantage: a factor in the place of the
        scale, or a sign of its own."""
        if node.op == "QuantizeLinear":
            return dtype == "int8" or node.children[1] == self.egraph.absent
        source = self.egraph.classes[node.children[0]]
        return not source.constant and source.type is not None and source.type.dtype == "int8"

    def candidates_of(self, owner: int, node: ENode) -> list[tuple[ENode, float]]:
        """An e-node of a class with its cost; none if it cannot be written."""
        if node == FOLD:
            return [(FOLD, self.criteria.storage(self.egraph.classes[owner]))]
        cost = self.cost(owner, node)
        return [] if cost is None else [(node, cost * self._share(node))]

    def _share(self, node: ENode) -> float:
        """The share of its cost that an e-node has behind an operator that its operand may come from."""
        for anchor, shares in self.fused.items():
            if node.op in shares and any(n.op == anchor for n in self.egraph.classes[node.children[0]].nodes):
                return shares[node.op]
        if node.op == "DequantizeLinear" and self.criteria.runtime.quantised.products:
            is_moved = any(n.op in RESHAPES for n in self.egraph.classes[node.children[0]].nodes)
            return _NEXT_TO_READER if is_moved else 1.0
        return 1.0

    def cost(self, owner: int, node: ENode) -> float | None:
        """The cost of an e-node; None if it cannot be written at this opset."""
        if node.op in _FREE:
            return 0.0
        classes, absent = self.egraph.classes, self.egraph.absent
        operands = tuple(classes[c].type for c in node.children)
        sizes = tuple(self.assumptions[c] for c in node.children)
        is_kept = node.op in CONVERSIONS and self.criteria.runtime.quantised.products  # it runs on constants every time
        constant = tuple(classes[c].constant and not is_kept for c in node.children)
        output = classes[owner].type
        is_original = (owner, node) in self.origin.nodes
        continued: tuple[int, ...] = ()
        if node.op in VARIADIC:  # an operand that is a link with the same attributes: writing flattens it
            continued = tuple(int((c, node.op, node.attributes) in self.links) for c in node.children)
        absences = tuple(c == absent for c in node.children)
        size = self.assumptions[owner]
        key = (node.op, node.attributes, operands, sizes, constant, output, size, is_original, continued, absences)
        if key not in self.costs:
            is_writable = is_original or self._emit(node, operands, output) is not None
            self.costs[key] = None
            if is_writable:
                operation = _operation(node, sizes, size, constant, continued)
                self.costs[key] = self.criteria.model.cost(operation)
        return self.costs[key]

    def _emit(self, node: ENode, operands: Types, output: TensorType | None) -> Emission | None:
        runtime, absent = self.criteria.runtime, self.egraph.absent
        return emit_node(node, operands, output, self.opset, self.symbols, absent, runs=True, runtime=runtime)


def _operation(
    node: ENode,
    operands: tuple[TensorType | None, ...],
    output: TensorType | None,
    constant: tuple[bool, ...],
    continued: tuple[int, ...],
) -> Operation:
    """The operation whose cost a model predicts: the operator, its attributes by name, and its operands."""
    if node.op == "Op":
        return Operation.of(opaque_type(node), {}, operands, output, constant)
    operator = OPERATORS[node.op]
    names = (attribute.name for attribute in operator.attributes)
    attributes: dict[str, int | float | str | tuple[int, ...]] = dict(zip(names, node.attributes, strict=True))
    if continued:
        attributes["continued"] = continued
    return Operation.of(operator.like, attributes, operands, output, constant)


@dataclass(frozen=True)
class _Search:
    """The data that stays the same between choices of one e-graph by the same criteria."""

    egraph: EGraph
    node_costs: _NodeCosts
    types: Types

    def list_candidates(self) -> list[Row]:
        """The candidates of each class with their costs."""
        return [self.node_costs.candidates(owner) for owner in range(len(self.egraph.classes))]

    def solve(self, rows: Sequence[Row], deadline: float, method: Extraction) -> tuple[dict[int, ENode], Solution]:
        """The cheapest choice from rows of candidates, one row for each class."""
        criteria = self.node_costs.criteria
        placed = unit_problem(self.egraph, rows, criteria.runtime.quantised, self.node_costs.lone)
        if placed is None and (blocked := criteria.runtime.blocked) is not None:
            fused = frozenset(o for start in blocked.starting for o in criteria.runtime.operators_fused_into(start))
            copy = criteria.copy
            placed = layout_problem(self.egraph, rows, self.types, blocked, fused, lambda t: blocked.reorder * copy(t))
        if placed is not None:
            solution = solve(placed.problem, time_limit=seconds_left(deadline), method=method)
            choice = placed.choose(rows, self.egraph.roots, solution.choice)
            if choice is not None:
                return choice, solution
        classes = tuple(tuple(Candidate(p, node.children) for node, p in row) for row in rows)
        solution = solve(Problem(classes, self.egraph.roots), time_limit=seconds_left(deadline), method=method)
        return {owner: rows[owner][index][0] for owner, index in solution.choice.items()}, solution

    def solve_original(
        self, candidates: Sequence[Row], terms: Sequence[ENode]
    ) -> tuple[dict[int, ENode], Solution] | None:
        """The choice of the original's terms, and of computing its constants now if that is cheaper; None if the
        e-graph has no such choice.

        Of several terms that are in one class it is the earliest: the operands of each are earlier still, which
        excludes cycles. A class without any has all its candidates: a rule may have removed a term for a better one.
        """
        rows = list(candidates)
        settled: set[int] = set()
        for number, term in enumerate(terms):
            owner = self.egraph.terms.get(number)
            if owner is None or owner in settled:
                continue
            node = ENode(term.op, term.attributes, tuple(self.egraph.terms[child] for child in term.children))
            own = [each for each in rows[owner] if each[0] in (FOLD, node)]
            if own:
                rows[owner] = own
                settled.add(owner)
        with suppress(ExtractionError):
            return self.solve(rows, 0.0, "greedy")
        return None

    def cost(self, choice: Mapping[int, ENode]) -> float:
        """The cost of a choice as `solve` counts it, changes of layout included."""
        rows: list[Row] = [[] for _ in self.egraph.classes]
        for owner, node in choice.items():
            rows[owner] = self.node_costs.candidates_of(owner, node)
        return self.solve(rows, 0.0, "greedy")[1].cost


@pause_collection()
def select(
    egraph: EGraph,
    encoding: Encoding,
    origin: Origins,
    opset: int,
    criteria: Criteria,
    *,
    time_limit: float,
    method: Extraction = "exact",
    assumptions: Types = (),
    barred: frozenset[int] = frozenset(),
) -> Selection:
    """The cheapest graph that can be written at `opset`, with the proof that it is, or the proven gap.

    It never costs more than the original's terms. `assumptions` are types of the classes at the sizes that costs count,
    from `assume_types`. `barred` are classes that the graph must not contain.
    """
    deadline = time.monotonic() + time_limit
    types = assumptions or tuple(c.type for c in egraph.classes)
    search = _Search(egraph, _NodeCosts(egraph, encoding, origin, opset, criteria, types, barred), types)
    rows = search.list_candidates()
    choice, solution = search.solve(rows, deadline, method)
    if solution.status != "optimal":
        original = search.solve_original(rows, encoding.terms)
        if original is not None and original[1].cost < search.cost(choice):
            bound, (choice, solution) = solution.lower_bound, original
            solution = replace(solution, lower_bound=min(bound, solution.cost), status="feasible")
    out_of_time = method == "exact" and solution.status != "optimal"
    chosen = {owner: node.children for owner, node in choice.items()}
    loops = find_loops(lambda owner: (node.children for node, _ in rows[owner]), egraph.roots, chosen)
    return Selection(choice, solution.cost, solution.lower_bound, solution.status, out_of_time, loops)


@pause_collection()
def is_dearer_than_original(
    egraph: EGraph,
    encoding: Encoding,
    origin: Origins,
    opset: int,
    criteria: Criteria,
    choice: Mapping[int, ENode],
    assumptions: Types,
) -> bool:
    """Whether a choice made by other criteria costs more than the original's terms by these."""
    node_costs = _NodeCosts(egraph, encoding, origin, opset, criteria, assumptions, frozenset())
    search = _Search(egraph, node_costs, assumptions)
    original = search.solve_original(search.list_candidates(), encoding.terms)
    return original is not None and search.cost(choice) > original[1].cost


# Extraction for a runtime that runs an operator between conversions as one kernel on integers, a unit.
#
# Whether an operator is a unit follows from what makes its operands and what reads its result. So a class of numbers is
# up to three kinds of classes of the problem, the last two for each type of integers: the number itself (the class as
# it is), what a unit computes, and an operand of a unit, whose DequantizeLinear costs nothing:
#
#     within(c)      = Add(dequantised, dequantised) | Transpose(within) | ...
#     dequantised(c) = DequantizeLinear(x, s, z) | Transpose(dequantised) | ...
#     number(c)      = c | MatMul(dequantised, dequantised)
#     integers(c)    = QuantizeLinear(number) | QuantizeLinear(within)

class _State(NamedTuple):
    """What a class stands for beside its number: its kind, and the type of the integers."""

    kind: str
    dtype: str
    owner: int


@dataclass
class _Builder:
    egraph: EGraph
    rows: Sequence[Row]
    quantised: Quantised
    lone: frozenset[int]
    numbers: dict[_State, int] = field(default_factory=dict)
    classes: list[list[Candidate]] = field(default_factory=list)
    places: list[list[Place | None]] = field(default_factory=list)

    def find_states(self) -> None:
        """Number the states that classes can have, those whose candidates read them first."""
        waiting: dict[int, list[tuple[int, ENode]]] = {}
        found: list[_State] = []
        for owner, row in enumerate(self.rows):
            for node, _ in row:
                is_read = node.op == "DequantizeLinear" and self._may_be_signed(node.children[0])
                if is_read and (dtype := self._dtype(node.children[0])):
                    found.append(_State("dequantised", dtype, owner))
                elif node.op in self.quantised.moving or node.op in self.quantised.units:
                    for child in set(node.children):
                        waiting.setdefault(child, []).append((owner, node))
        while found:
            state = found.pop()
            if state in self.numbers:
                continue
            self.numbers[state] = len(self.rows) + len(self.numbers)
            for owner, node in waiting.get(state.owner, ()):
                if node.op in self.quantised.moving and node.children[0] == state.owner:
                    found.append(_State(state.kind, state.dtype, owner))
                elif node.op in self.quantised.units and state.kind == "dequantised":
                    found += [_State("within", dtype, owner) for dtype in self._types if self._operands(node, dtype)]

    @property
    def _types(self) -> Sequence[str]:
        """The types of integers that units compute with."""
        is_signed = self.quantised.signed or bool(self.lone)
        return BYTES if is_signed else [dtype for dtype in BYTES if dtype != "int8"]

    def _may_be_signed(self, integers: int) -> bool:
        """Whether units read and make these integers, of which some with a sign are `lone`."""
        is_signed = self._dtype(integers) == "int8" and not self.egraph.classes[integers].constant
        return not (self.lone and is_signed) or integers in self.lone

    def _dtype(self, owner: int) -> str:
        type_ = self.egraph.classes[owner].type
        return "" if type_ is None else type_.dtype

    def _number(self, kind: str, dtype: str, owner: int) -> int | None:
        return self.numbers.get(_State(kind, dtype, owner))

    def _operands(self, node: ENode, dtype: str) -> tuple[int, ...] | None:
        """The classes of the problem that an operator reads as a unit on integers of a type; None if it is none."""
        is_product = node.op in self.quantised.weighted
        operands: list[int] = []
        for place, child in enumerate(node.children):
            dtypes: Sequence[str] = (dtype,)
            if is_product and place:
                dtypes = BYTES if place == 1 else ("int32",)
            states = (self._number("dequantised", each, child) for each in dtypes)
            state = next((each for each in states if each is not None), None)
            if state is None and node.op in VARIADIC and any(n.op == node.op for n, _ in self.rows[child]):
                state = self._number("within", dtype, child)  # a link of the same chain
            if state is None and child != self.egraph.absent and not (place > 1 and self._is_zero(child)):
                return None
            operands.append(child if state is None else state)
        return tuple(operands)

    def _is_zero(self, owner: int) -> bool:
        return self.egraph.classes[owner].uniform == 0.0

    def build(self) -> PlacedProblem:
        """The problem with a class for each state."""
        self.classes = [[] for _ in range(len(self.rows) + len(self.numbers))]
        self.places = [[] for _ in self.classes]
        for owner, row in enumerate(self.rows):
            for index, (node, cost) in enumerate(row):
                self._append(owner, Candidate(cost, node.children), Place(owner, index))
                for number, candidate in self._candidates_in_units(owner, node, cost):
                    self._append(number, candidate, Place(owner, index))
        classes = tuple(tuple(candidates) for candidates in self.classes)
        return PlacedProblem(Problem(classes, self.egraph.roots), tuple(tuple(places) for places in self.places))

    def _candidates_in_units(self, owner: int, node: ENode, cost: float) -> Iterator[tuple[int, Candidate]]:
        """The candidates of an e-node in units, each with its class."""
        if node.op == "DequantizeLinear":
            own = self._number("dequantised", self._dtype(node.children[0]), owner)
            if own and self._may_be_signed(node.children[0]):
                yield own, Candidate(0.0, node.children)
        elif node.op == "QuantizeLinear":
            within = self._number("within", self._dtype(owner), node.children[0])
            if within and self._may_be_signed(owner):
                yield owner, Candidate(0.0, (within, *node.children[1:]))
        elif node.op in self.quantised.moving:
            for state, number in self._states_of(owner):
                if (moved := self._number(state.kind, state.dtype, node.children[0])) is not None:
                    yield number, Candidate(cost, (moved, *node.children[1:]))
        elif node.op in self.quantised.units:
            for dtype in self._types:
                operands, number_within = self._operands(node, dtype), self._number("within", dtype, owner)
                if operands is None or number_within is None:
                    continue
                candidate = Candidate(cost * self.quantised.units[node.op], operands)
                yield number_within, candidate
                if node.op in self.quantised.floating:
                    yield owner, candidate

    def _states_of(self, owner: int) -> Iterator[tuple[_State, int]]:
        for kind in ("dequantised", "within"):
            for dtype in (*BYTES, "int32"):
                if (number := self._number(kind, dtype, owner)) is not None:
                    yield _State(kind, dtype, owner), number

    def _append(self, number: int, candidate: Candidate, place: Place) -> None:
        self.classes[number].append(candidate)
        self.places[number].append(place)


def unit_problem(
    egraph: EGraph, rows: Sequence[Row], quantised: Quantised, lone: frozenset[int] = frozenset()
) -> PlacedProblem | None:
    """The extraction problem in which units have costs of their own; None if no operator can be one.

    Integers with a sign are operands and results of units if the runtime allows it, or if they are `lone` ones: it
    takes the sign from these.
    """
    builder = _Builder(egraph, rows, quantised, lone)
    builder.find_states()
    return builder.build() if any(state.kind == "within" for state in builder.numbers) else None
