"""Patterns that rules rewrite, to put into random graphs: the left sides of the catalogue's rules, and a few larger
ones as exporters write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random

import numpy as np

from eqfuse.engine.egraph.emit import emit_node
from eqfuse.engine.egraph.graph import ENode
from eqfuse.ir.operators import OPERATORS
from eqfuse.ir.types import TensorType
from eqfuse.rules.loader import load_rules
from eqfuse.rules.records import Rule
from eqfuse.tools.checking.sampling.hits import facts_by_direction
from eqfuse.tools.checking.sampling.left_side import LeftSide
from eqfuse.tools.checking.sampling.samples import Sample, draw_sample, left_sides
from eqfuse.tools.checking.sampling.terms import Leaf, Term

from .builder import Builder, Misfit, Shape
from .layout import axes_operator
from .operators import Maker, image, positive, reduce, weights

_ATTEMPTS = 30
_ABSENT = -1


@cache
def rewriting() -> tuple[Rule, ...]:
    """The rules of the catalogue that change programs."""
    return tuple(r for r in load_rules(precision="fast").rules if not r.derives)


@cache
def _left_sides(rule: Rule) -> tuple[LeftSide, ...]:
    """The left sides of a rule in its directions."""
    random = Random(rule.name)
    return tuple(side for facts in facts_by_direction(rule) for side in left_sides(facts, random, count=4))


def left_side(b: Builder) -> None:
    """The left side of a rule, on values of the graph where some fit."""
    place_left_side(b, b.pick(rewriting()))


def place_left_side(b: Builder, rule: Rule) -> None:
    """Add the left side of this rule. Raises Misfit if none was found that the opset can say."""
    ways = _left_sides(rule)
    random = Random(b.random.getrandbits(32))
    for _ in range(_ATTEMPTS if ways else 0):
        sample = draw_sample(random.choice(ways), random, "float32" if b.chance(0.8) else "")
        if sample is not None:
            _Placing(b, sample).roots()
            return
    raise Misfit


class _Placing:
    """Writes a sampled term as nodes."""

    def __init__(self, b: Builder, sample: Sample) -> None:
        self.b, self.sample = b, sample
        self.leaves: dict[Leaf, str | None] = {}
        self.outputs: dict[Term, list[str]] = {}

    def roots(self) -> list[str | None]:
        return [self.value(root) for root in self.sample.roots]

    def value(self, argument: object) -> str | None:
        if isinstance(argument, Leaf):
            if argument not in self.leaves:
                self.leaves[argument] = self.leaf(argument)
            return self.leaves[argument]
        assert isinstance(argument, Term)
        if argument.head == "Out":
            node, index = argument.arguments
            assert isinstance(node, Term)
            assert isinstance(index, int)
            return self.made(node)[index]
        return self.made(argument)[0]

    def dtype(self, leaf: Leaf) -> str:
        return self.b.dtype if leaf.type.dtype == "float32" else leaf.type.dtype

    def leaf(self, leaf: Leaf) -> str | None:
        if leaf.kind == "Absent":
            return None
        shape, dtype = leaf.type.shape, self.dtype(leaf)
        if 0 in shape or dtype == "bfloat16":
            raise Misfit
        if leaf.kind == "Full":
            return self.b.weight(np.full(shape, leaf.type.value or 0.0, dtype))
        if leaf.kind == "Weight":
            array = self.b.elements(shape, dtype)
            signed = leaf.nonneg or leaf.nonzero
            return self.b.weight(np.abs(array) + np.full((), 0.25, dtype) if signed and dtype[0] == "f" else array)
        return self.variable(shape, dtype, leaf)

    def variable(self, shape: Shape, dtype: str, leaf: Leaf) -> str:
        b = self.b
        fitting = b.candidates(lambda a: a.shape == shape and a.dtype.name == dtype)
        x = str(b.pick(fitting[-6:])) if fitting and b.chance(0.85) else self.reshape(shape, dtype)
        if leaf.nonzero:
            return b.add("Exp", x)
        return b.add(b.pick(("Abs", "Relu", "Sigmoid")), x) if leaf.nonneg and dtype[0] == "f" else x

    def reshape(self, shape: Shape, dtype: str) -> str:
        """A value of the graph in this shape, or a new input."""
        b = self.b
        size = int(np.prod(shape))
        fitting = b.candidates(lambda a: a.size >= size and a.dtype.name == dtype) if size and b.chance(0.5) else []
        if not fitting:
            return b.input(shape, dtype)
        x = b.pick(fitting[-8:])
        flat = b.add("Reshape", x, b.integers([-1]))
        if b.values[x].size > size:
            flat = b.add("Slice", flat, b.integers([0]), b.integers([size]))
        return b.add("Reshape", flat, b.integers(shape))

    def made(self, term: Term) -> list[str]:
        if term not in self.outputs:
            self.outputs[term] = self.node(term)
        return self.outputs[term]

    def node(self, term: Term) -> list[str]:
        arguments = list(zip(OPERATORS[term.head].arguments, term.arguments, strict=True))
        operands = [self.value(v) for _, v in arguments if isinstance(v, (Term, Leaf))]
        literals = tuple(v for _, v in arguments if not isinstance(v, (Term, Leaf)))
        children = tuple(_ABSENT if o is None else i for i, o in enumerate(operands))
        types = [None if o is None else TensorType(self.b.kind(o), self.b.shape(o)) for o in operands]
        spec = emit_node(ENode(term.head, literals, children), types, None, self.b.opset, {}, _ABSENT)
        if spec is None:
            raise Misfit
        inputs = []
        for given in spec.inputs:
            if isinstance(given, np.ndarray):
                inputs.append(self.b.weight(given))
            else:
                inputs.append("" if given is None else operands[given] or "")
        return self.b.node(spec.op_type, inputs, spec.outputs, **spec.attributes)


# --- larger ones


def distributive(b: Builder) -> None:
    """a*b + a*c and its likes."""
    x = b.floats()
    shape = b.shape(x)
    others = [b.constant(shape) if b.chance(0.5) else b.add("Tanh", b.floats(rank=len(shape))) for _ in range(2)]
    op = b.pick(("Mul", "Mul", "Div"))
    first, second = (b.add(op, *((x, o) if op == "Div" or b.chance(0.5) else (o, x))) for o in others)
    b.add(b.pick(("Add", "Sub", "Max")), first, second)


def attention(b: Builder) -> None:
    """Queries, keys and values from one sequence."""
    x = b.choose(lambda a: a.dtype.name == b.dtype and a.ndim == 3 and a.shape[-1] % 2 == 0)
    n, s, c = b.shape(x)

    def project(perm: Sequence[int]) -> str:
        projection = b.add("MatMul", x, weights(b, (c, c)))
        projection = b.add("Add", projection, b.constant((c,))) if b.chance(0.7) else projection
        return b.add("Transpose", b.add("Reshape", projection, b.integers([n, s, 2, c // 2])), perm=perm)

    q, k, v = project((0, 2, 1, 3)), project((0, 2, 3, 1)), project((0, 2, 1, 3))
    q = b.add("Mul", q, b.scalar((c // 2) ** -0.5)) if b.chance(0.5) else q
    scores = b.add("MatMul", q, k)
    scores = b.add("Div", scores, b.scalar((c // 2) ** 0.5)) if b.chance(0.5) else scores
    scores = b.add("Add", scores, b.constant((1, 1, s, s))) if b.chance(0.3) else scores
    mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), v)
    b.add("Reshape", b.add("Transpose", mixed, perm=(0, 2, 1, 3)), b.integers([0, 0, c]))


def layer_norm(b: Builder) -> None:
    """A LayerNormalization of single operators, of the last axis or another."""
    x = b.floats(least=2)
    axis = [b.pick((-1, -1, 1))]
    centred = b.add("Sub", x, reduce(b, x, "Mean", axis, 1))
    square = b.add("Pow", centred, b.scalar(2.0)) if b.chance(0.5) else b.add("Mul", centred, centred)
    root = b.add("Sqrt", b.add("Add", reduce(b, square, "Mean", axis, 1), b.scalar(b.pick((1e-5, 0.1)))))
    scaled = b.add("Div", centred, root) if b.chance(0.7) else b.add("Mul", centred, b.add("Reciprocal", root))
    scaled = b.add("Mul", scaled, b.constant(b.shape(x)[-1:])) if b.chance(0.8) else scaled
    if b.chance(0.8):
        b.add("Add", scaled, b.constant(b.shape(x)[-1:]))


def gelu(b: Builder) -> None:
    """x/2 (1 + erf(x / sqrt 2)) in one of its spellings."""
    x = b.floats()
    inner = b.add("Div", x, b.scalar(2**0.5)) if b.chance(0.6) else b.add("Mul", x, b.scalar(0.5**0.5))
    outer = b.add("Add", b.add("Erf", inner), b.scalar(1.0))
    if b.chance(0.5):
        b.add("Mul", b.add("Mul", x, outer), b.scalar(0.5))
    else:
        b.add("Mul", b.add("Mul", x, b.scalar(0.5)), outer)


def convolution_block(b: Builder) -> None:
    """Conv, then what may go into it: BatchNormalization, a scale and a shift, an activation, a residual."""
    x = image(b)
    c, rank = b.shape(x)[1], b.rank(x)
    group = b.pick((1, 1, c))
    kernel = [b.pick((1, 3))] * (rank - 2)
    if b.chance(0.3):
        x = b.add("Pad", x, b.integers([0, 0, *[1] * (rank - 2)] * 2))
    y = b.add("Conv", x, weights(b, (c, c // group, *kernel)), group=group, pads=[k // 2 for k in kernel] * 2)
    for _ in range(b.between(1, 3)):
        y = _after_convolution(b, y, c)
    y = b.add(b.pick(("Relu", "Sigmoid", "HardSigmoid", "Tanh")), y) if b.chance(0.6) else y
    if b.shape(x) == b.shape(y) and b.chance(0.5):
        b.add("Add", x, y)


def _after_convolution(b: Builder, y: str, c: int) -> str:
    channel = (c, *[1] * (b.rank(y) - 2))
    match b.between(0, 4):
        case 0:
            more = [b.constant((c,)), b.constant((c,)), b.constant((c,)), b.constant((c,), positive=True)]
            return b.add("BatchNormalization", y, *more)
        case 1:
            return b.add(b.pick(("Mul", "Add", "Sub")), y, b.constant(channel))
        case 2:
            return b.add("Div", y, b.constant(channel, positive=True))
        case 3:
            return b.add("Conv", y, weights(b, (b.pick((c, 2 * c)), c, *[1] * (b.rank(y) - 2))))
        case _:
            return b.add("Add", y, b.scalar(b.pick((0.5, 1.0))))


def linear_chain(b: Builder) -> None:
    """MatMul, bias, scale, and another MatMul."""
    x = b.floats(least=2)
    for _ in range(b.between(1, 2)):
        k = b.shape(x)[-1]
        n = b.pick((k, 4))
        x = b.add("MatMul", x, weights(b, (k, n)))
        for _ in range(b.between(0, 3)):
            op = b.pick(("Add", "Mul", "Sub", "Div"))
            x = b.add(op, x, b.constant(b.pick(((n,), (1, n), (), (1,))), positive=op == "Div"))


def parallel(b: Builder) -> None:
    """Several products or convolutions of one operand, put together."""
    x = b.floats(least=2)
    k = b.shape(x)[-1]
    products = [b.add("MatMul", x, weights(b, (k, k))) for _ in range(b.between(2, 3))]
    if b.chance(0.5):
        products = [b.add("Add", m, b.constant((k,))) for m in products]
    if b.chance(0.5):
        b.add("Concat", *products, axis=-1)
    else:
        b.add("Add", b.add("Mul", products[0], products[1]), products[-1])


def constant_chain(b: Builder) -> None:
    """Scales and shifts one after the other."""
    x = b.floats()
    for _ in range(b.between(2, 5)):
        op = b.pick(("Add", "Mul", "Sub", "Div"))
        shape: Shape = b.pick(((), (1,), b.shape(x)[-1:]))
        y = b.constant(shape, positive=op == "Div")
        x = b.add(op, *((x, y) if op == "Div" or b.chance(0.7) else (y, x)))
    if b.chance(0.3):
        b.add("Neg", x)


def there_and_back(b: Builder) -> None:
    """Layout changes around an element-wise operator, undone or not."""
    x = b.floats(least=2)
    perm = list(range(b.rank(x)))
    b.random.shuffle(perm)
    back = list(np.argsort(perm)) if b.chance(0.7) else perm
    y = b.add("Transpose", x, perm=perm)
    for _ in range(b.between(1, 3)):
        y = b.add(b.pick(("Relu", "Tanh", "Neg", "Abs")), y)
        y = b.add(b.pick(("Add", "Mul")), y, b.constant((b.shape(y)[-1],))) if b.chance(0.6) else y
    b.add("Transpose", y, perm=[int(p) for p in back])


def cut_and_joined(b: Builder) -> None:
    """Slices of one value, worked on and concatenated."""
    x = b.floats(least=1)
    axis = b.between(0, b.rank(x) - 1)
    size = b.shape(x)[axis]
    at = b.between(1, max(size - 1, 1))
    parts = [
        b.add("Slice", x, b.integers([start]), b.integers([end]), b.integers([axis]))
        for start, end in ((0, at), (at, size))
    ]
    parts = [b.add("Tanh", p) if b.chance(0.5) else p for p in parts]
    b.add("Concat", *(parts if b.chance(0.7) else parts[::-1]), axis=axis)


def shape_arithmetic(b: Builder) -> None:
    """A Reshape whose target is computed from a Shape."""
    x = b.floats(least=2)
    shape = b.add("Shape", x)
    first = b.add("Gather", shape, b.weight(np.asarray(0)))
    b.add("Reshape", x, b.add("Concat", axes_operator(b, "Unsqueeze", first, [0]), b.integers([-1]), axis=0))


def safe_softmax(b: Builder) -> None:
    """A Softmax of single operators."""
    x = b.floats(least=1)
    shifted = b.add("Sub", x, reduce(b, x, "Max", [-1], 1)) if b.chance(0.6) else x
    powers = b.add("Exp", shifted)
    b.add("Div", powers, reduce(b, powers, "Sum", [-1], 1))


def root_mean_square(b: Builder) -> None:
    """Norms of single operators."""
    x = b.floats(least=1)
    total = reduce(b, b.add("Mul", x, x), b.pick(("Sum", "Mean")), [-1], 1)
    b.add("Div", x, b.add("Sqrt", positive(b, total)))


_WRITTEN: tuple[Callable[[Builder], None], ...] = (
    distributive, attention, layer_norm, gelu, convolution_block, convolution_block, linear_chain, parallel,
    constant_chain, there_and_back, cut_and_joined, shape_arithmetic, safe_softmax, root_mean_square,
)  # fmt: skip
MOTIFS: tuple[Maker, ...] = (*_WRITTEN, *(left_side,) * (2 * len(_WRITTEN)))
