"""Evaluation of the constants that a chosen graph needs, by the shortest expressions over stored constants.

Each expression is evaluated once, in float64, and cast. Operators that only move elements, and those of the model
itself, run in their own element type, as in a runtime.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import onnx
from onnx_ir import serde

from ...ir.operators import OPERATORS, RESHAPES, Operand, Unsupported
from ...ir.operators import evaluate as evaluate_operator
from ...support.deadlines import require_time
from ..onnx.evaluation import evaluate, evaluate_by_reference
from ..onnx.model import Model, elements
from ..onnx.typing import dtype_of
from .emit import Emission, emit_node
from .encode import Encoding, multiple_outputs
from .graph import EGraph, ENode, NodePosition, WaitingNodes, postorder
from .plan import Origins

Array = np.ndarray[Any, Any]
Value = Array | tuple[Array, ...] | None

FOLD = ENode("Constant", (), ())
"""The e-node that means "evaluate this constant at compile time" in a selection."""

_LEAVES = frozenset({"Weight", "Full"})
_OPSET = 18
"""The opset of new constant expressions, whatever the model's opset: they never leave this process."""
_INTERMEDIATE_BYTES = 64 << 20
"""The most bytes of a constant on the way to a folded one, or as many as all weights of the model: computing it takes
under a second. A larger one, such as a Range of millions, stays in the graph."""
_MOVEMENT = RESHAPES | {"Transpose", "Expand", "Tile", "Slice", "Gather", "Concat", "Split"}


class OutOfRangeError(Exception):
    """Constants that rules made are numbers, and their element types cannot hold them. `owners` are their classes."""

    def __init__(self, owners: frozenset[int]) -> None:
        super().__init__(f"{len(owners)} constants do not fit their element types")
        self.owners = owners


