"""The second oracle: ONNX Runtime and ONNX's shape inference, beside the meaning in numpy.

One implementation may be at fault; two that agree count as right. Sampled terms become models that ONNX judges.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from ....engine.onnx.exact_products import make_products_exact
from ....ir.operators import DOMAINS, OPERATORS, RECURRENT, Array, Attribute, OperatorSchema, Unsupported, full
from ....ir.operators.numbers import element_type
from ..sampling.conditions import Value
from ..sampling.evaluation import Comparison, Evaluation, is_float, is_identical
from ..sampling.placement import Placement
from ..sampling.samples import Sample
from ..sampling.scratch import Fired
from ..sampling.terms import Argument, Leaf, Term, readable

if TYPE_CHECKING:
    import onnxruntime

_CLOSE = 1e-3
"""Two implementations of the left side agree if they differ by at most this share of the value, or of a thousandth of
the largest number among the elements. The bound may be loose, because wider precision shows whether a rule is wrong."""
_SEEN = 0.05
"""The share of a difference that another implementation has to see, too."""
_OPSET = 24
_IR_VERSION = 10
"""Versions of ONNX's operators and of its file format in the models of terms; the packages of the checker know both."""
_STASH_TYPE = 1
"""The type that ONNX Runtime normalizes in, whatever the attribute says."""
_STASH_TYPES = (1, 10, 11, 16)
"""ONNX's floats."""
_NEVER_EMPTY = frozenset({*RECURRENT, "MultiHeadAttention"})
"""Operators whose kernels in ONNX Runtime end the process if a tensor has no elements."""
_INPUTS_OF_RESIZE = {"roi": np.float32, "scales": np.float32, "sizes": np.int64}


_ABSENT = Leaf("Absent")
_ONE_OVERFLOWS = "a number overflows inside an operator, as one oracle computes it"


class Disagreement(Exception):
    """The oracles do not give the left side the same value, so that nothing follows from it."""


class _Inexpressible(Exception):
    """ONNX has no such operator, type or literal."""


class Refused(Exception):
    """The model is no valid ONNX, or cannot run on these elements."""


class KernelMissing(Exception):
    """ONNX Runtime lacks a kernel for an operator of the model and its element types."""


