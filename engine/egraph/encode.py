"""From an ONNX graph to terms of the e-graph.

Terms are hash-consed, so that common subexpressions are one term by construction. Constants with one value
throughout become ``Full``, so that equal constants of different names are equal terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from ...ir.operation import VARIADIC
from ...ir.operators import OPERATORS
from ...ir.types import Dimension, TensorType
from ..onnx.model import Model, elements
from ..onnx.nodes import (
    BODY_DOMAIN,
    FORMAL_KEY,
    blame_node,
    fingerprint,
    has_body,
    is_foldable,
    is_pure,
    is_standard,
    outer_values,
)
from ..onnx.typing import constant_type
from ..shapes.inference import SMALL, Knowledge
from . import other_domains
from .canonical import Call, canonical
from .graph import EMPTY_SYMBOLS, NONEMPTY_SYMBOLS, ENode, Literal

_SYMBOLS = -1000
OPAQUE = "!opaque"
"""Name of an artificial graph input. As an operand it keeps an opaque node from being a constant."""
_ALIASES = frozenset({"Identity", "Dropout", "Sum", "Min", "Max"})


@dataclass(frozen=True)
class Encoding:
    """The graph as terms: `terms[i].children` are indices below i.

    `uniform` gives the number that all elements of a term are; `values` the term of each named value; `nodes` that of
    each ONNX node, except constants and aliases of operands; `symbols` numbers the symbolic dimensions, and `products`
    are those of two of these numbers or of one and a size. `equal` are pairs of terms of one value.
    """

    terms: tuple[ENode, ...]
    types: Mapping[int, TensorType]
    uniform: Mapping[int, float]
    nonneg: frozenset[int]
    nonzero: frozenset[int]
    finite: frozenset[int]
    values: Mapping[str, int]
    nodes: Mapping[ir.Node, int]
    roots: tuple[int, ...]
    symbols: Mapping[str, int]
    products: Mapping[tuple[int, int], int]
    equal: tuple[tuple[int, int], ...] = ()


@dataclass
class _Encoder:
    model: Model
    knowledge: Knowledge
    symbols: dict[str, int]
    named: frozenset[str]
    terms: dict[ENode, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    nodes: dict[ir.Node, int] = field(default_factory=dict)
    types: dict[int, TensorType] = field(default_factory=dict)
    uniform: dict[int, float] = field(default_factory=dict)
    nonneg: set[int] = field(default_factory=set)
    nonzero: set[int] = field(default_factory=set)
    finite: set[int] = field(default_factory=set)
    contents: dict[tuple[Any, ...], int] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    equal: list[tuple[int, int]] = field(default_factory=list)

    def term(self, op: str, attributes: Iterable[Literal] = (), children: Iterable[int] = ()) -> int:
        return self.terms.setdefault(ENode(op, tuple(attributes), tuple(children)), len(self.terms))

    def bind(self, name: str | None, term: int) -> None:
        if not name:
            return
        self.values[name] = term
        type_ = self.knowledge.types.get(name)
        if type_ is None:
            return
        is_named = type_.shape is not None and all(isinstance(d, int) or d in self.symbols for d in type_.shape)
        if is_named or term not in self.types:
            self.types[term] = type_ if is_named else TensorType(type_.dtype, None)

    # --- leaves

    def inputs(self) -> None:
        for value in self.model.graph.inputs:
            term = self.term("Var", (value.name or "",))
            self.bind(value.name, term)
            if FORMAL_KEY not in value.metadata_props:
                self.finite.add(term)
        for name in self.model.overridable_initializers:
            self.bind(name, self.term("Var", (name,)))

    def constants(self) -> None:
        stored = self.model.stored
        for name, tensor in stored.items():
            array = self.knowledge.constants.get(name)
            self.bind(name, self.weight(name, tensor) if array is None else self.constant(name, array))
        for name, array in self.knowledge.constants.items():
            if name not in stored:
                self.bind(name, self.constant(name, array))

    def weight(self, name: str, tensor: ir.TensorProtocol) -> int:
        term = self.term("Weight", (name,))
        self.types[term] = constant_type(tensor)
        if is_finite(tensor.numpy()):
            self.finite.add(term)
        return term

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> int:
        """A constant with known elements."""
        number = uniform_value(array)
        dtype = array.dtype.name
        if number is not None:
            term = self.term("Full", (tuple(array.shape), number, dtype))
        else:
            key = (dtype, array.shape, array.tobytes())
            term = self.contents.setdefault(key, self.term("Weight", (name,)))
        self.types[term] = TensorType(dtype, tuple(array.shape))
        self._signs(term, array)
        return term

    def _signs(self, term: int, array: np.ndarray[Any, Any]) -> None:
        if array.dtype.kind not in "fiu":
            return
        if bool(np.all(array >= 0)):
            self.nonneg.add(term)
        if bool(np.all(array != 0)) and not bool(np.any(np.isnan(array))):
            self.nonzero.add(term)
        if is_finite(array):
            self.finite.add(term)

    # --- nodes

    def node(self, node: ir.Node) -> None:
        if all(o.name in self.values for o in node.outputs if o.name):
            return
        if node.domain == BODY_DOMAIN and node.op_type == "If":
            self._encode_if(node)
            return
        alias = self._alias(node)
        if alias is not None:
            self.bind(node.outputs[0].name, alias)
            return
        term = self._encode_fill(node)
        if term is None:
            is_kept = not is_pure(node) or is_rounding_sum(node, self.knowledge, self.uniform_of)
            call = None if is_kept else canonical(node, self.knowledge, self.model.opset)
            term = self.opaque(node) if call is None else self.call(node, call)
            if call is None and node.op_type == "Reshape":
                self._view(node)
            number = self._fill_number(node)
            if number is not None:
                self.uniform[self.values[node.outputs[0].name or ""]] = number
        self.nodes[node] = term

    def _view(self, node: ir.Node) -> None:
        """Let rules see a Reshape whose target no constant can replace, although none of them can write it."""
        type_, source = self.knowledge.types.get(node.outputs[0].name or ""), node.inputs[0]
        shape = None if type_ is None or not is_standard(node) else type_.shape
        if shape is not None and source is not None and all(isinstance(d, int) or d in self.symbols for d in shape):
            view = self.term("Reshape", (self._literal(shape),), [self.operand(source.name)])
            self.equal.append((view, self.values[node.outputs[0].name or ""]))

    def operand(self, name: str | None) -> int:
        return self.term("Absent") if name is None else self.values[name]

    def call(self, node: ir.Node, call: Call) -> int:
        literals = tuple(self._literal(a) for a in call.attributes)
        if call.operator.name in VARIADIC:
            operands = [self.operand(i.name if i else None) for i in node.inputs]
            term = self._chain(call.operator.name, operands, literals)
        else:
            term = self.term(call.operator.name, literals, (self.operand(o) for o in call.operands))
        self._outputs(node, term, call.operator.sort == "N")
        return term

    def _chain(self, op: str, operands: list[int], literals: tuple[Literal, ...]) -> int:
        term = operands[-1]
        for operand in reversed(operands[:-1]):
            term = self.term(op, literals, (operand, term))
        return term

    def _literal(self, literal: Any) -> Literal:
        if not isinstance(literal, tuple):
            return literal  # type: ignore[no-any-return]
        return tuple(map(self.number, literal))

    def number(self, dimension: Dimension) -> int:
        """A size, or the number of a symbol."""
        return self.symbols[dimension] if isinstance(dimension, str) else int(dimension)

    def opaque(self, node: ir.Node) -> int:
        named = other_domains.operator_key(node, self.named)
        if named is not None:
            term = self.term("Op", (named,), [self.operand(i.name if i else None) for i in node.inputs])
            self._outputs(node, term, True)
            return term
        identity = fingerprint(node) if is_pure(node) else f"!{len(self.keys)}"
        key = self.keys.setdefault(identity, f"{node.op_type}#{len(self.keys)}")
        children = [self.operand(i.name if i else None) for i in node.inputs]
        if has_body(node):
            children += [self.values[v.name or ""] for v in outer_values(node, self.model.graph)]
        if not is_foldable(node):
            children.append(self.term("Var", (OPAQUE,)))
        term = self.term("Op", (key,), children)
        self._outputs(node, term, True)
        return term

    def _outputs(self, node: ir.Node, term: int, several: bool) -> None:
        for index, output in enumerate(node.outputs):
            self.bind(output.name, self.term("Out", (index,), (term,)) if several else term)

    def _alias(self, node: ir.Node) -> int | None:
        """The operand that the node's only output always equals."""
        if node.op_type not in _ALIASES or not is_standard(node) or not node.inputs or node.inputs[0] is None:
            return None
        single = len(node.inputs) == 1 and sum(bool(o.name) for o in node.outputs) == 1
        if node.op_type == "Dropout":
            used = [o for o in node.outputs[1:] if o.name and (o.uses() or o.is_graph_output())]
            training = node.inputs[2] if len(node.inputs) > 2 else None
            single = not used and (training is None or self.uniform_of(training) == 0.0)
        return self.operand(node.inputs[0].name) if single else None

    def uniform_of(self, value: ir.Value) -> float | None:
        array = self.knowledge.constants.get(value.name or "")
        return None if array is None else uniform_value(array)

    def _encode_if(self, node: ir.Node) -> None:
        """A term for each output, so that each is chosen by itself."""
        condition, *results = (self.operand(i.name if i else None) for i in node.inputs)
        half = len(results) // 2
        for output, then, otherwise in zip(node.outputs, results[:half], results[half:], strict=True):
            self.bind(output.name, self.term("If", (), (condition, then, otherwise)))

    def _encode_fill(self, node: ir.Node) -> int | None:
        """A ConstantOfShape of known shape, however large, is one ``Full``."""
        if node.op_type != "ConstantOfShape" or not is_standard(node) or node.inputs[0] is None:
            return None
        shape = self.knowledge.constants.get(node.inputs[0].name or "")
        number = self._fill_number(node)
        if shape is None or number is None:
            return None
        tensor = node.attributes.get_tensor("value", None)
        dtype = "float32" if tensor is None else elements(tensor).dtype.name
        term = self.term("Full", (tuple(int(d) for d in shape), number, dtype))
        self.types[term] = TensorType(dtype, tuple(int(d) for d in shape))
        self.bind(node.outputs[0].name, term)
        return term

    def _fill_number(self, node: ir.Node) -> float | None:
        """The number that a node repeats, for any shape of its result; None if it does something else."""
        if not is_standard(node) or not node.inputs or node.inputs[0] is None:
            return None
        if node.op_type == "ConstantOfShape":
            tensor = node.attributes.get_tensor("value", None)
            return 0.0 if tensor is None else uniform_value(elements(tensor))
        return self.uniform_of(node.inputs[0]) if node.op_type in ("Expand", "Tile") else None


