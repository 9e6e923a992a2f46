"""Operators that ONNX defines by other ones, as local functions: ``Model -> Model``.

Attention, losses, windows and others are functions in ONNX's standard. Those that no row of the operator table
describes become calls of local functions, which are inlined like those of the model itself.

Some operators of classical machine learning become functions of ONNX's operators in the same way, so that tables
of labels, linear models and encodings are kernels, and rules see them:

    LinearRegressor(X) => Gemm(X, coefficients, intercepts); ArrayFeatureExtractor(X, i) => Gather(X, i)

An Einsum becomes matrix products:

    bhls,bshp->blhp: Y[b, l, h, p] = sum over s of A[b, h, l, s] * B[b, s, h, p]
 => A, Transpose(B): MatMul of [b, h, l, s] and [b, h, s, p]; Transpose

Operands are joined two by two in the order of numpy's `einsum_path`. An axis of both that the rest needs is a batch, an
axis of both that nothing else needs is summed, and several axes that only one has become one by a Reshape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod
from string import ascii_letters
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import defs, helper, numpy_helper
from onnx_ir import serde

from ...ir.operators import OPERATORS
from ...ir.types import Dimension, TensorType
from ..onnx.model import Model
from ..onnx.nodes import RANDOM_OPERATORS, attribute_of, constant_node, is_standard
from ..onnx.runtime_operators import MEAN_AXES_INPUT
from ..onnx.typing import type_proto
from ..shapes.other_domains import is_classical
from .fourier import dft_function, stft_function
from .quantised_functions import compound_function, is_compound

_FREE = 32
"""The size of a dynamic dimension for the order of the products."""
_ALLOWS_ZERO = 14
"""The first opset in which a Reshape may make an axis of no elements that its operand does not have there."""


@dataclass(frozen=True)
class _Term:
    """A value, and a letter for each of its axes."""

    name: str
    letters: str


def einsum_function(
    equation: str, shapes: Sequence[tuple[Dimension, ...]], opset: int
) -> onnx.FunctionProto | None:
    """The function that computes an Einsum of operands of these shapes.

    None if one operand has a letter twice (a diagonal) or sizes of a letter differ (broadcasting).
    """
    letters = _letters_of(equation, [len(shape) for shape in shapes])
    if letters is None or opset < 13:  # before, ReduceSum and Unsqueeze have their axes as attributes
        return None
    operands, result = letters
    sizes: dict[str, Dimension] = {}
    for own, shape in zip(operands, shapes, strict=True):
        for letter, size in zip(own, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return None
    if any(len(set(own)) < len(own) for own in (*operands, result)) or not set(result) <= sizes.keys():
        return None
    names = [f"x{number}" for number in range(len(operands))]
    terms = [_Term(name, own) for name, own in zip(names, operands, strict=True)]
    parts = _Parts(sizes, result, tuple(terms), opset)
    for pair in _order(terms, result, sizes):
        chosen = [terms.pop(place) for place in sorted(pair, reverse=True)][::-1]
        while len(chosen) > 1:
            others = "".join(term.letters for term in (*terms, *chosen[2:]))
            chosen[:2] = [parts.join(chosen[0], chosen[1], others + result)]
        terms += chosen
    parts.finish(parts.sum_out(terms[0], result))
    return helper.make_function("", "einsum", names, ["y"], parts.nodes, [helper.make_opsetid("", opset)])


def _letters_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """The letters of the operands and of the result, an ellipsis written out; None if they fit no ranks."""
    left, _, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        return None
    spare = [letter for letter in ascii_letters if letter not in equation]
    hidden = [rank - len(text.replace("...", "")) for text, rank in zip(texts, ranks, strict=True)]
    if any(count < 0 or (count and "..." not in text) for text, count in zip(texts, hidden, strict=True)):
        return None
    dots = "".join(spare[: max(hidden)])
    operands = [text.replace("...", dots[len(dots) - count :]) for text, count in zip(texts, hidden, strict=True)]
    once = sorted(letter for letter in set(left) if letter.isalpha() and left.count(letter) == 1)
    return operands, right.replace("...", dots) if "->" in equation else dots + "".join(once)


def _order(terms: Sequence[_Term], result: str, sizes: dict[str, Dimension]) -> list[tuple[int, ...]]:
    """The places of the operands that are joined one after the other; each result becomes the last operand."""
    shapes = [tuple(size if isinstance(size := sizes[x], int) else _FREE for x in term.letters) for term in terms]
    arrays = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    equation = ",".join(term.letters for term in terms) + "->" + result
    path, _ = np.einsum_path(equation, *arrays, optimize="optimal" if len(terms) < 6 else "greedy")
    return [tuple(pair) for pair in path[1:]]


@dataclass(frozen=True)
class _Parts:
    """The nodes of the function so far."""

    sizes: dict[str, Dimension]
    result: str
    operands: tuple[_Term, ...]
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def join(self, left: _Term, right: _Term, needed: str) -> _Term:
        """The product of two operands, summed over the axes that they share and nothing else needs."""
        left, right = self.sum_out(left, right.letters + needed), self.sum_out(right, left.letters + needed)
        shared = [x for x in left.letters if x in right.letters]
        batch = "".join(x for x in shared if x in needed)
        summed = "".join(x for x in shared if x not in needed)
        rows, columns = ("".join(x for x in t.letters if x not in shared) for t in (left, right))
        if not summed:
            first = self._spread(self._transpose(left, batch + rows), len(batch + rows), len(columns))
            second = self._spread(self._transpose(right, batch + columns), len(batch), len(rows))
            return _Term(self._add("Mul", first.name, second.name), batch + rows + columns)
        first = self._merge(self._transpose(left, batch + rows + summed), batch, rows, summed)
        second = self._merge(self._transpose(right, batch + summed + columns), batch, summed, columns)
        product = _Term(self._add("MatMul", first.name, second.name), batch + rows + columns)
        return product if len(rows) == len(columns) == 1 else self._reshape(product, batch, rows + columns)

    def sum_out(self, term: _Term, needed: str) -> _Term:
        """The sum over all axes that are not needed."""
        axes = [axis for axis, letter in enumerate(term.letters) if letter not in needed]
        if not axes:
            return term
        kept = "".join(letter for letter in term.letters if letter in needed)
        return _Term(self._add("ReduceSum", term.name, self._numbers(axes), keepdims=0), kept)

    def finish(self, term: _Term) -> None:
        """The axes in the order of the result, under its name."""
        self.nodes.append(helper.make_node("Identity", [self._transpose(term, self.result).name], ["y"]))

    def _transpose(self, term: _Term, letters: str) -> _Term:
        order = [term.letters.index(letter) for letter in letters]
        if order == sorted(order):
            return replace(term, letters=letters)
        return _Term(self._add("Transpose", term.name, perm=order), letters)

    def _spread(self, term: _Term, place: int, count: int) -> _Term:
        """Axes of one element at a place."""
        if not count or place == 0:
            return term  # axes in front broadcast by themselves
        axes = self._numbers(range(place, place + count))
        return _Term(self._add("Unsqueeze", term.name, axes), term.letters)

    def _merge(self, term: _Term, batch: str, *groups: str) -> _Term:
        """Each group of axes as one."""
        if all(len(group) == 1 for group in groups):
            return term
        return _Term(self._shape(term.name, batch, groups), term.letters)

    def _reshape(self, term: _Term, batch: str, rest: str) -> _Term:
        return _Term(self._shape(term.name, batch, rest), term.letters)

    def _shape(self, name: str, batch: str, groups: Sequence[str]) -> str:
        """A Reshape that keeps the axes of the batch, with each of the groups of letters as one axis."""
        free = [group for group in groups if not self._is_fixed(group)]
        if len(free) <= 1 and self._is_fixed(batch):
            sizes = [-1 if group in free else self._fixed_size(group) for group in groups]
            return self._add("Reshape", name, self._numbers([*map(self._fixed_size, batch), *sizes]))
        if not free:
            return self._add("Reshape", name, self._numbers([*(0 for _ in batch), *map(self._fixed_size, groups)]))
        target = self._add("Concat", *map(self._size_of, (*batch, *groups)), axis=0)
        return self._add("Reshape", name, target, **({"allowzero": 1} if self.opset >= _ALLOWS_ZERO else {}))

    def _is_fixed(self, group: str) -> bool:
        return all(isinstance(self.sizes[letter], int) for letter in group)

    def _fixed_size(self, group: str) -> int:
        return prod(int(self.sizes[letter]) for letter in group)

    def _size_of(self, group: str) -> str:
        """The elements of a group of letters, by the shapes of the operands."""
        if self._is_fixed(group):
            return self._numbers([self._fixed_size(group)])
        sizes = []
        for letter in group:
            operand = next(term for term in self.operands if letter in term.letters)
            shape = self._add("Shape", operand.name)
            sizes.append(self._add("Gather", shape, self._numbers([operand.letters.index(letter)])))
        return reduce(lambda one, other: self._add("Mul", one, other), sizes)

    def _numbers(self, numbers: Sequence[int]) -> str:
        return self._add("Constant", value=numpy_helper.from_array(np.asarray(numbers, np.int64)))

    def _add(self, operator: str, *operands: str, **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(operands), [name], **attributes))
        return name


_LEAST_OPSET = 13
"""The version since which axes of Unsqueeze and ReduceSum are inputs."""
_OF_ANY_RANK = frozenset({"ArrayFeatureExtractor", "LabelEncoder"})
_TYPES = {"Imputer": "float32", "LabelEncoder": "int64"}
"""The only element type of an operand that is taken, by operator."""
_LONGEST_TABLE = 1 << 16
"""Integers between the smallest and the largest key of a table of labels."""
_TRANSFORMS = {"NONE": "Identity", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}
"""Transforms of scores."""


def is_expandable_classical(node: ir.Node) -> bool:
    """Whether `classical_function` takes a node of that operator set, by its attributes."""
    return is_classical(node) and node.op_type in _WRITERS and _WRITERS[node.op_type](node, 2) is not None


def classical_function(node: ir.Node, opset: int, type_: TensorType | None) -> onnx.FunctionProto | None:
    """The function of a node whose first input has that type; None if there is none of its rank."""
    if type_ is None or type_.shape is None or opset < _LEAST_OPSET:
        return None
    if len(type_.shape) != 2 and node.op_type not in _OF_ANY_RANK:
        return None
    if type_.dtype != _TYPES.get(node.op_type, type_.dtype):
        return None
    nodes = _WRITERS[node.op_type](node, len(type_.shape))
    if nodes is None:
        return None
    inputs = [f"x{number}" for number in range(len(node.inputs))]
    outputs = [f"y{number}" for number in range(len(node.outputs))]
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_function("eqfuse.classical", node.op_type, inputs, outputs, nodes, opsets)


Nodes = list[onnx.NodeProto]


def _extract(node: ir.Node, rank: int) -> Nodes:
    """The columns of indices, of which ONNX Runtime takes any number; a row of them if the operand has one axis."""
    del node
    nodes = [constant_node("all", [-1], "int64"), helper.make_node("Reshape", ["x1", "all"], ["places"])]
    nodes.append(helper.make_node("Gather", ["x0", "places"], ["columns"], axis=-1))
    nodes.append(constant_node("first", [0], "int64"))
    last = ("Unsqueeze", ["columns", "first"]) if rank == 1 else ("Identity", ["columns"])
    return [*nodes, helper.make_node(*last, ["y0"])]


def _scores(node: ir.Node, rows: int) -> Nodes | None:
    """`scores`, of the coefficients of a number of rows."""
    coefficients = np.asarray(attribute_of(node, "coefficients", ()), "float32")
    intercepts = np.asarray(attribute_of(node, "intercepts", ()), "float32")
    if not rows or not coefficients.size or coefficients.size % rows or intercepts.size not in (0, rows):
        return None
    bias = intercepts if intercepts.size else np.zeros(rows, "float32")
    return [
        helper.make_node("Cast", ["x0"], ["x"], to=onnx.TensorProto.FLOAT),
        constant_node("coefficients", coefficients.reshape(rows, -1), "float32"),
        constant_node("intercepts", bias, "float32"),
        helper.make_node("Gemm", ["x", "coefficients", "intercepts"], ["scores"], transB=1),
    ]


def _regress(node: ir.Node, rank: int) -> Nodes | None:
    """Without a transform: for one target, ONNX Runtime takes none but PROBIT."""
    del rank
    scores = _scores(node, attribute_of(node, "targets", 1))
    if scores is None or attribute_of(node, "post_transform", "NONE") != "NONE":
        return None
    return [*scores, helper.make_node("Identity", ["scores"], ["y0"])]


def _classify(node: ir.Node, rank: int) -> Nodes | None:
    """A row of coefficients for each label; a single row has a threshold."""
    del rank
    labels = attribute_of(node, "classlabels_ints", ())
    scores = _scores(node, len(labels)) if len(labels) > 1 else None
    transform = _TRANSFORMS.get(attribute_of(node, "post_transform", "NONE"))
    if scores is None or transform is None:
        return None
    last = helper.make_node(transform, ["scores"], ["y1"])
    best = helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0)
    label = helper.make_node("Gather", ["labels", "best"], ["y0"])
    return [*scores, constant_node("labels", labels, "int64"), best, label, last]


def _encode(node: ir.Node, rank: int) -> Nodes | None:
    """A column for each category; none is 1 for a value of no category."""
    del rank
    categories = attribute_of(node, "cats_int64s", ())
    if not len(categories) or not attribute_of(node, "zeros", 1):
        return None
    return [
        helper.make_node("Cast", ["x0"], ["x"], to=onnx.TensorProto.INT64),
        constant_node("last", [-1], "int64"),
        helper.make_node("Unsqueeze", ["x", "last"], ["rows"]),
        constant_node("categories", categories, "int64"),
        helper.make_node("Equal", ["rows", "categories"], ["found"]),
        helper.make_node("Cast", ["found"], ["y0"], to=onnx.TensorProto.FLOAT),
    ]


def _impute(node: ir.Node, rank: int) -> Nodes | None:
    """Another number for NaN, or for the one that stands for missing values."""
    del rank
    values = attribute_of(node, "imputed_value_floats", ())
    replaced = attribute_of(node, "replaced_value_float", 0.0)
    if not len(values):
        return None
    find = helper.make_node("IsNaN", ["x0"], ["missing"])
    if not np.isnan(replaced):
        find = helper.make_node("Equal", ["x0", "replaced"], ["missing"])
    return [
        constant_node("replaced", replaced, "float32"),
        find,
        constant_node("values", values, "float32"),
        helper.make_node("Where", ["missing", "values", "x0"], ["y0"]),
    ]


def _relabel(node: ir.Node, rank: int) -> Nodes | None:
    """The values from the smallest key to the largest, and the default in the gaps between them and at both ends."""
    del rank
    keys = attribute_of(node, "keys_int64s", ())
    name, dtype = ("float", "float32") if "values_floats" in node.attributes else ("int64", "int64")
    values = attribute_of(node, f"values_{name}s", ())
    if not len(keys) or len(keys) != len(values) or max(keys) - min(keys) > _LONGEST_TABLE:
        return None
    low, high = min(keys) - 1, max(keys) + 1
    ends = np.iinfo("int64")
    if low < ends.min or high > ends.max:
        return None
    table = np.full(high - low + 1, attribute_of(node, f"default_{name}", -0.0 if name == "float" else -1), dtype)
    for key, value in zip(reversed(keys), reversed(values), strict=True):  # the first of equal keys counts
        table[key - low] = value
    return [
        constant_node("low", low, "int64"),
        constant_node("high", high, "int64"),
        helper.make_node("Max", ["x0", "low"], ["above"]),
        helper.make_node("Min", ["above", "high"], ["inside"]),
        helper.make_node("Sub", ["inside", "low"], ["place"]),
        constant_node("table", table, dtype),
        helper.make_node("Gather", ["table", "place"], ["y0"]),
    ]


_WRITERS: dict[str, Callable[[ir.Node, int], Nodes | None]] = {
    "ArrayFeatureExtractor": _extract, "LinearRegressor": _regress, "LinearClassifier": _classify,
    "OneHotEncoder": _encode, "Imputer": _impute, "LabelEncoder": _relabel,
}  # fmt: skip


DOMAIN = "eqfuse.expanded"
EINSUM, CLIP, NORMALIZATION = "Einsum", "Clip", "MeanVarianceNormalization"
_FOURIER = {"STFT": stft_function, "DFT": dft_function}
_BOUNDS = (("Max", "min"), ("Min", "max"))
"""The operators that a Clip before opset 11 stands for, each with its attribute."""
_BROADCASTING = 8
"""The opset since which Max and Min repeat a number."""
_KEPT = RANDOM_OPERATORS | {"Range", "SequenceMap"}
"""Operators that stay: their parts are of no use."""


def list_expandable(model: Model) -> list[ir.Node]:
    """The nodes that ONNX defines by other operators, and the operator table does not describe."""
    return [node for node in model.ir.graph.all_nodes() if _is_expandable(node)]


def expand_operators(model: Model, types: Mapping[str, TensorType]) -> Model:
    """A model in which the expandable nodes are calls of local functions, as far as the types of their inputs tell."""
    result = Model(model.ir.clone(), model.path, lowest=model.lowest)
    for number, node in enumerate(list_expandable(result)):
        function = _function_of(node, model.opset, types)
        if function is None:
            continue
        function.domain, function.name = DOMAIN, f"{node.op_type}_{number}"
        computed = {output for inner in function.node for output in inner.output}
        while function.output and function.output[-1] not in computed:  # outputs that this node does not ask for
            del function.output[-1]
        if not computed.issuperset(function.output):
            continue
        defined = serde.deserialize_function(function)
        result.ir.functions[defined.identifier()] = defined
        result.ir.opset_imports.setdefault(DOMAIN, 1)
        for domain, version in defined.opset_imports.items():
            result.ir.opset_imports.setdefault(domain, version)
        if is_standard(node):
            node.attributes.update({a.name: a for a in _defaults(node, model.opset) if a.name not in node.attributes})
        for name in [name for name in node.attributes if name not in defined.attributes]:
            del node.attributes[name]
        node.domain, node.op_type = DOMAIN, defined.name
        for place, output in enumerate(node.outputs):  # a result that nothing reads needs a name once it is inlined
            output.name = output.name or f"{DOMAIN}.{defined.name}.{place}"
    return result


def _is_expandable(node: ir.Node) -> bool:
    if is_expandable_classical(node) or is_compound(node):
        return True
    if is_standard(node) and node.op_type in (EINSUM, NORMALIZATION, *_FOURIER):
        return True
    if is_standard(node) and node.op_type == CLIP and node.attributes:
        return True
    if not is_standard(node) or node.op_type in OPERATORS or node.op_type in _KEPT or not defs.has(node.op_type):
        return False
    schema: Any = defs.get_schema(node.op_type)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _function_of(node: ir.Node, opset: int, types: Mapping[str, TensorType]) -> onnx.FunctionProto | None:
    """The function of a node, for the model's version; None if ONNX has none for it."""
    if is_classical(node):
        return classical_function(node, opset, types.get(node.inputs[0].name or "") if node.inputs[0] else None)
    if is_compound(node):
        return compound_function(node, opset, types)
    if node.op_type == EINSUM:
        return _einsum_of(node, opset, types)
    if node.op_type in _FOURIER:
        return _FOURIER[node.op_type](node, opset, types, DOMAIN)
    if node.op_type == CLIP:
        return _clip_of(node, opset, types)
    if node.op_type == NORMALIZATION:
        return _normalization_of(node, opset)
    schema: Any = defs.get_schema(node.op_type, opset)  # onnx leaves methods out of its stub
    function = onnx.FunctionProto()
    versions = [v for v in schema.function_opset_versions if v <= opset]
    if versions:
        function.ParseFromString(schema.get_function_with_opset_version(max(versions)))
        return function if _fits(function, opset) else None
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    operands = [_type(value, types) for value in node.inputs]
    if not versions or None in operands:
        return None
    content = [t.SerializeToString() for t in operands if t is not None]
    call = serde.serialize_node(node).SerializeToString()
    function.ParseFromString(schema.get_context_dependent_function_with_opset_version(max(versions), call, content))
    return function if _fits(function, opset) else None


