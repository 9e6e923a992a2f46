"""One loop for the element types and attributes of a node: ``node, element types -> C text``."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from ..base.errors import LoweringError
from .source_files import loop_files, loop_text

ENSEMBLES = {"TreeEnsembleClassifier": "class", "TreeEnsembleRegressor": "target"}
"""Operators of such ensembles, and the stem of the attributes that have the weights of their leaves."""
_STRICT = 1
"""A comparison that has no threshold itself is one with the nearest number below it: x < t is x <= t'."""
_MODES = {b"BRANCH_LEQ": (0, False), b"BRANCH_LT": (_STRICT, False), b"BRANCH_GT": (0, True),
          b"BRANCH_GTE": (_STRICT, True)}  # fmt: skip
"""How a comparison becomes x <= t: by which t, and with children exchanged or not."""
TRANSFORMS = (b"NONE", b"LOGISTIC", b"SOFTMAX")
"""What the loops of classifiers compute of scores."""
_MOST_NODES = 1 << 20
"""More of them make a text that a C compiler takes minutes for."""
_MOST_SCORES = 1 << 12
"""Classes or targets, of which the loop has a flag for each of its rows on the stack."""
FEWEST_CLASSES = 2
_STEP, _TAKES_NAN = 1, 2
"""Bits of a node: it has a second child; NaN goes to the first child."""
_Key = tuple[int, int]
"""A tree and a node of it."""


@dataclass
class _Packing:
    """Nodes in the order of the array; `weights` are those of leaves, as pairs of a class or target and a number."""

    values: Mapping[str, Any]
    places: Mapping[_Key, int]
    weights: Mapping[_Key, Sequence[tuple[int, float]]]

    def __post_init__(self) -> None:
        numbers = np.asarray(self.values["nodes_values"], np.float32)
        below = np.nextafter(numbers, np.float32(-np.inf))
        self.thresholds = [each.view(np.int32).tolist() for each in (numbers, below)]
        self.nodes: list[tuple[int, int, int, int]] = []
        self.starts = [0]
        self.numbers: list[int] = []
        self.factors: list[float] = []

    def add_tree(self, root: _Key) -> None:
        """Append the nodes of a tree. Raises LoweringError if it is none."""
        first, queue, seen = len(self.nodes), deque([root]), 1
        while queue:
            key = queue.popleft()
            place = self._place(key)
            mode = self.values["nodes_modes"][place]
            if mode == b"LEAF":
                self.nodes.append((0, 0, len(self.nodes), 0))
            else:
                shift, is_exchanged = self._comparison(mode)
                children = [(key[0], self.values[f"nodes_{each}nodeids"][place]) for each in ("true", "false")]
                queue.extend(reversed(children) if is_exchanged else children)
                tracked = self.values.get("nodes_missing_value_tracks_true", ())
                takes_nan = bool(tracked[place]) != is_exchanged if place < len(tracked) else is_exchanged
                bits = _STEP | (_TAKES_NAN if takes_nan else 0)
                threshold = self.thresholds[shift][place]
                self.nodes.append((threshold, self.values["nodes_featureids"][place], first + seen, bits))
                seen += len(children)
            if seen > len(self.places):
                raise LoweringError("nodes of a tree are no tree")
            for number, factor in self.weights.get(key, ()):
                self.numbers.append(number)
                self.factors.append(factor)
            self.starts.append(len(self.numbers))

    def _place(self, key: _Key) -> int:
        if key not in self.places:
            raise LoweringError(f"tree {key[0]} has no node {key[1]}")
        return self.places[key]

    @staticmethod
    def _comparison(mode: bytes) -> tuple[int, bool]:
        if mode not in _MODES:
            raise LoweringError(f"nodes that compare by {mode.decode()}")
        return _MODES[mode]