@dataclass
class Oracle:
    """Judges one sample. `reasons` says what it could not judge. `alone` is true once numpy alone decided about a
    counterexample. `computed` has the roots and the results of the rule, as ONNX Runtime computed them from `elements`,
    if it has all kernels."""

    sample: Sample
    fired: Fired
    reasons: list[str] = field(default_factory=list)
    alone: bool = False
    computed: tuple[list[Array], list[Array]] | None = None
    elements: Mapping[str, Array] | None = None

    @cached_property
    def placement(self) -> Placement:
        """The classes of the sample's terms in the e-graph."""
        return Placement(self.sample, self.fired)

    @cached_property
    def both_sides(self) -> tuple[list[Term | Leaf], list[Term | Leaf]]:
        """The roots, and the terms that the rule made of them, without absent ones."""
        left, right = ([t for t in terms if t != _ABSENT] for terms in (self.sample.roots, self.placement.after()))
        return left, right

    def refusal(self, evaluation: Evaluation) -> str:
        """Why ONNX refuses the result of the rule although it takes the left side; "" if it takes both.

        If ONNX Runtime stops at an empty tensor, as some of its kernels do, that is no fault of the rule.
        """
        if self.computed is not None or self._runs_at_once(evaluation):
            return ""
        self.elements = evaluation.elements
        try:
            left = _run_kernels(_valid_model(self.sample.roots, evaluation), evaluation)
        except (_Inexpressible, Refused) as error:
            self.reasons.append(f"ONNX refuses a left side: {_first_line(error)}")
            return ""
        try:
            model = _valid_model(self.placement.after(), evaluation)
        except (_Inexpressible, Refused) as error:
            return _first_line(error)
        try:
            if left is not None:
                self.computed = left, run_model(model, evaluation.elements, reference=False)
        except Refused as error:
            if not self.sample.is_empty:
                return _first_line(error)
            self.reasons.append(f"ONNX Runtime stops at an empty tensor: {_first_line(error)}")
        except KernelMissing as error:
            self.reasons.append(f"ONNX Runtime has no kernel for a right side: {_first_line(error)}")
        return ""

    def _runs_at_once(self, evaluation: Evaluation) -> bool:
        """Whether ONNX takes both sides as one model, and ONNX Runtime has computed them. Most samples pass; if not,
        each side is judged alone to find which is at fault."""
        left, right = self.both_sides
        try:
            model = term_model([*left, *right], evaluation.dtypes)
            infer_types(model)
            both = run_model(model, evaluation.elements, reference=False)
        except (_Inexpressible, Refused, KernelMissing):
            return False
        self.elements, self.computed = evaluation.elements, (both[: len(left)], both[len(left) :])
        return True

    def unequal_bits(self, evaluation: Evaluation) -> tuple[Array, Array, tuple[int, ...]] | None:
        """The two sides of a root, and a place at which ONNX Runtime computes different bits; any two NaN are equal."""
        if self.computed is None or (evaluation.elements is not self.elements and not self._runs_at_once(evaluation)):
            return None
        for left, right in zip(*self.computed, strict=True):
            if left.shape == right.shape and left.dtype == right.dtype and is_float(left):
                apart = np.argwhere(~is_identical(left, right))
                if len(apart):
                    return left, right, tuple(map(int, apart[0]))
        return None

    def confirm(
        self,
        evaluation: Evaluation,
        pair: Comparison,
        places: Sequence[tuple[int, ...]],
        sound: str,
        *,
        both_sides: bool = False,
    ) -> tuple[int, ...]:
        """The first of the places at which both oracles give the left side the same value, and neither gives that value
        to the right side. Raises Disagreement if there is none.

        Implementations return one or the other of two zeros, for which it is enough that each oracle sees a difference.
        ONNX's reference may see it in place of ONNX Runtime: for a rule that claims equal bits, because ONNX Runtime
        rounds some casts twice, and for any rule if float16 overflows or is cast to integers, as ONNX Runtime computes
        little in float16 itself, and leaves out casts to it.
        With `both_sides`, each oracle has to compute both sides.
        """
        if pair.root < 0 or pair.left.shape != pair.right.shape or pair.left.dtype != pair.right.dtype:
            return places[0]
        root = self.sample.roots[pair.root]
        left, right = self.sides(evaluation, pair)
        if both_sides and (left is None or right is None):
            raise Disagreement(_ONE_OVERFLOWS)
        if left is None:
            self.alone = True
            return places[0]
        scale = max((float(np.max(np.abs(a[np.isfinite(a)]), initial=0.0)) for a in evaluation.left), default=0.0)
        term = self.placement.term(pair.node, self.fired.roots[pair.root])
        signed = sound == "exact" and right is None
        agreed = [at for at in places if _agree(left, pair.left, at, scale, signed)]
        if not agreed and not is_float(pair.left) and term is not None:
            by_standard = _differ_by_standard(root, term, evaluation, pair.left)
            if by_standard:
                return by_standard[0]
        subject = f"{root.head} of {pair.left.dtype}" if isinstance(root, Term) else readable(root)
        if not agreed:
            raise Disagreement(f"the oracles disagree on {subject}")
        if right is None or right.shape != left.shape:
            return agreed[0]
        for at in agreed:
            if _sees_difference(left[at], right[at], pair.left[at], pair.right[at], sound):
                return at
        if not is_float(pair.left) and term is not None and any(map(_is_half, evaluation.intermediate)):
            by_standard = _differ_by_standard(root, term, evaluation, pair.left)
            if by_standard:
                return by_standard[0]
        is_narrow = left.dtype.itemsize == 2 and not both_sides
        standard = _compute(term, evaluation, by_standard=True) if term is not None else None
        if standard is not None and standard.shape == left.shape and is_float(left) and (sound == "exact" or is_narrow):
            differs = _is_rounded_apart if sound == "exact" else _is_lost
            apart = [at for at in agreed if differs(left[at], standard[at])]
            if apart:
                return apart[0]
        raise Disagreement(f"the oracles disagree on the right side of {subject}")

    def sides(
        self, evaluation: Evaluation, pair: Comparison, *, by_standard: bool = False
    ) -> tuple[Array | None, Array | None]:
        """The two sides of a root by ONNX Runtime, or by ONNX's reference if that has no kernel or with `by_standard`;
        None if neither computes one."""
        term = self.placement.term(pair.node, self.fired.roots[pair.root])
        left = _compute(self.sample.roots[pair.root], evaluation, by_standard)
        return left, None if left is None or term is None else _compute(term, evaluation, by_standard)


