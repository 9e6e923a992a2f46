"""The sizes of every value of a graph, and the contents of its small integer tensors, for all sizes of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import serde

from ...ir.operators.linear import is_convolution
from ...ir.sizes import Size, TooComplex, neighbour_products, number, parse_size, size_as_dimension, symbol
from ...ir.types import Dimension, TensorType
from ..onnx.nodes import BODY_DOMAIN, branches, is_flat_if, is_inferable, is_standard, serialize_for_inference
from ..onnx.typing import NAMELESS, dtype_of, infer_outputs
from .bounds import Bounds
from .contents import compute_contents
from .dimensions import compute_shapes, has_rule
from .floats import Ratio
from .other_domains import classical_shapes, contributed_shapes, infer_by_runtime, is_classical, is_of_another_domain
from .site import FOLLOWED, UNKNOWN, Contents, Equations, Shape, Site, Undecided, is_unknown

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


_FAILURES = (Undecided, TooComplex, ValueError, IndexError, TypeError, ZeroDivisionError)
"""Exceptions if nothing follows, or if attributes and operands do not fit the operator, which others report."""


@dataclass(frozen=True)
class Declared:
    """The symbols that inputs declare, as sizes, and their bounds."""

    symbols: Mapping[str, Size] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)

    def find_windows(self, nodes: Iterable[ir.Node], types: Mapping[str, TensorType]) -> dict[str, int]:
        """Note that a dimension over which a convolution slides is not empty: no runtime computes that."""
        windowed = {
            dimension
            for node in nodes
            if is_convolution(node.op_type) and is_standard(node) and node.inputs and node.inputs[0] is not None
            if (type_ := types.get(node.inputs[0].name or "")) is not None and type_.shape is not None
            for dimension in type_.shape[2:]
            if isinstance(dimension, str)
        }
        symbols = [size.atom for name in windowed if (size := self.symbols.get(name)) is not None]
        return {atom.text: 1 for atom in symbols if atom is not None and atom.kind == "symbol"}

    def with_lowest(self, lowest: Mapping[str, int]) -> Declared:
        """The declarations with these lower bounds of symbols, unless the user says otherwise."""
        return replace(self, bounds=Bounds({**lowest, **self.bounds.lowest}))

    def size_of(self, dimension: Dimension) -> Size | None:
        """The size of a dimension; None for a name that no input declares, and is no expression of such names or of
        those that they are expressions of (`k` of `4*k`)."""
        if isinstance(dimension, int):
            return number(dimension)
        if dimension in self.symbols or dimension == NAMELESS:
            return self.symbols.get(dimension)
        size = parse_size(dimension)
        names = set() if size is None else size.names()
        declared = self.symbols.keys() | {name for each in self.symbols.values() for name in each.names()}
        return size.replace(self.symbols) if size is not None and names and names <= declared else None


@dataclass
class SymbolicShapes:
    """The results of the evaluation: a shape for each value of known rank, contents of small integer tensors."""

    declared: Declared = field(default_factory=Declared)
    equations: Equations = field(default_factory=Equations, repr=False)
    shapes: dict[str, Shape] = field(default_factory=dict)
    contents: dict[str, Contents] = field(default_factory=dict)
    names: dict[Size, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, size in self.declared.symbols.items():
            self.names.setdefault(size, name)

    def name_of(self, size: Size) -> str:
        """The name of a size that is no number: of equal sizes one, of different sizes different ones."""
        if size not in self.names:
            name = str(size)
            while name in self.declared.symbols:
                name = f"({name})"
            self.names[size] = name
        return self.names[size]

    def dimension(self, size: Size | None) -> Dimension:
        """A size as a dimension of a type: a number, its name, or `NAMELESS` if nothing is known of it."""
        if size is None or is_unknown(size):
            return NAMELESS
        return self.name_of(size) if size.number is None else size.number

    def types(self, types: Mapping[str, TensorType]) -> dict[str, TensorType]:
        """The element types of `types` with the shapes that evaluation finds."""
        shaped = {name: type_ for name, type_ in types.items() if name in self.shapes and not type_.is_static}
        return {
            name: TensorType(type_.dtype, tuple(map(self.dimension, self.shapes[name])))
            for name, type_ in shaped.items()
        }

    def products(self) -> dict[tuple[Dimension, Dimension], Dimension]:
        """The products of neighbouring dimensions of each shape, one factor of which is no number, by their factors."""
        shapes = {tuple(None if s is None or is_unknown(s) else s for s in shape) for shape in self.shapes.values()}
        products = neighbour_products(shape for shape in shapes if any(s and s.number is None for s in shape))
        return {(self.dimension(a), self.dimension(b)): self.dimension(size) for (a, b), size in products.items()}

    def nonempty(self) -> set[str]:
        """The names of sizes that are never 0."""
        return {name for size, name in self.names.items() if self.declared.bounds.is_at_least(size, 1)}

    def empty(self) -> set[str]:
        """The names of sizes that may be 0 if all symbols are at least 1, of which the user says no less."""
        return {name for size, name in self.names.items() if self.declared.bounds.may_be_empty(size)}

    def constants(self, types: Mapping[str, TensorType]) -> dict[str, np.ndarray[Any, Any]]:
        """Contents that are the same for all sizes, as arrays of their element types."""
        constants = {}
        for name, content in self.contents.items():
            numbers = [e.number if isinstance(e, (Size, Ratio)) else e for e in content.flat]
            if None not in numbers:
                constants[name] = np.asarray(numbers, types[name].dtype).reshape(content.shape)
        return constants


def always_computed(graph: ir.Graph) -> frozenset[ir.Node]:
    """The nodes that every run of a graph computes: not those that only a branch or an iteration may need."""
    nodes: set[ir.Node] = set()
    waiting = [output.producer() for output in graph.outputs]
    while waiting:
        node = waiting.pop()
        if node is None or node in nodes:
            continue
        nodes.add(node)
        inputs = node.inputs if node.domain != BODY_DOMAIN else node.inputs[:1] if node.op_type == "If" else ()
        waiting += [value.producer() for value in inputs if value is not None]
    return frozenset(nodes)


def evaluate_shapes(
    graph: ir.Graph, types: Mapping[str, TensorType], constants: Arrays, declared: Declared, opset: int
) -> SymbolicShapes:
    """Evaluate a graph in order. `types` are those that are known already; a name in them that `declared` lacks
    has no meaning.

    Operators that take some sizes only show that sizes are equal (Concat, MatMul) or large enough (Gather, Conv); then
    evaluation begins again.
    """
    equations, certain = Equations(), always_computed(graph)
    equations.lowest.update(declared.find_windows(certain, types))
    said = declared
    for _ in range(_MOST_PASSES):
        declared = said.with_lowest(equations.lowest)
        count = len(equations)
        result = SymbolicShapes(declared, equations)
        for name, type_ in types.items():
            if type_.is_static:
                result.shapes[name] = tuple(map(declared.size_of, type_.shape or ()))
        for value in graph.inputs:
            _complete(result, types, value, None)
        for node in graph:
            if not all(output.name in constants for output in node.outputs if output.name):
                known_here = equations if node in certain else equations.kept_out()
                first = types.get(node.outputs[0].name or "") if node.outputs else None
                dtype = first.dtype if first is not None else ""
                site = Site(node, dtype, result.shapes, result.contents, constants, declared.bounds, known_here, opset)
                _evaluate_node(site, result, types, graph.opset_imports)
        if len(equations) == count:
            break
    return result


_MOST_PASSES = 4
"""Evaluations of a graph: sizes that are found equal in the last one only stay different, which is no error."""


def _evaluate_node(
    site: Site, result: SymbolicShapes, types: Mapping[str, TensorType], opsets: Mapping[str, int]
) -> None:
    node = site.node
    if not all(output.name in result.shapes for output in node.outputs if output.name):
        is_known = is_inferable(node)
        computed = _shapes_of_outputs(site, types) if is_known else _shapes_of_others(site, result, types, opsets)
        for index, output in enumerate(node.outputs):
            _complete(result, types, output, computed[index] if index < len(computed) else None)
    if site.dtype in FOLLOWED and is_standard(node) and _reads_sizes(site):
        try:
            contents = compute_contents(site)
        except _FAILURES:
            return
        for output, content in zip(node.outputs, contents, strict=False):
            if output.name and content is not None:
                result.contents[output.name] = content
                result.shapes[output.name] = tuple(map(number, content.shape))


def _reads_sizes(site: Site) -> bool:
    """Whether a node may compute contents: from a shape, or from others that are known."""
    reads = (value is not None and value.name in site.contents for value in site.node.inputs)
    return site.node.op_type in ("Shape", "Size") or any(reads)


def _shapes_of_outputs(site: Site, types: Mapping[str, TensorType]) -> list[Shape | None]:
    try:
        return list(compute_shapes(site))
    except _FAILURES:
        return [] if has_rule(site.node.op_type) else _shapes_by_onnx(site, types)


def _shapes_of_others(
    site: Site, result: SymbolicShapes, types: Mapping[str, TensorType], opsets: Mapping[str, int]
) -> list[Shape | None]:
    """The shapes of the outputs of a node for which ONNX infers nothing."""
    if not is_of_another_domain(site.node):
        return _shapes_of_branches(site.node, result)
    try:
        return list(classical_shapes(site) if is_classical(site.node) else contributed_shapes(site))
    except _FAILURES:
        return _shapes_by_runtime(site, types, opsets)


def _shapes_of_branches(node: ir.Node, result: SymbolicShapes) -> list[Shape | None]:
    """The outputs of an If as both branches give them, if their ranks agree."""
    shapes: list[Shape | None] = []
    for then, otherwise in zip(*branches(node), strict=True) if is_flat_if(node) else ():
        one, other = result.shapes.get(then.name or ""), result.shapes.get(otherwise.name or "")
        if one is None or other is None or len(one) != len(other):
            shapes.append(None)
        else:
            shapes.append(tuple(a if a == b else None for a, b in zip(one, other, strict=True)))
    return shapes


def _complete(result: SymbolicShapes, types: Mapping[str, TensorType], value: ir.Value, computed: Shape | None) -> None:
    """Join the dimensions of a value's type and of the evaluation; unknown ones get a symbol of their own."""
    name = value.name or ""
    type_ = types.get(name)
    typed = None
    if type_ is not None and type_.shape is not None:
        typed = tuple(map(result.declared.size_of, type_.shape))
    if not name or name in result.shapes or (typed is None and computed is None):
        return
    if typed is None or computed is None or len(typed) != len(computed):
        joined = computed if typed is None else typed
    else:
        joined = tuple(c if t is None else t for t, c in zip(typed, computed, strict=True))
    result.shapes[name] = tuple(
        result.equations.plainest(symbol(f"{UNKNOWN}{name}.{axis}") if size is None else size)
        for axis, size in enumerate(joined or ())
    )


