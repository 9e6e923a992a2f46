"""How to compute the constants that a chosen graph needs: for each class the shortest expression over stored ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import serde

from ..constants import Array, Step, compute
from ..onnx.model import Model, elements
from ..onnx.typing import dtype_of
from .emit import Emission, emit_node
from .encode import Encoding, multiple_outputs
from .graph import EGraph, ENode
from .plan import Origins

FOLD = ENode("Constant", (), ())
"""The e-node that stands for "evaluate this constant at compile time" in a selection."""

_LEAVES = frozenset({"Weight", "Full"})
_OPSET = 18
"""What new constant expressions are written for, whatever the model's opset: they never leave this process."""
_LARGEST_BYTES = 4 << 30
"""Constants that take more are not computed: no file could hold them, and few machines."""


@dataclass(frozen=True)
class Folder:
    """Evaluates constant classes of an e-graph."""

    model: Model
    egraph: EGraph
    encoding: Encoding
    origin: Origins
    known: Mapping[str, Array]

    def values(self, wanted: Iterable[int]) -> dict[int, Array]:
        """The value of each wanted class. A class that cannot be evaluated, or is too large, is left out."""
        chosen = self.expressions()
        reachable = [c for c in wanted if c in chosen]
        leaves: dict[str, Array] = {}
        steps: list[Step] = []
        for owner in self._postorder(reachable, chosen):
            node = chosen[owner]
            uniform = self.uniform(owner)
            if uniform is not None:
                leaves[_name(owner)] = uniform
            elif node.op in _LEAVES:
                leaves[_name(owner)] = self._leaf(node)
            elif self._bytes(owner) <= _LARGEST_BYTES:
                steps.append(self._step(owner, node))
        dtypes = {_name(c): self._dtype(c) for c in reachable}
        found = compute(leaves, steps, dtypes)
        return {c: found[_name(c)] for c in reachable if _name(c) in found}

    def expressions(self) -> dict[int, ENode]:
        """Knuth's generalisation of Dijkstra: the e-node of each constant class with the fewest operations."""
        best: dict[int, ENode] = {}
        users, missing = self._users()
        absent = self.egraph.absent
        heap: list[tuple[int, int, int]] = []
        costs: dict[int, int] = {}
        for owner, index in missing:
            if missing[owner, index] == 0:
                heapq.heappush(heap, (self._weight(owner, index), owner, index))
        while heap:
            cost, owner, index = heapq.heappop(heap)
            if owner in best:
                continue
            best[owner], costs[owner] = self.egraph.classes[owner].nodes[index], cost
            for user in users.get(owner, ()):
                missing[user] -= 1
                if missing[user] == 0 and user[0] not in best:
                    children = self.egraph.classes[user[0]].nodes[user[1]].children
                    heapq.heappush(heap, (self._weight(*user) + sum(costs[c] for c in set(children) - {absent}), *user))
        return best

    def _users(self) -> tuple[dict[int, list[tuple[int, int]]], dict[tuple[int, int], int]]:
        users: dict[int, list[tuple[int, int]]] = {}
        missing: dict[tuple[int, int], int] = {}
        absent = self.egraph.absent
        for owner, class_ in enumerate(self.egraph.classes):
            if not class_.constant and owner != absent:
                continue
            for index, node in enumerate(class_.nodes):
                children = {c for c in node.children if c != absent}
                if not self._is_usable(owner, node):
                    continue
                missing[owner, index] = len(children)
                for child in children:
                    users.setdefault(child, []).append((owner, index))
        return users, missing

    def _is_usable(self, owner: int, node: ENode) -> bool:
        if node.op in _LEAVES or node.op == "Out":
            return True
        if node.op in ("Var", "Absent"):
            return False
        return self.origin.find(owner, node, node.children) is not None or self._emission(owner, node) is not None

    def _weight(self, owner: int, index: int) -> int:
        node = self.egraph.classes[owner].nodes[index]
        return 0 if node.op in _LEAVES else 1 + index.bit_length()

    def _emission(self, owner: int, node: ENode) -> Emission | None:
        types = tuple(self.egraph.classes[c].type for c in node.children)
        return emit_node(node, types, self.egraph.classes[owner].type, _OPSET, {}, self.egraph.absent)

    def _postorder(self, wanted: Iterable[int], chosen: Mapping[int, ENode]) -> list[int]:
        done: dict[int, None] = {}
        stack = [(c, False) for c in wanted]
        while stack:
            owner, ready = stack.pop()
            if owner in done:
                continue
            if ready:
                done[owner] = None
                continue
            stack.append((owner, True))
            if self.uniform(owner) is None:
                stack += [(c, False) for c in chosen[owner].children if c in chosen]
        return list(done)

    def uniform(self, owner: int) -> Array | None:
        """A constant of one value throughout, without the memory for it."""
        class_ = self.egraph.classes[owner]
        if class_.uniform is None or class_.type is None or class_.type.shape is None:
            return None
        value = np.asarray(class_.uniform, dtype_of(class_.type.dtype).numpy())
        return np.broadcast_to(value, class_.type.shape)  # type: ignore[arg-type]

    def _leaf(self, node: ENode) -> Array:
        if node.op == "Full":
            shape, value, dtype = node.attributes
            return np.broadcast_to(np.asarray(value, dtype_of(str(dtype)).numpy()), shape)  # type: ignore[arg-type]
        name = str(node.attributes[0])
        return self.known[name] if name in self.known else elements(self.model.stored[name])

    def _step(self, owner: int, node: ENode) -> Step:
        if node.op == "Out":
            index = int(node.attributes[0])  # type: ignore[arg-type]
            copy = _proto("Identity", [_output(node.children[0], index)], [_name(owner)], {})
            return Step(copy, {}, True, {"": _OPSET})
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
        return Step(_proto(spec.op_type, inputs, outputs, spec.attributes), lists, False, {"": _OPSET})

    def _original(self, owner: int, node: ENode, position: int) -> Step:
        """A node that the model itself has, with all its inputs as they are."""
        source = self.model.graph[position]
        proto = serde.serialize_node(source)
        lists: dict[str, Array] = {}
        for index, value in enumerate(source.inputs):
            if value is None:
                continue
            term = self.encoding.values[value.name or ""]
            proto.input[index] = _name(self.egraph.terms[term])
            known = self.known.get(value.name or "")
            if self.egraph.terms[term] not in node.children and known is not None:
                lists[proto.input[index]] = known
        several = multiple_outputs(node.op)
        for index, output in enumerate(source.outputs):
            if output.name:
                proto.output[index] = _output(owner, index) if several else _name(owner)
        return Step(proto, lists, True, self.model.ir.opset_imports)

    def _bytes(self, owner: int) -> int:
        type_ = self.egraph.classes[owner].type
        return type_.elements() * self._dtype(owner).itemsize if type_ is not None and type_.is_static else 0

    def _dtype(self, owner: int) -> np.dtype[Any]:
        type_ = self.egraph.classes[owner].type
        assert type_ is not None
        return np.dtype(dtype_of(type_.dtype).numpy())


def _name(owner: int) -> str:
    return f"c{owner}"


def _output(owner: int, index: int) -> str:
    return f"c{owner}_{index}"


def _proto(op_type: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]) -> Any:
    import onnx

    return onnx.helper.make_node(op_type, inputs, outputs, **attributes)


def is_foldable_class(egraph: EGraph, owner: int) -> bool:
    """Whether a class is a constant that a file can store: one of the model's own, or a tensor of known type."""
    class_ = egraph.classes[owner]
    if not class_.constant or class_.type is None or not class_.type.is_static:
        return False
    return class_.type.dtype != "string" or any(n.op == "Weight" for n in class_.nodes)


def new_tensor(array: Array, name: str) -> ir.TensorProtocol:
    """A tensor for an initializer."""
    return ir.tensor(np.asarray(array, order="C"), name=name)