def judge_together(oracles: Sequence[Oracle]) -> None:
    """Let ONNX and ONNX Runtime judge the samples of one rule, as one model for those of the same element types: a
    session takes longer than a run. What they do not take is left to be judged sample by sample."""
    groups: dict[object, list[Oracle]] = {}
    for oracle in oracles:
        if not oracle.sample.outgrows:
            types = frozenset(leaf.type.dtype for leaf in oracle.sample.leaves if leaf != _ABSENT)
            groups.setdefault((types, oracle.sample.is_empty), []).append(oracle)
    for group in (each for each in groups.values() if len(each) > 1):
        prefixes = {f"{number}/": oracle for number, oracle in enumerate(group)}
        feeds = {prefix + name: a for prefix, o in prefixes.items() for name, a in (o.elements or {}).items()}
        try:
            model = _model_of_terms({p: [*o.both_sides[0], *o.both_sides[1]] for p, o in prefixes.items()}, {})
            infer_types(model)
            results = run_model(model, feeds, reference=False)
        except (_Inexpressible, Refused, KernelMissing):
            continue
        for oracle in prefixes.values():
            sides = []
            for terms in oracle.both_sides:
                sides.append(results[: len(terms)])
                results = results[len(terms) :]
            oracle.computed = sides[0], sides[1]


def _compute(term: Term | Leaf, evaluation: Evaluation, by_standard: bool = False) -> Array | None:
    """The value of a term by ONNX Runtime, or by ONNX's reference if ONNX Runtime has no kernel or with `by_standard`;
    None if neither computes it."""
    run = _run_reference if by_standard else run_model
    try:
        return run(term_model([term], evaluation.dtypes), evaluation.elements)[0]
    except (_Inexpressible, KernelMissing, Refused):
        return None


def _differ_by_standard(
    root: Term | Leaf, term: Term | Leaf, evaluation: Evaluation, known: Array
) -> list[tuple[int, ...]]:
    """The places at which ONNX's reference gives two sides different integers, and the left one its known value.

    The reference wraps around, as ONNX says; ONNX Runtime's sums stop at the ends of the range.
    """
    left, right = (_compute(each, evaluation, by_standard=True) for each in (root, term))
    if left is None or right is None or not left.shape == right.shape == known.shape:
        return []
    return [tuple(map(int, at)) for at in np.argwhere((left == known) & (left != right))]


def _valid_model(terms: Sequence[Term | Leaf], evaluation: Evaluation) -> onnx.ModelProto:
    """The terms as a model whose types ONNX can infer. Raises _Inexpressible and Refused."""
    model = term_model([t for t in terms if t != _ABSENT], evaluation.dtypes)
    if not any(node.domain for node in model.graph.node):  # ONNX knows no types of the others; ONNX Runtime will look
        infer_types(model)
    return model