def is_finite(array: np.ndarray[Any, Any]) -> bool:
    """Whether no element is NaN or infinite, which their sum shows without another array."""
    if array.dtype.kind in "OSU":
        return False
    if array.dtype.kind in "iub":
        return True
    with np.errstate(invalid="ignore", over="ignore"):
        is_single = array.dtype == np.float32  # its sum is faster in its own type, and rarely too large for that
        return bool((is_single and np.isfinite(np.sum(array))) or np.isfinite(np.sum(array, dtype=np.float64)))


def uniform_value(array: np.ndarray[Any, Any]) -> float | None:
    """The number that every element equals, if a float64 holds it exactly; else None."""
    if array.size == 0 or array.size > SMALL or array.dtype.kind not in "fiub":
        return None
    first = array.flat[0]
    if array.dtype.kind == "f" and (np.isnan(first) or (first == 0 and bool(np.any(np.signbit(array))))):
        return None
    number = float(first)
    exact = abs(number) < 2**53 or array.dtype.kind == "f"
    return number if exact and bool(np.all(array == first)) else None


def encode(model: Model, knowledge: Knowledge, named: frozenset[str] = frozenset()) -> Encoding:
    """The main graph as terms, without unused nodes. `named` are the operators of other domains that rules name."""
    symbols = {
        s: (NONEMPTY_SYMBOLS if s in knowledge.nonempty else EMPTY_SYMBOLS if s in knowledge.empty else _SYMBOLS) - i
        for i, s in enumerate(sorted(knowledge.symbols), 1)
    }
    encoder = _Encoder(model, knowledge, symbols, named)
    encoder.inputs()
    encoder.constants()
    for node in model.graph:
        with blame_node(node, model.label):
            encoder.node(node)
    return Encoding(
        terms=tuple(encoder.terms),
        types=encoder.types,
        uniform=encoder.uniform
        | {t: float(n.attributes[1]) for n, t in encoder.terms.items() if n.op == "Full"},  # type: ignore[arg-type]
        nonneg=frozenset(encoder.nonneg),
        nonzero=frozenset(encoder.nonzero),
        finite=frozenset(encoder.finite),
        values=encoder.values,
        nodes=encoder.nodes,
        roots=tuple(encoder.values[o.name or ""] for o in model.graph.outputs),
        symbols=symbols,
        products={
            (encoder.number(a), encoder.number(b)): encoder.number(product)
            for (a, b), product in knowledge.products.items()
            if all(isinstance(d, int) or d in symbols for d in (a, b, product))  # no term has the others
        },
        equal=tuple(encoder.equal),
    )