def pack_trees(operator: str, values: Mapping[str, Any], dtypes: Sequence[str | None]) -> dict[str, Any]:
    """The attributes of an ensemble with arrays of its packed nodes in the place of those that describe its trees.

    All nodes are in one array, each tree breadth first: ``x[feature] <= threshold ? first : first + 1``. The two
    children of a node are neighbours, so a walk needs no branch. A leaf is its own child, for trees that are walked
    side by side have leaves at different depths.

    `nodes` has four words a node (the bits of the threshold, the feature, the first child, bits), `roots` the trees'
    first nodes, `starts` where the weights of a node begin among `numbers` and `factors`. Raises LoweringError for an
    ensemble that the loop does not compute.
    """
    stem = ENSEMBLES[operator]
    if dtypes[0] != "float32" or values["post_transform"] not in TRANSFORMS:
        raise LoweringError(f"{operator} of {dtypes[0]} with {values['post_transform'].decode()}")
    if any(name.endswith("_as_tensor") for name in values) or values.get("aggregate_function", b"SUM") != b"SUM":
        raise LoweringError(f"{operator} in double precision, or of no sum")
    if values.get("classlabels_strings"):
        raise LoweringError("labels that are text")
    keys = list(zip(values["nodes_treeids"], values["nodes_nodeids"], strict=True))
    if len(keys) > _MOST_NODES:
        raise LoweringError(f"{len(keys)} nodes")
    scored = len(values["classlabels_int64s"]) if stem == "class" else values["n_targets"]
    ids = values[f"{stem}_ids"]
    if not 0 < scored <= _MOST_SCORES or not all(0 <= number < scored for number in ids):
        raise LoweringError(f"{operator} of {scored} scores")
    if stem == "class" and scored < FEWEST_CLASSES:
        raise LoweringError("one class")
    if any(feature < 0 for feature in values["nodes_featureids"]):
        raise LoweringError("a feature below 0")
    weights = defaultdict(list)
    columns = (values[f"{stem}_{each}"] for each in ("treeids", "nodeids", "ids", "weights"))
    for tree, node, number, factor in zip(*columns, strict=True):
        weights[tree, node].append((number, factor))
    packing = _Packing(values, {key: place for place, key in enumerate(keys)}, weights)
    roots = []
    for place, key in enumerate(keys):
        if not place or keys[place - 1][0] != key[0]:
            roots.append(len(packing.nodes))
            packing.add_tree(key)
    kept = {k: v for k, v in values.items() if not k.startswith(("nodes_", f"{stem}_"))}
    words: dict[str, Sequence[Any]] = {
        "nodes": packing.nodes, "roots": roots, "starts": packing.starts, "numbers": packing.numbers,
    }  # fmt: skip
    return {
        **kept, **{name: _tensor(numbers, np.int32) for name, numbers in words.items()},
        "factors": _tensor(packing.factors, np.float32),
        "features": max((each[1] for each in packing.nodes), default=0),
        "counted": len(set(ids)), "is_positive": int(all(weight >= 0 for weight in values[f"{stem}_weights"])),
        "takes_nan": int(any(each[3] & _TAKES_NAN for each in packing.nodes)),
    }  # fmt: skip


def _tensor(numbers: Sequence[Any], dtype: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(numbers, dtype))


LINEAR = ("LinearRegressor", "LinearClassifier", "SVMRegressor", "SVMClassifier")
_KERNELS = (b"LINEAR", b"POLY", b"RBF", b"SIGMOID")
_LANES = 16
"""Support vectors that a loop computes side by side."""
_MOST_SUPPORTS = 1 << 16
"""Support vectors, of which the loop of a classifier has a number for each on the stack: 256 KB."""