def _run_kernels(model: onnx.ModelProto, evaluation: Evaluation) -> list[Array] | None:
    """The outputs by ONNX Runtime; None if it lacks a kernel. Raises Refused if it fails."""
    try:
        return run_model(model, evaluation.elements, reference=False)
    except KernelMissing:
        return None


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]


def _agree(left: Array, known: Array, at: tuple[int, ...], scale: float, signed: bool) -> bool:
    if left.shape != known.shape:
        return False
    one, other = left[at], known[at]
    if _is_same(one, other, "exact"):
        return True
    if not is_float(known) or not (np.isfinite(one) and np.isfinite(other)):
        return False
    if signed and one == 0 and other == 0:
        return False
    return bool(abs(one - other) <= _CLOSE * max(abs(one), abs(other), _CLOSE * scale))


def _is_same(one: np.generic, other: np.generic, sound: str) -> bool:
    if np.asarray(one).dtype.kind not in "fV":
        return bool(one == other)
    if np.isnan(one) or np.isnan(other):
        return bool(np.isnan(one) and np.isnan(other))
    return bool(one == other) and (sound != "exact" or bool(np.signbit(one) == np.signbit(other)))


def _is_half(array: Array) -> bool:
    return is_float(array) and array.dtype.itemsize == 2


def _sees_difference(left: Any, right: Any, known_left: Any, known_right: Any, sound: str) -> bool:
    """Whether one oracle tells two sides apart that are known to differ: finite floats by a share of that difference,
    as an oracle that computes in wider types differs by roundings alone."""
    if _is_same(left, right, sound):
        return False
    if sound == "exact" or not is_float(np.asarray(left)):
        return True
    seen, known = abs(float(left) - float(right)), abs(float(known_left) - float(known_right))
    return not np.isfinite([seen, known]).all() or bool(seen >= _SEEN * known)


def _is_rounded_apart(one: np.generic, other: np.generic) -> bool:
    """Whether two finite numbers differ in more than the sign of zero."""
    return bool(np.isfinite(one) and np.isfinite(other) and one != other)


def _is_lost(one: np.generic, other: np.generic) -> bool:
    """Whether the second number, and not the first, is infinite or NaN, or zero, as quotients by infinite ones are."""
    return bool(np.isfinite(one) and (not np.isfinite(other) or (other == 0 and one != 0)))


# --- terms as models


def term_model(terms: Sequence[Term | Leaf], dtypes: Mapping[str, str]) -> onnx.ModelProto:
    """A model whose inputs are the named leaves and whose outputs ``y0``, ``y1``, ... are the terms.

    `dtypes` renames element types; extended precision becomes float64. Raises _Inexpressible.
    """
    return _model_of_terms({"": terms}, dtypes)


def _model_of_terms(samples: Mapping[str, Sequence[Term | Leaf]], dtypes: Mapping[str, str]) -> onnx.ModelProto:
    """The same for terms of several samples, by the prefix of the names of each sample's inputs."""
    numpy_types = {old: "float64" if new == "longdouble" else new for old, new in dtypes.items()}
    writers = {prefix: _TermWriter(numpy_types, prefix) for prefix in samples}
    try:
        names = [writers[prefix].value(term) for prefix, terms in samples.items() for term in terms]
    except (ValueError, TypeError, KeyError, OverflowError, Unsupported) as error:
        raise _Inexpressible(str(error)) from None
    nodes = [node for writer in writers.values() for node in writer.nodes]
    nodes += [helper.make_node("Identity", [name], [f"y{i}"]) for i, name in enumerate(names)]
    outputs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(len(names))]
    inputs = [each for writer in writers.values() for each in writer.inputs.values()]
    constants = [each for writer in writers.values() for each in writer.constants]
    graph = helper.make_graph(nodes, "term", inputs, outputs, constants)
    imports = [helper.make_opsetid("", _OPSET), *(helper.make_opsetid(domain, 1) for domain in DOMAINS)]
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


