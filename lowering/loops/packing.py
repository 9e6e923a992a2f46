"""Models of classical machine learning as their plain loops read them.

Ensembles of decision trees have all nodes in one array, each tree breadth first: ``x[feature] <= threshold ? first :
first + 1``. The two children of a node are neighbours, so a walk needs no branch. A leaf is its own child, for trees
that are walked side by side have leaves at different depths.

Of linear models and support vector machines what is multiplied with an entry of a row lies side by side, so that sums
are vectors: ``y[k] = sum over i of x[i] C[k, i]`` is read as ``C[i, k]``.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ..base.errors import LoweringError

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