def pack_linear(operator: str, values: Mapping[str, Any], dtypes: Sequence[str | None]) -> dict[str, Any]:
    """The attributes of an operator of `LINEAR` with transposed matrices, `columns` of its rows, and `results` of each.

    What is multiplied with an entry of a row lies side by side, so that sums are vectors: ``y[k] = sum over i of
    x[i] C[k, i]`` is read as ``C[i, k]``.

    Raises LoweringError for a model that the loop does not compute.
    """
    transforms = TRANSFORMS if operator == "LinearClassifier" else TRANSFORMS[:1]
    if dtypes[0] != "float32" or values["post_transform"] not in transforms:
        raise LoweringError(f"{operator} of {dtypes[0]} with {values['post_transform'].decode()}")
    if operator == "SVMRegressor":
        return _pack_machine(values)
    if operator == "SVMClassifier":
        return _pack_classifier(values)
    if operator == "LinearClassifier":
        results = len(values["classlabels_ints"])
        if results < FEWEST_CLASSES or len(values["intercepts"]) != results:
            raise LoweringError("a classifier with one score for two classes, or with labels that are text")
    else:
        results = values["targets"] or 1
        if len(values["intercepts"]) not in (0, results):
            raise LoweringError("not one intercept for each target")
    return {**values, **_matrix("coefficients", values["coefficients"], results), "results": results}


def _pack_machine(values: Mapping[str, Any]) -> dict[str, Any]:
    supports = values["n_supports"] or 0
    if values["kernel_type"] not in _KERNELS or len(values["rho"]) != 1:
        raise LoweringError(f"a support vector machine by {values['kernel_type'].decode()}")
    if not supports:
        return {**values, "columns": len(values["coefficients"]), "results": 1, "n_supports": 0, "stride": 0}
    if len(values["coefficients"]) != supports:
        raise LoweringError("not one coefficient for each support vector")
    return {**values, **_pack_supports(values, supports), "results": 1}


def _pack_classifier(values: Mapping[str, Any]) -> dict[str, Any]:
    """A support vector machine for each pair of classes. Raises LoweringError for one of no support vectors."""
    classes, supports = len(values["classlabels_ints"]), sum(values["vectors_per_class"])
    pairs = classes * (classes - 1) // 2
    if values["kernel_type"] not in _KERNELS:
        raise LoweringError(f"a support vector machine by {values['kernel_type'].decode()}")
    if classes < FEWEST_CLASSES or classes > _MOST_SCORES or len(values["vectors_per_class"]) != classes:
        raise LoweringError("labels that are text, or no support vectors for each class")
    if not 0 < supports <= _MOST_SUPPORTS or len(values["coefficients"]) != (classes - 1) * supports:
        raise LoweringError("not one coefficient for each support vector and other class")
    if len(values["rho"]) != pairs or any(len(values[name]) not in (0, pairs) for name in ("prob_a", "prob_b")):
        raise LoweringError("not one intercept for each pair of classes")
    results = classes if classes == FEWEST_CLASSES or len(values["prob_a"]) else pairs
    packed = _pack_supports(values, supports)
    return {**values, **packed, "classes": classes, "n_supports": supports, "results": results}