@dataclass
class _TermWriter:
    """Writes terms as nodes, each once. `names` has the names of their values, which begin with `prefix`, and with a
    question mark if they are no inputs."""

    dtypes: Mapping[str, str]
    prefix: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    names: dict[Term | Leaf, str] = field(default_factory=dict)

    def value(self, term: Argument) -> str:
        """The name of a term's value, or of the first if it has several; writes the nodes that make it."""
        if not isinstance(term, (Term, Leaf)):
            raise _Inexpressible(f"{term!r} is no tensor")
        if term not in self.names:
            self.names[term] = self._write_leaf(term) if isinstance(term, Leaf) else self._write_term(term)
        return self.names[term]

    def _type(self, dtype: str) -> int:
        return int(helper.np_dtype_to_tensor_dtype(element_type(self.dtypes.get(dtype, dtype))))

    def _write_leaf(self, leaf: Leaf) -> str:
        if leaf.kind == "Absent":
            return ""
        if leaf.kind == "Full":
            dtype = self.dtypes.get(leaf.type.dtype, leaf.type.dtype)
            return self._write_constant(full(leaf.type.shape, leaf.type.value or 0.0, dtype))
        name = f"{self.prefix}{leaf.name}"
        self.inputs.setdefault(name, helper.make_tensor_value_info(name, self._type(leaf.type.dtype), leaf.type.shape))
        return name

    def _write_constant(self, array: Array) -> str:
        name = f"?{self.prefix}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def _write_term(self, term: Term) -> str:
        if term.head == "Out":
            node, index = term.arguments
            name = self.value(node)
            return f"{name}.{index}" if index else name
        operator = OPERATORS.get(term.head)
        if operator is None:
            raise _Inexpressible(f"there is no operator {term.head}")
        if "stash_type" in (a.name for a in operator.attributes) and term.arguments[-1] not in _STASH_TYPES:
            raise _Inexpressible(f"{term.arguments[-1]} is no stash_type")
        inputs, attributes = [], {}
        for argument, value in zip(operator.arguments, term.arguments, strict=True):
            if not isinstance(argument, Attribute):
                inputs.append(self.value(value))
            elif argument.input_since is not None:
                scalar = term.head == "CumSum"
                array = np.asarray(value[0] if scalar else value, np.int64)  # type: ignore[index]
                inputs.append(self._write_constant(array))
            else:
                attributes[argument.name] = value
        return self._write_node(operator, inputs, attributes)  # type: ignore[arg-type]

    def _write_node(self, operator: OperatorSchema, inputs: list[str], attributes: dict[str, Value]) -> str:
        head = operator.name
        onnx_attributes: dict[str, Any] = dict(attributes)
        if head == "Cast":
            onnx_attributes["to"] = self._type(str(attributes["to"]))
        elif head == "Reshape":
            onnx_attributes["allowzero"] = 1  # a rule's shape is the full result
        elif head == "Resize":
            config = json.loads(str(onnx_attributes.pop("config")))
            for name, dtype in _INPUTS_OF_RESIZE.items():
                inputs.append(self._write_constant(np.asarray(config.pop(name), dtype)) if name in config else "")
            onnx_attributes |= config
        elif head == "QuantizeLinear" and not inputs[1]:  # absent, it is 1
            one = self._write_constant(np.ones((), np.float32))
            inputs[1] = f"?{self.prefix}v{len(self.nodes)}"
            self.nodes.append(helper.make_node("CastLike", [one, inputs[0]], [inputs[1]]))
        elif head in RECURRENT:
            onnx_attributes |= json.loads(str(onnx_attributes.pop("config")))
        name = f"?{self.prefix}v{len(self.nodes)}"
        outputs = [name]
        while inputs and not inputs[-1]:
            inputs.pop()
        if head == "Split":
            count = len(numpy_helper.to_array(next(c for c in self.constants if c.name == inputs[1])))
            outputs += [f"{name}.{i}" for i in range(1, count)]
        outputs += [f"{name}.{i}" for i in range(1, operator.outputs)]
        domain = operator.domain or None
        self.nodes.append(helper.make_node(operator.op_type, inputs, outputs, domain=domain, **onnx_attributes))
        return name