def opaque_type(node: ENode) -> str:
    """The ONNX operator type behind an ``Op`` term."""
    return str(node.attributes[0]).partition("#")[0].partition("/")[0].rpartition(".")[2]


def multiple_outputs(op: str) -> bool:
    """Whether a term of this constructor is a node with several outputs, of sort N."""
    return op == "Op" or (op in OPERATORS and OPERATORS[op].sort == "N")


_LAST_PLACE = 0.25
"""The least step between the numbers around k at which a sum counts as rounding. A smaller k loses digits as any sum
of that size does, and such a pair is more often one that two exporters left behind."""
_REMAINING = 2.0**-8
"""The largest part of k that remains once the second constant is added."""

UniformOf = Callable[[ir.Value], float | None]
"""The number that all elements of a constant are; None for any other value."""


def is_rounding_sum(node: ir.Node, knowledge: Knowledge, uniform_of: UniformOf) -> bool:
    """Whether a node is the first half of a sum that rounds: x + k, x - k or k - x, whose reader takes k away.

    (x + k) - k with a large constant k is x rounded to a multiple of the last place of k. Over the reals it is x, and
    rules may compute over the reals. Models that emulate integers write it for the rounding (with k = 1.5 * 2^23 a
    float32 becomes a whole number), so its first half stays out of reach of all rules.
    """
    offset = _offset(node, None, uniform_of)
    if offset is None or not np.isfinite(offset) or not _is_coarse(node, offset, knowledge):
        return False
    result = node.outputs[0]
    for use in result.uses():
        sign = -1.0 if use.node.op_type == "Sub" and use.idx == 1 else 1.0
        after = _offset(use.node, result, uniform_of)
        if after is not None and abs(sign * offset + after) <= _REMAINING * abs(offset):
            return True
    return False


def _offset(node: ir.Node, moved: ir.Value | None, uniform_of: UniformOf) -> float | None:
    """The constant that an Add or a Sub adds to `moved`, or to any value; None if the node does something else."""
    if node.op_type not in ("Add", "Sub") or not is_standard(node) or len(node.inputs) != 2:
        return None
    for place, value in enumerate(node.inputs):
        other = node.inputs[1 - place]
        number = uniform_of(value) if value is not None else None
        if number is None or other is None:
            continue
        if other is moved or (moved is None and uniform_of(other) is None):
            return -number if node.op_type == "Sub" and place == 1 else number
    return None


def _is_coarse(node: ir.Node, offset: float, knowledge: Knowledge) -> bool:
    type_ = knowledge.types.get(node.outputs[0].name or "")
    if type_ is None or type_.dtype not in ("float16", "float32", "float64"):
        return False
    return bool(np.spacing(np.dtype(type_.dtype).type(abs(offset))) >= _LAST_PLACE)