@dataclass(frozen=True)
class FoldingStep:
    """A node that computes a constant, with the constant lists that it reads.

    `native`: compute in the element type of the operands rather than in float64. `opsets` are those of the node.
    """

    node: onnx.NodeProto
    lists: Mapping[str, Array]
    native: bool
    opsets: Mapping[str, int]

    def run(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name; {} if an operand is missing, and without outputs that cannot be evaluated."""
        names = {name for name in self.node.input if name}
        inputs = {n: array for n in names if (array := values.get(n, self.lists.get(n))) is not None}
        if len(inputs) < len(names):
            return {}
        outputs = [name for name in self.node.output if name]
        results: dict[str, Array] = {}
        if self.node.op_type in _MOVEMENT:
            results = evaluate_by_reference([self.node], inputs, outputs, self.opsets)
        elif not self.native:
            wide = {n: a.astype(np.float64) if _is_float(a) else a for n, a in inputs.items()}
            results = evaluate_by_reference([self.node], wide, outputs, self.opsets)
        if len(results) == len(outputs):
            return results
        # Some operands may be wider by an earlier step: all take the narrowest type among them.
        narrowest = min((a.dtype for a in inputs.values() if _is_float(a)), key=lambda d: d.itemsize, default=None)
        narrow = {n: a.astype(narrowest, copy=False) if _is_float(a) else a for n, a in inputs.items()}
        return evaluate([self.node], narrow, outputs, self.opsets)


@dataclass(frozen=True)
class Folder:
    """Evaluates constant classes of an e-graph."""

    model: Model
    egraph: EGraph
    encoding: Encoding
    origin: Origins
    known: Mapping[str, Array]

    @cached_property
    def _too_large(self) -> frozenset[int]:
        return find_too_large(self.egraph)

    def values(self, wanted: Iterable[int], deadline: float = inf) -> dict[int, Array]:
        """The value of each wanted class; one that cannot be evaluated is left out.

        Raises OutOfTime at the deadline (time.monotonic), and OutOfRangeError for classes that no value of the model is
        in, whose numbers become infinite, or all of them zero, in their element types.
        """
        chosen = self._choose_expressions()
        reachable = [c for c in wanted if c in chosen]

        def operands(owner: int) -> list[int]:
            return [c for c in _operands(self.egraph, owner, chosen[owner]) if c in chosen]

        values: dict[str, Array] = {}
        for owner in postorder(reachable, operands):
            require_time(deadline)
            node, uniform = chosen[owner], self._uniform(owner)
            if uniform is not None:
                values[_name(owner)] = uniform
            elif node.op in _LEAVES:
                values[_name(owner)] = self._leaf(node)
            else:
                values |= self._compute(owner, node, values) or self._step(owner, node).run(values)
        with np.errstate(over="ignore", under="ignore"):
            cast = {c: values[_name(c)].astype(self._dtype(c), copy=False) for c in reachable if _name(c) in values}
        made = [c for c in cast if not self.origin.names.get(c)]
        lost = frozenset(c for c in made if is_out_of_range(self._wide(c, values[_name(c)]), cast[c]))
        if lost:
            raise OutOfRangeError(lost)
        return cast

    def _wide(self, owner: int, value: Array) -> Array:
        """The value before it is cast; `values` holds the one of a uniform constant as it is stored."""
        uniform = self.egraph.classes[owner].uniform
        return value if uniform is None else np.asarray(uniform)

    def _compute(self, owner: int, node: ENode, values: Mapping[str, Array]) -> dict[str, Array]:
        """The value by the operator table: movements in their own type, nodes that rules made in float64; else {}."""
        is_movement = node.op in _MOVEMENT
        if multiple_outputs(node.op) or not (is_movement or self.origin.find(owner, node, node.children) is None):
            return {}
        operands = [values.get(_name(child)) for child in node.children]
        if any(o is None and c != self.egraph.absent for o, c in zip(operands, node.children, strict=True)):
            return {}
        if not is_movement:
            operands = [o.astype(np.float64) if o is not None and _is_float(o) else o for o in operands]
        value = compute(node, operands)
        return {_name(owner): np.asarray(value)} if value is not None and not isinstance(value, tuple) else {}

    def _choose_expressions(self) -> dict[int, ENode]:
        """The e-node of each constant class with the fewest operations, by Knuth's generalisation of Dijkstra."""
        absent = self.egraph.absent
        waiting = WaitingNodes()
        heap: list[tuple[int, NodePosition]] = []
        for owner, class_ in enumerate(self.egraph.classes):
            if not class_.constant and owner != absent:
                continue
            for place, node in enumerate(class_.nodes):
                position = NodePosition(owner, place)
                children = {*_operands(self.egraph, owner, node)} - {absent}
                if self._is_usable(owner, node, children) and waiting.add(position, children):
                    heap.append((self._weight(position), position))
        heapq.heapify(heap)
        best: dict[int, ENode] = {}
        costs: dict[int, int] = {}
        while heap:
            cost, (owner, place) = heapq.heappop(heap)
            if owner in best:
                continue
            best[owner], costs[owner] = self.egraph.classes[owner].nodes[place], cost
            for user in waiting.provide(owner):
                if user.owner not in best:
                    node = self.egraph.classes[user.owner].nodes[user.place]
                    children = {*_operands(self.egraph, user.owner, node)} - {absent}
                    heapq.heappush(heap, (self._weight(user) + sum(costs[c] for c in children), user))
        return best

    def _is_usable(self, owner: int, node: ENode, operands: Iterable[int]) -> bool:
        if node.op in _LEAVES or node.op == "Out" or self._uniform(owner) is not None:
            return True
        if node.op in ("Var", "Absent") or not self._too_large.isdisjoint((owner, *operands)):
            return False
        emission = self._emission(owner, node)
        return self.origin.find(owner, node, node.children) is not None or bool(emission and not emission.domain)

    def _weight(self, position: NodePosition) -> int:
        node = self.egraph.classes[position.owner].nodes[position.place]
        return 0 if node.op in _LEAVES else 1 + position.place.bit_length()

    def _emission(self, owner: int, node: ENode) -> Emission | None:
        types = tuple(self.egraph.classes[c].type for c in node.children)
        return emit_node(node, types, self.egraph.classes[owner].type, _OPSET, {}, self.egraph.absent)

    def _uniform(self, owner: int) -> Array | None:
        """The value of a uniform constant, broadcast from one element; None for other classes."""
        class_ = self.egraph.classes[owner]
        if class_.uniform is None or class_.type is None or class_.type.shape is None:
            return None
        with np.errstate(over="ignore"):
            value = np.asarray(class_.uniform, dtype_of(class_.type.dtype).numpy())
        return np.broadcast_to(value, class_.type.shape)  # type: ignore[arg-type]

    def _leaf(self, node: ENode) -> Array:
        if node.op == "Full":
            shape, value, dtype = node.attributes
            return np.broadcast_to(np.asarray(value, dtype_of(str(dtype)).numpy()), shape)  # type: ignore[arg-type]
        name = str(node.attributes[0])
        return self.known[name] if name in self.known else elements(self.model.stored[name])

    def _step(self, owner: int, node: ENode) -> FoldingStep:
        if node.op == "Out":
            index = int(node.attributes[0])  # type: ignore[arg-type]
            copy = onnx.helper.make_node("Identity", [_output(node.children[0], index)], [_name(owner)])
            return FoldingStep(copy, {}, True, {"": _OPSET})
        position = self.origin.find(owner, node, node.children)
        if position is not None and node.op != "Concat":
            return self._original(owner, node, position)
        spec = self._emission(owner, node)
        assert spec is not None
        lists = {f"{_name(owner)}.{i}": a for i, a in enumerate(spec.inputs) if isinstance(a, np.ndarray)}
        inputs = [
            f"{_name(owner)}.{i}" if isinstance(a, np.ndarray) else "" if a is None else _name(node.children[a])
            for i, a in enumerate(spec.inputs)
        ]
        outputs = [_output(owner, i) for i in range(spec.outputs)] if multiple_outputs(node.op) else [_name(owner)]
        proto = onnx.helper.make_node(spec.op_type, inputs, outputs, **spec.attributes)
        return FoldingStep(proto, lists, False, {"": _OPSET})

    def _original(self, owner: int, node: ENode, position: int) -> FoldingStep:
        """A node of the model itself, with its own inputs."""
        source = self.model.graph[position]
        proto = serde.serialize_node(source)
        lists: dict[str, Array] = {}
        for index, value in enumerate(source.inputs):
            if value is None:
                continue
            term = self.encoding.values[value.name or ""]
            proto.input[index] = _name(self.egraph.terms[term])
            constant = self.known.get(value.name or "")
            if self.egraph.terms[term] not in node.children and constant is not None:
                lists[proto.input[index]] = constant
        several = multiple_outputs(node.op)
        for index, output in enumerate(source.outputs):
            if output.name:
                proto.output[index] = _output(owner, index) if several else _name(owner)
        return FoldingStep(proto, lists, True, self.model.ir.opset_imports)

    def _dtype(self, owner: int) -> np.dtype[Any]:
        type_ = self.egraph.classes[owner].type
        assert type_ is not None
        return np.dtype(dtype_of(type_.dtype).numpy())


def compute(node: ENode, operands: Sequence[Value]) -> Value:
    """The value of an e-node from those of its operands, None for an absent one; None if no row computes it."""
    if node.op not in OPERATORS:
        return None
    values, attributes = iter(operands), iter(node.attributes)
    arguments: list[Any] = [
        next(values) if isinstance(a, Operand) else next(attributes) for a in OPERATORS[node.op].arguments
    ]
    try:
        with np.errstate(all="ignore"):
            return evaluate_operator(node.op, arguments)
    except Unsupported:
        return None


def _operands(egraph: EGraph, owner: int, node: ENode) -> tuple[int, ...]:
    """The classes from which one of its e-nodes computes the value of a class: none if it is uniform."""
    class_ = egraph.classes[owner]
    is_uniform = class_.uniform is not None and class_.type is not None and class_.type.shape is not None
    return () if is_uniform else node.children


def is_out_of_range(wide: Array, cast: Array) -> bool:
    """Whether a float type makes an infinity of a finite number, or zeros of all numbers."""
    if not _is_float(cast) or not cast.size:
        return False
    overflows = bool(np.any(np.isfinite(wide) & ~np.isfinite(cast)))
    return overflows or (bool(np.any(wide)) and not np.any(cast))


def _name(owner: int) -> str:
    return f"c{owner}"


def _output(owner: int, index: int) -> str:
    return f"c{owner}_{index}"


def _is_float(array: Array) -> bool:
    return bool(array.dtype.kind == "f" or array.dtype.name == "bfloat16")


def uniform_element(array: Array) -> Any | None:
    """The element that all elements of a non-empty array equal; None if they differ."""
    if array.size < 32 or array.dtype.kind not in "fiub":
        return None
    first = array.flat[0]
    if not any(array.strides):
        return first  # broadcast from one element
    return first if bool((array == first).all()) else None


def find_too_large(egraph: EGraph) -> frozenset[int]:
    """The constant classes that are neither stored nor may be computed: they are larger than all weights together."""
    constants = {owner: class_.type for owner, class_ in enumerate(egraph.classes) if class_.constant}
    sizes = {owner: type_.bytes() for owner, type_ in constants.items() if type_ is not None and type_.is_static}
    stored = {owner for owner in sizes if any(node.op == "Weight" for node in egraph.classes[owner].nodes)}
    largest = max(_INTERMEDIATE_BYTES, sum(sizes[owner] for owner in stored))
    return frozenset(owner for owner, size in sizes.items() if size > largest)


def find_foldable(egraph: EGraph) -> frozenset[int]:
    """The constant classes that a file can store and that can be computed: the model's own, and tensors of known type
    for which no constant on the way is too large."""
    storable = frozenset(
        owner
        for owner, class_ in enumerate(egraph.classes)
        if class_.constant and class_.type is not None and class_.type.is_static
        and (class_.type.dtype != "string" or any(n.op == "Weight" for n in class_.nodes))
    )  # fmt: skip
    too_large = find_too_large(egraph)
    if not too_large:
        return storable
    waiting, ready = WaitingNodes(), [egraph.absent]
    for owner, class_ in enumerate(egraph.classes):
        for place, node in enumerate(class_.nodes if class_.constant else ()):
            children = _operands(egraph, owner, node)
            is_small = not children or too_large.isdisjoint((owner, *children))
            if is_small and waiting.add(NodePosition(owner, place), children):
                ready.append(owner)
    computable: set[int] = set()
    while ready:
        if (owner := ready.pop()) not in computable:
            computable.add(owner)
            ready += [user.owner for user in waiting.provide(owner)]
    return storable & computable