# --- models in ONNX Runtime


def infer_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of strict inference. Raises Refused."""
    try:
        return shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError) as error:
        raise Refused(str(error)) from None


def run_model(model: onnx.ModelProto, elements: Mapping[str, Array], *, reference: bool = True) -> list[Array]:
    """Run a model in ONNX Runtime, unoptimised, on one thread; in ONNX's reference if a kernel is missing.

    The inputs get the elements of their names, cast to their types. Raises Refused, and KernelMissing if ONNX Runtime
    lacks a kernel and the reference does not implement the model, or `reference` is False.
    """
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    try:
        if lack := _lacks(model, elements):
            raise RuntimeError(lack)
        session = _session(make_products_exact(model).SerializeToString())
        return [np.asarray(a) for a in session.run(None, _feeds(model, elements))]
    except (state.NotImplemented, RuntimeError) as error:  # the latter if numpy has no such element type
        if not reference:
            raise KernelMissing(str(error)) from None
    except (state.Fail, state.InvalidGraph, state.InvalidArgument, state.RuntimeException) as error:
        raise Refused(str(error)) from None
    return _run_reference(model, elements)


def _lacks(model: onnx.ModelProto, elements: Mapping[str, Array]) -> str:
    """What ONNX Runtime lacks without reporting it, as a sentence; "" if nothing. It ends the process in empty
    recurrent networks and attention, and where the least integer is divided by -1."""
    nodes = model.graph.node
    if any(n.op_type in ("Div", "Mod") for n in nodes) and any(map(_is_near_least, _integers(model, elements))):
        return "ONNX Runtime cannot divide the least integer by -1"
    if any(a.name == "stash_type" and a.i != _STASH_TYPE for node in nodes for a in node.attribute):
        return "ONNX Runtime knows one stash_type"
    is_empty = any(array.size == 0 for array in elements.values()) or any(0 in c.dims for c in model.graph.initializer)
    ends = is_empty and any(n.op_type in _NEVER_EMPTY for n in nodes)
    return "ONNX Runtime cannot run empty networks" if ends else ""


def _integers(model: onnx.ModelProto, elements: Mapping[str, Array]) -> Iterator[Array]:
    """The inputs and constants of a model that are int32 or int64."""
    wide = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
    yield from (elements[i.name] for i in model.graph.input if i.type.tensor_type.elem_type in wide)
    yield from (numpy_helper.to_array(c) for c in model.graph.initializer if c.data_type in wide)


def _is_near_least(array: Array) -> bool:
    """Whether some numbers are so large that an operator may make the least integer of them."""
    return array.dtype.kind == "i" and bool(np.any(np.abs(array // 2) >= np.iinfo(array.dtype).max // 8))


def _feeds(model: onnx.ModelProto, elements: Mapping[str, Array]) -> dict[str, Array]:
    types = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in model.graph.input}
    return {name: np.asarray(elements[name]).astype(dtype) for name, dtype in types.items()}


def _run_reference(model: onnx.ModelProto, elements: Mapping[str, Array]) -> list[Array]:
    """Run a model in ONNX's reference. Raises KernelMissing if that does not implement it."""
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):  # the elements are chosen so that some results overflow
            outputs: Any = ReferenceEvaluator(model).run(None, _feeds(model, elements))
    except Exception as error:  # numpy's, in cases that the reference does not foresee
        raise KernelMissing(str(error)) from None
    return [np.asarray(a) for a in outputs]


@lru_cache(maxsize=4)
def _session(model: bytes) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