def _shapes_by_runtime(
    site: Site, types: Mapping[str, TensorType], opsets: Mapping[str, int]
) -> list[Shape | None]:
    """The shapes that ONNX Runtime infers from those of the operands, whose sizes are symbols to it."""
    names = [value.name for value in site.node.inputs if value is not None and value.name]
    if any(name not in types or name not in site.shapes for name in names):
        return []
    sizes: dict[str, Size] = {}
    operands = {name: _with_texts(types[name], site.shapes[name], sizes) for name in names}
    outputs = infer_by_runtime(serde.serialize_node(site.node), operands, site.constants, opsets)
    shapes = [outputs[o.name].shape if o.name in outputs else None for o in site.node.outputs]
    return [_sizes_of(shape, sizes) for shape in shapes]


def _sizes_of(shape: tuple[Dimension, ...] | None, sizes: Mapping[str, Size]) -> Shape | None:
    return None if shape is None else tuple(number(d) if isinstance(d, int) else sizes.get(d) for d in shape)


def _with_texts(type_: TensorType, shape: Shape, sizes: dict[str, Size]) -> TensorType:
    """The type with the texts of sizes as dimensions, which `sizes` then has."""
    texts: list[Dimension] = []
    for size in shape:
        if size is None:
            texts.append(NAMELESS)
        else:
            texts.append(size_as_dimension(size))
            sizes[str(size)] = size
    return TensorType(type_.dtype, tuple(texts))


def _shapes_by_onnx(site: Site, types: Mapping[str, TensorType]) -> list[Shape | None]:
    """The shapes that ONNX infers from those of the operands, whose sizes are symbols to it."""
    proto = serialize_for_inference(site.node)
    names = [name for name in proto.input if name]
    if any(name not in types or name not in site.shapes for name in names):
        return []
    sizes: dict[str, Size] = {}
    known_types = types if is_standard(site.node) else {n: TensorType("float32", types[n].shape) for n in names}
    protos = {name: _proto(known_types[name], site.shapes[name], sizes) for name in names}
    outputs = infer_outputs(proto, protos, site.constants, site.opset) or {}
    shapes = [outputs[name].shape if name in outputs else None for name in proto.output]
    return [_sizes_of(shape, sizes) for shape in shapes]


def _proto(type_: TensorType, shape: Shape, sizes: dict[str, Size]) -> onnx.TypeProto:
    texts = _with_texts(type_, shape, sizes).shape or ()
    named = [None if dimension == NAMELESS else dimension for dimension in texts]
    return onnx.helper.make_tensor_type_proto(int(dtype_of(type_.dtype)), named)