def _einsum_of(node: ir.Node, opset: int, types: Mapping[str, TensorType]) -> onnx.FunctionProto | None:
    """An Einsum as products; None if the shape of an operand is not known, or there are no such products."""
    operands = [types.get(value.name or "") for value in node.inputs if value is not None]
    shapes = [type_.shape for type_ in operands if type_ is not None and type_.shape is not None]
    if len(shapes) < len(node.inputs):
        return None
    return einsum_function(node.attributes["equation"].as_string(), shapes, opset)


def _normalization_of(node: ir.Node, opset: int) -> onnx.FunctionProto:
    """A normalisation to the mean 0 and the variance 1 as ONNX Runtime computes it: `d / sqrt(mean(d * d))` of the
    deviations `d` from the mean; ONNX's own function subtracts squares, and loses most digits by that."""
    axes = list(node.attributes["axes"].as_ints()) if "axes" in node.attributes else list(_NORMALIZED_AXES)
    make, mean_inputs, attributes = onnx.helper.make_node, ["axes"], dict[str, Any]()
    steps = [make("Constant", [], ["axes"], value=onnx.numpy_helper.from_array(np.asarray(axes, np.int64)))]
    if opset < MEAN_AXES_INPUT:
        steps, mean_inputs, attributes = [], [], {"axes": axes}
    steps += [
        make("ReduceMean", ["x", *mean_inputs], ["mean"], **attributes),
        make("Sub", ["x", "mean"], ["deviation"]),
        make("Mul", ["deviation", "deviation"], ["square"]),
        make("ReduceMean", ["square", *mean_inputs], ["variance"], **attributes),
        make("Sqrt", ["variance"], ["spread"]),
        make("Div", ["deviation", "spread"], ["y"]),
    ]
    return onnx.helper.make_function(
        DOMAIN, NORMALIZATION, ["x"], ["y"], steps, [onnx.helper.make_opsetid("", opset)]
    )