def _pack_supports(values: Mapping[str, Any], supports: int) -> dict[str, Any]:
    """The support vectors as columns, with zeros behind them up to a `stride` of whole vectors."""
    vectors = values["support_vectors"]
    if len(vectors) % supports:
        raise LoweringError(f"{len(vectors)} numbers are no {supports} support vectors")
    stride = -(-supports // _LANES) * _LANES
    return _matrix("support_vectors", [*vectors, *[0.0] * (len(vectors) // supports * (stride - supports))], stride) | {
        "stride": stride
    }


def _matrix(name: str, entries: Sequence[float], rows: int) -> dict[str, Any]:
    """A list of rows as a list of columns, and their number."""
    if len(entries) % rows:
        raise LoweringError(f"{len(entries)} {name} are no matrix of {rows} rows")
    matrix = np.asarray(entries, np.float32).reshape(rows, -1)
    return {name: numpy_helper.from_array(matrix.T.ravel()), "columns": matrix.shape[1]}


AttrType = defs.OpSchema.AttrType
_C_TYPES = {
    "float32": ("float", "-INFINITY", "INFINITY"),
    "float64": ("double", "-INFINITY", "INFINITY"),
    "bool": ("bool", "0", "1"),
    **{f"int{b}": (f"int{b}_t", f"INT{b}_MIN", f"INT{b}_MAX") for b in (8, 16, 32, 64)},
    **{f"uint{b}": (f"uint{b}_t", "0", f"UINT{b}_MAX") for b in (8, 16, 32, 64)},
}
"""The type in C, its least and its largest element, by numpy's name."""
_ABSENT = ("char", "0", "0")
MINIMUM_INPUTS = 9
"""Entries of every list of inputs, so that a loop may look for optional ones: QLinearConv has most."""
_RENAMED = {"value": "constant_value", "k": "K"}
"""Attributes of old versions whose input of today has another name."""
_SUCCESSORS = {"Scatter": "ScatterElements", "Upsample": "Resize"}
"""The operators that replaced others."""
_PACKINGS = {**dict.fromkeys(ENSEMBLES, pack_trees), **dict.fromkeys(LINEAR, pack_linear)}
"""How attributes with the numbers of a model are brought into the order in which its loop reads them."""
_WITHOUT_DEFAULT = {AttrType.INT: None, AttrType.INTS: (), AttrType.FLOATS: ()}
"""The value of an attribute that has no default, by its type; None is ABSENT of tensor.h."""


@dataclass(frozen=True)
class LoopInstance:
    """The text of one loop, whose function is called `NAME` in it.

    `operands` are attributes of the node that are inputs in ONNX's newest version, by their position there.
    """

    operator: str
    macros: tuple[tuple[str, str], ...]
    arrays: tuple[tuple[str, str, str], ...]
    operands: Mapping[int, np.ndarray[Any, Any]]

    @property
    def key(self) -> object:
        """Equal for two nodes that can share the loop."""
        return self.operator, self.macros, self.arrays

    def text(self, name: str) -> str:
        """The C text of the function `name`; it leaves no macro defined."""
        body, defined = loop_text(self.operator)
        lines = [f"#define NAME {name}"]
        for array, type_, elements in self.arrays:
            lines.append(f"static const {type_} {name}_{array}[] = {elements};")
            lines.append(f"#define {array} {name}_{array}")
        lines += [f"#define {macro} {value}" for macro, value in self.macros]
        names = ["NAME", *(a for a, _, _ in self.arrays), *(m for m, _ in self.macros), *defined]
        return "\n".join([*lines, body.rstrip(), *(f"#undef {macro}" for macro in names), ""])


def why_no_loop(operator: str, domain: str, dtypes: Sequence[str | None]) -> str | None:
    """Why an operator on these element types cannot be a loop; None if it can."""
    if operator not in loop_files() or not defs.has(operator, domain):
        return f"{operator} has no plain loop"
    other = next((dtype for dtype in dtypes if dtype is not None and dtype not in _C_TYPES), None)
    return f"a tensor of {operator} is of {other}" if other else None


def loop_instance(
    node: onnx.NodeProto, opset: int, inputs: Sequence[str | None], outputs: Sequence[str | None]
) -> LoopInstance:
    """The loop of a node whose tensors have these element types, None if they are absent.

    Raises LoweringError if it has no loop.
    """
    reason = why_no_loop(node.op_type, node.domain, [*inputs, *outputs])
    if reason:
        raise LoweringError(reason)
    schema = defs.get_schema(node.op_type, opset, node.domain)
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if "seed" in given:
        raise LoweringError(f"{node.op_type} with a seed, whose numbers are those of ONNX Runtime, has no plain loop")
    newest = defs.get_schema(_SUCCESSORS.get(node.op_type, node.op_type), node.domain)
    values = {**_defaults(newest), **_defaults(schema), **given}
    operands = dict(_find_operands(schema, values, inputs))
    for name, attribute in newest.attributes.items():
        if attribute.type in _WITHOUT_DEFAULT:
            values.setdefault(name, _WITHOUT_DEFAULT[attribute.type])
    if node.op_type in _PACKINGS:
        values = _PACKINGS[node.op_type](node.op_type, values, inputs)
    macros = [(f"OP_{node.op_type}", "1"), ("OPERATOR_NAME", f'"{node.op_type}"'), ("OPSET", str(schema.since_version))]
    macros += [("INPUTS", str(len(inputs))), ("OUTPUTS", str(len(outputs)))]
    extended = [*inputs, *[None] * (MINIMUM_INPUTS - len(inputs))]
    for position, array in operands.items():
        extended[position] = array.dtype.name
    for letter, dtypes in (("I", extended), ("O", [*outputs, *[None] * (4 - len(outputs))])):
        for number, dtype in enumerate(dtypes):
            type_, lowest, highest = _ABSENT if dtype is None else _C_TYPES[dtype]
            macros.append((f"{letter}{number}", type_))
            macros += [(f"LOWEST_{letter}{number}", lowest), (f"HIGHEST_{letter}{number}", highest)]
    arrays = []
    for name, value in sorted(values.items()):
        if isinstance(value, onnx.GraphProto):
            raise LoweringError(f"{node.op_type} has a body")
        initialiser = _array_text(value)
        if initialiser is None:
            macros.append((f"A_{name}", _literal(value)))
        else:
            arrays.append((f"A_{name}", *initialiser))
            macros.append((f"A_{name}_count", str(len(_elements(value)))))
    return LoopInstance(node.op_type, tuple(macros), tuple(arrays), operands)


def _defaults(schema: defs.OpSchema) -> dict[str, Any]:
    attributes = ((name, a.default_value) for name, a in schema.attributes.items())
    return {name: helper.get_attribute_value(value) for name, value in attributes if value.type}


def _find_operands(
    schema: defs.OpSchema, values: dict[str, Any], inputs: Sequence[str | None]
) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """The attributes that are inputs in the newest version of an operator; they are taken out of `values`."""
    if not defs.has(schema.name, schema.domain):
        return
    newest = {i.name: position for position, i in enumerate(defs.get_schema(schema.name, schema.domain).inputs)}
    for name in list(values):
        position = newest.get(name, newest.get(_RENAMED.get(name, ""), -1))
        if position < len(schema.inputs) or (position < 0):
            continue
        value = values.pop(name)
        is_whole = all(isinstance(v, int) for v in (value if isinstance(value, list | tuple) else [value]))
        yield position, np.asarray(value, "int64" if is_whole else inputs[0])


def _elements(value: Any) -> Sequence[Any]:
    if isinstance(value, onnx.TensorProto):
        return list(numpy_helper.to_array(value).ravel().tolist())
    return list(value)


def _array_text(value: Any) -> tuple[str, str] | None:
    """Type and initialiser of a list or tensor; None of a single value."""
    if isinstance(value, onnx.TensorProto):
        array = numpy_helper.to_array(value)
        dtype = array.dtype.name
        if dtype not in _C_TYPES:
            raise LoweringError(f"an attribute is of {dtype}")
        type_ = _C_TYPES[dtype][0]
        if dtype == "int32" and array.size:  # of which ensembles of trees have hundreds of thousands
            return type_, f"{{{str(array.ravel().tolist())[1:-1]}}}"
    elif isinstance(value, list | tuple):
        first = value[0] if value else 0
        type_ = "float" if isinstance(first, float) else "char *const" if isinstance(first, bytes) else "int64_t"
    else:
        return None
    return type_, "{" + (", ".join(map(_literal, _elements(value))) or "0") + "}"


def _literal(value: Any) -> str:
    if value is None:
        return "ABSENT"
    if isinstance(value, bytes | str):
        text = value if isinstance(value, bytes) else value.encode()
        plain = (chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:03o}" for b in text)
        return f'"{"".join(plain)}"'
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return "INT64_MIN" if value == -(2**63) else f"({value}{'u' if value >= 2**63 else ''}ll)"
    if not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "(-INFINITY)"
    single = float(np.float32(value))
    return f"({float(value)!r}{'f' if single == value else ''})"