_NORMALIZED_AXES = 0, 2, 3
"""The axes that a MeanVarianceNormalization takes together by default."""


def _clip_of(node: ir.Node, opset: int, types: Mapping[str, TensorType]) -> onnx.FunctionProto | None:
    """A Clip whose bounds are attributes as a maximum and a minimum; None if these do not broadcast."""
    type_ = _type(node.inputs[0], types)
    if type_ is None or opset < _BROADCASTING:
        return None
    dtype, value, steps = onnx.helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type), "x", []
    for operator, name in _BOUNDS:
        if name in node.attributes:
            bound = onnx.numpy_helper.from_array(np.asarray(node.attributes[name].as_float(), dtype), name)
            steps.append(onnx.helper.make_node("Constant", [], [name], value=bound))
            steps.append(onnx.helper.make_node(operator, [value, name], [value := f"{name}_bounded"]))
    steps.append(onnx.helper.make_node("Identity", [value], ["y"]))
    return onnx.helper.make_function(DOMAIN, CLIP, ["x"], ["y"], steps, [onnx.helper.make_opsetid("", opset)])


def _fits(function: onnx.FunctionProto, opset: int) -> bool:
    """Whether the operators of a function mean the same in the model's version; then it gets this version."""
    for entry in function.opset_import:
        if entry.domain:
            continue
        if not all(_means_the_same(node, entry.version, opset) for node in function.node if node.domain == ""):
            return False
        entry.version = opset
    return True


def _means_the_same(node: onnx.NodeProto, written: int, opset: int) -> bool:
    """Whether a node of one version is one of another: a version that adds types, attributes or inputs changes none."""
    old, new = (defs.get_schema(node.op_type, version) for version in (written, opset))
    if old.since_version == new.since_version:
        return True
    names = [port.name for port in old.inputs]
    has_inputs = [port.name for port in new.inputs][: len(names)] == names
    return has_inputs and all(
        name in new.attributes and new.attributes[name].default_value == attribute.default_value
        for name, attribute in old.attributes.items()
    )


def _type(value: ir.Value | None, types: Mapping[str, TensorType]) -> onnx.TypeProto | None:
    """The type of an input, an empty one if it is absent; None if it is not known."""
    if value is None:
        return onnx.TypeProto()
    type_ = types.get(value.name or "")
    return None if type_ is None else type_proto(type_)


def _defaults(node: ir.Node, opset: int) -> list[ir.Attr]:
    attributes = defs.get_schema(node.op_type, opset).attributes.values()
    return [serde.deserialize_attribute(a.default_value) for a in attributes if a.default_value.type]
