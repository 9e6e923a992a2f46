"""Ways in which rewriting goes wrong, each done to a model at one place that is drawn."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import onnx
from onnx import NodeProto, helper

from .wounded import Wounded

Damage = Callable[[Wounded, Random], str | None]
"""Changes the model in place and names the place; None if the model has none."""

_UNBOUNDED = 1 << 30
"""Ends of a Slice from here on say: to the end."""
_SMALL = 1e-4
"""A constant up to this size that is added is an epsilon."""
_MASKING = -1e3
"""A constant below this hides scores."""
_ACTIVATIONS = {
    "Relu": ("LeakyRelu", {"alpha": 0.01}), "Sigmoid": ("HardSigmoid", {}), "Tanh": ("Softsign", {}),
    "Erf": ("Tanh", {}), "LeakyRelu": ("Relu", {}), "Elu": ("Selu", {}), "HardSigmoid": ("Sigmoid", {}),
    "Softplus": ("Relu", {}), "HardSwish": ("Relu", {}), "Gelu": ("Relu", {}), "Sin": ("Cos", {}),
    "Sqrt": ("Abs", {}), "Exp": ("Softplus", {}), "Floor": ("Ceil", {}), "Mish": ("Softplus", {}),
}  # fmt: skip
_REDUCTIONS = {
    "ReduceMean": "ReduceSum", "ReduceSum": "ReduceMean", "ReduceMax": "ReduceMean", "ReduceMin": "ReduceMax",
    "ReduceL2": "ReduceL1", "ReduceL1": "ReduceL2", "GlobalAveragePool": "GlobalMaxPool", "ArgMax": "ArgMin",
    "GlobalMaxPool": "GlobalAveragePool", "MaxPool": "AveragePool", "ReduceProd": "ReduceSum",
}  # fmt: skip
_STRICT = {"Less": "LessOrEqual", "LessOrEqual": "Less", "Greater": "GreaterOrEqual", "GreaterOrEqual": "Greater"}
_MIRRORED = {"Less": "Greater", "Greater": "Less", "LessOrEqual": "GreaterOrEqual", "GreaterOrEqual": "LessOrEqual"}
_WINDOWED = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
_WITH_EPSILON = (
    "LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization",
    "SimplifiedLayerNormalization", "SkipLayerNormalization",
)  # fmt: skip


def _chosen(model: Wounded, random: Random, test: Callable[[NodeProto], bool]) -> NodeProto | None:
    found = [node for node in model.nodes if test(node)]
    return random.choice(found) if found else None


def drop_scale(model: Wounded, random: Random) -> str | None:
    def is_scale(node: NodeProto) -> bool:
        return node.op_type in ("Mul", "Div") and model.constant_operand(node) is not None and model.is_float(node)

    node = _chosen(model, random, is_scale)
    return None if node is None else model.bypass(node, 1 - (model.constant_operand(node) or 0))


def drop_bias(model: Wounded, random: Random) -> str | None:
    def has_bias(node: NodeProto) -> bool:
        if node.op_type in ("Conv", "ConvTranspose", "Gemm", "LayerNormalization"):
            return len(node.input) == 3 and bool(node.input[2])
        return node.op_type in ("Add", "Sub") and model.constant_operand(node) is not None and model.is_float(node)

    node = _chosen(model, random, has_bias)
    if node is None:
        return None
    if node.op_type in ("Add", "Sub"):
        return model.bypass(node, 1 - (model.constant_operand(node) or 0))
    del node.input[2]
    return model.place(node)


def swap_weights(model: Wounded, random: Random) -> str | None:
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, value in model.floats():
        if value.size > 1:
            groups.setdefault(value.shape, []).append(name)
    pairs = [names for names in groups.values() if len(names) > 1]
    if not pairs:
        return None
    one, other = random.sample(random.choice(pairs), 2)
    first, second = model.constants[one], model.constants[other]
    model.set_constant(one, second)
    model.set_constant(other, first)
    return f"{one} and {other}"


def change_epsilon(model: Wounded, random: Random) -> str | None:
    factor = random.choice((0.1, 10.0, 100.0))

    def is_added(node: NodeProto) -> bool:
        value = model.constant_value(node)
        small = value is not None and value.size == 1 and 0 < abs(float(value.reshape(-1)[0])) <= _SMALL
        return node.op_type == "Add" and small and model.is_float(node)

    node = _chosen(model, random, lambda node: node.op_type in _WITH_EPSILON or is_added(node))
    if node is None:
        return None
    if node.op_type == "Add":
        position = model.constant_operand(node) or 0
        return model.replace_operand(node, position, model.constants[node.input[position]] * np.float32(factor))
    model.set_attribute(node, "epsilon", model.attribute(node, "epsilon", 1e-5) * factor)
    return f"{model.place(node)}, times {factor:g}"


def move_pad(model: Wounded, random: Random) -> str | None:
    def has_pads(node: NodeProto) -> bool:
        return node.op_type in _WINDOWED and any(model.attribute(node, "pads", []))

    node = _chosen(model, random, has_pads)
    if node is None:
        return None
    pads = list(model.attribute(node, "pads", []))
    axes = len(pads) // 2
    axis = random.choice([axis for axis in range(axes) if pads[axis] or pads[axis + axes]])
    step = 1 if pads[axis] else -1
    pads[axis], pads[axis + axes] = pads[axis] - step, pads[axis + axes] + step
    model.set_attribute(node, "pads", pads)
    return f"{model.place(node)}, {pads}"


def shift_axis(model: Wounded, random: Random) -> str | None:
    defaults = {"Softmax": -1, "LogSoftmax": -1, "Concat": 0, "Gather": 0, "GatherElements": 0, "ArgMax": 0,
                "ArgMin": 0, "TopK": -1, "LayerNormalization": -1, "Split": 0, "ScatterElements": 0}  # fmt: skip
    step = random.choice((-1, 1))

    def reduces(node: NodeProto) -> bool:
        return node.op_type.startswith("Reduce") and len(node.input) == 2 and node.input[1] in model.constants

    def is_cumulative(node: NodeProto) -> bool:
        return node.op_type == "CumSum" and node.input[1] in model.constants

    node = _chosen(model, random, lambda n: n.op_type in defaults or reduces(n) or is_cumulative(n))
    if node is None:
        return None
    if node.op_type in defaults:
        axis = model.attribute(node, "axis", defaults[node.op_type]) + step
        model.set_attribute(node, "axis", axis)
        return f"{model.place(node)}, axis {axis}"
    model.replace_operand(node, 1, model.constants[node.input[1]] + step)
    return f"{model.place(node)}, axes {step:+d}"


def flip_mask(model: Wounded, random: Random) -> str | None:
    def hides(node: NodeProto) -> bool:
        value = model.constant_value(node)
        return value is not None and value.dtype.kind == "f" and bool((value < _MASKING).any())

    node = _chosen(model, random, lambda n: n.op_type in ("Where", "Not", *_MIRRORED) or hides(n))
    if node is None:
        return None
    if node.op_type == "Where":
        node.input[1], node.input[2] = node.input[2], node.input[1]
    elif node.op_type == "Not":
        return model.bypass(node, 0)
    elif node.op_type in _MIRRORED:
        node.op_type = _MIRRORED[node.op_type]
    else:
        position = next(i for i, name in enumerate(node.input) if name in model.constants)
        model.replace_operand(node, position, -model.constants[node.input[position]])
    return model.place(node)


def exchange_operands(model: Wounded, random: Random) -> str | None:
    def has_two(node: NodeProto) -> bool:
        if node.op_type == "Split":
            return len(node.output) > 1
        return node.op_type in ("Sub", "Div", "Pow", "MatMul", "Concat") and len(node.input) > 1

    node = _chosen(model, random, has_two)
    if node is None:
        return None
    names = node.output if node.op_type == "Split" else node.input
    one, other = random.sample(range(len(names)), 2)
    names[one], names[other] = names[other], names[one]
    return f"{model.place(node)}, {one} and {other}"


def exchange_branches(model: Wounded, random: Random) -> str | None:
    node = _chosen(model, random, lambda n: n.op_type in ("If", "Where"))
    if node is None:
        return None
    if node.op_type == "Where":
        node.input[1], node.input[2] = node.input[2], node.input[1]
        return model.place(node)
    for attribute in node.attribute:
        attribute.name = {"then_branch": "else_branch", "else_branch": "then_branch"}.get(
            attribute.name, attribute.name
        )
    return model.place(node)


def round_half_up(model: Wounded, random: Random) -> str | None:
    node = _chosen(model, random, lambda n: n.op_type == "Round")
    if node is None:
        return None
    half = model.add_constant(np.asarray(0.5, np.float32))
    moved = model.insert_before(node, "Add", [node.input[0], half])
    node.op_type = "Floor"
    node.input[0] = moved
    return model.place(node)


def wrap_integers(model: Wounded, random: Random) -> str | None:
    """An integer passes through a type that is too narrow."""

    def reads_integers(node: NodeProto) -> bool:
        return any(
            model.element_type(name) in ("int64", "int32") and name not in model.constants for name in node.input
        )

    node = _chosen(model, random, reads_integers)
    if node is None:
        return None
    at = [i for i, name in enumerate(node.input) if model.element_type(name) in ("int64", "int32")]
    position = random.choice([i for i in at if node.input[i] not in model.constants])
    wide = model.element_type(node.input[position])
    narrow = model.insert_before(node, "Cast", [node.input[position]], to=onnx.TensorProto.INT8)
    kind = onnx.TensorProto.INT64 if wide == "int64" else onnx.TensorProto.INT32
    node.input[position] = model.insert_before(node, "Cast", [narrow], to=kind)
    return f"{model.place(node)}, operand {position}"


def take_stale_part(model: Wounded, random: Random) -> str | None:
    """A part of a Concat is one that was computed earlier."""
    node = _chosen(model, random, lambda n: n.op_type == "Concat" and len(n.input) > 1)
    return None if node is None else _stale(model, random, node)


def take_stale_operand(model: Wounded, random: Random) -> str | None:
    """An operand is a value of its shape that was computed earlier, as where a buffer is read too soon."""
    node = _chosen(model, random, lambda n: bool(n.input))
    return None if node is None else _stale(model, random, node)


def _stale(model: Wounded, random: Random, node: NodeProto) -> str | None:
    position = random.randrange(len(node.input))
    name = node.input[position]
    others = [each for each in model.earlier_values(node) if each != name and model.looks_like(each, name)]
    if not others or name in model.constants:
        return None
    node.input[position] = random.choice(others[-6:])
    return f"{model.place(node)}, {name} is {node.input[position]}"


def change_permutation(model: Wounded, random: Random) -> str | None:
    node = _chosen(model, random, lambda n: n.op_type == "Transpose" and len(model.attribute(n, "perm", [])) > 1)
    if node is None:
        return None
    order = list(model.attribute(node, "perm", []))
    dims = model.shape(node.output[0])
    pairs = [(i, j) for i in range(len(order)) for j in range(i) if dims is None or dims[i] == dims[j]]
    one, other = random.choice(pairs or [(0, 1)])
    order[one], order[other] = order[other], order[one]
    model.set_attribute(node, "perm", order)
    return f"{model.place(node)}, {order}"


def reshape_for_transpose(model: Wounded, random: Random) -> str | None:
    """A transposition is taken for a change of shape only."""

    def is_known(node: NodeProto) -> bool:
        dims = model.shape(node.output[0])
        return node.op_type == "Transpose" and dims is not None and sum(isinstance(each, str) for each in dims) < 2

    node = _chosen(model, random, is_known)
    if node is None:
        return None
    dims = [-1 if isinstance(each, str) else each for each in model.shape(node.output[0]) or ()]
    node.op_type = "Reshape"
    del node.attribute[:]
    node.input.append(model.add_constant(np.asarray(dims, np.int64)))
    return model.place(node)


def transpose_weight(model: Wounded, random: Random) -> str | None:
    def is_square(node: NodeProto) -> bool:
        value = model.constant_value(node)
        return node.op_type in ("MatMul", "Gemm") and value is not None and value.shape[0] == value.shape[-1] > 1

    node = _chosen(model, random, lambda n: is_square(n) and (model.constant_value(n) is not None))
    if node is None:
        return None
    position = next(i for i, name in enumerate(node.input) if name in model.constants)
    value = model.constants[node.input[position]]
    if value.ndim < 2:
        return None
    model.replace_operand(node, position, np.swapaxes(value, -1, -2))
    return model.place(node)


def swap_activation(model: Wounded, random: Random) -> str | None:
    node = _chosen(model, random, lambda n: n.op_type in _ACTIVATIONS and n.domain == "")
    if node is None:
        return None
    place = model.place(node)
    if node.op_type == "Gelu" and model.attribute(node, "approximate", b"none") == b"none":
        model.set_attribute(node, "approximate", "tanh")
        return place
    node.op_type, attributes = _ACTIVATIONS[node.op_type]
    del node.attribute[:]
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return place


def shift_slice(model: Wounded, random: Random) -> str | None:
    def is_fixed(node: NodeProto) -> bool:
        return node.op_type == "Slice" and node.input[1] in model.constants

    node = _chosen(model, random, is_fixed)
    if node is None:
        return None
    step = random.choice((-1, 1))
    model.replace_operand(node, 1, model.constants[node.input[1]] + step)
    ends = model.constants.get(node.input[2])
    if ends is not None and bool((abs(ends) < _UNBOUNDED).all()):
        model.replace_operand(node, 2, ends + step)
    return f"{model.place(node)}, {step:+d}"


def flip_keepdims(model: Wounded, random: Random) -> str | None:
    node = _chosen(model, random, lambda n: n.op_type.startswith(("Reduce", "Arg")))
    if node is None:
        return None
    model.set_attribute(node, "keepdims", 1 - model.attribute(node, "keepdims", 1))
    return model.place(node)


def change_bound(model: Wounded, random: Random) -> str | None:
    """The bound of a Clip, Min or Max; a tenth of its size away, or a tenth where it is 0."""

    def has_bound(node: NodeProto) -> bool:
        return node.op_type in ("Clip", "Min", "Max") and any(name in model.constants for name in node.input)

    node = _chosen(model, random, has_bound)
    if node is None:
        return None
    position = random.choice([i for i, name in enumerate(node.input) if name in model.constants])
    value = model.constants[node.input[position]]
    model.replace_operand(node, position, (value - 0.1 * np.where(value == 0, 1, value)).astype(value.dtype))
    return f"{model.place(node)}, operand {position}"


def change_dilation(model: Wounded, random: Random) -> str | None:
    """Twice the distance of the taps, with borders that keep the size."""

    def has_taps(node: NodeProto) -> bool:
        return (
            node.op_type == "Conv"
            and max(model.kernel(node), default=1) > 1
            and bool(model.attribute(node, "pads", []))
        )

    node = _chosen(model, random, has_taps)
    if node is None:
        return None
    kernel = model.kernel(node)
    pads = list(model.attribute(node, "pads", []))
    dilations = list(model.attribute(node, "dilations", [1] * len(kernel)))
    for axis, size in enumerate(kernel):
        extra = size - 1
        pads[axis] += extra // 2
        pads[axis + len(kernel)] += extra - extra // 2
        dilations[axis] += int(size > 1)
    model.set_attribute(node, "dilations", dilations)
    model.set_attribute(node, "pads", pads)
    return model.place(node)


def flip_count_include_pad(model: Wounded, random: Random) -> str | None:
    node = _chosen(model, random, lambda n: n.op_type == "AveragePool" and any(model.attribute(n, "pads", [])))
    if node is None:
        return None
    model.set_attribute(node, "count_include_pad", 1 - model.attribute(node, "count_include_pad", 0))
    return model.place(node)


def shift_index(model: Wounded, random: Random) -> str | None:
    """Constant indices of a Gather are one off, or one place on."""
    node = _chosen(model, random, lambda n: n.op_type.startswith("Gather") and n.input[1] in model.constants)
    if node is None:
        return None
    value = model.constants[node.input[1]]
    moved = np.roll(value, 1) if value.size > 1 else value + random.choice((-1, 1))
    model.replace_operand(node, 1, moved)
    return model.place(node)


def drop_summand(model: Wounded, random: Random) -> str | None:
    """A residual connection, or what it passes by, is lost."""

    def is_sum(node: NodeProto) -> bool:
        return node.op_type == "Add" and model.constant_operand(node) is None and model.is_float(node)

    node = _chosen(model, random, is_sum)
    return None if node is None else model.bypass(node, random.randrange(2))


def change_reduction(model: Wounded, random: Random) -> str | None:
    node = _chosen(model, random, lambda n: n.op_type in _REDUCTIONS and len(n.output) == 1)
    if node is None:
        return None
    place = model.place(node)
    node.op_type = _REDUCTIONS[node.op_type]
    kept = [each for each in node.attribute if each.name not in ("storage_order", "count_include_pad")]
    del node.attribute[:]
    node.attribute.extend(kept)
    return place


def roll_channels(model: Wounded, random: Random) -> str | None:
    """The channels of a weight are one place on, as where a Concat, Split or shuffle was moved wrongly."""
    found = [(name, value) for name, value in model.floats() if max(value.shape, default=1) > 1]
    if not found:
        return None
    name, value = random.choice(found)
    axis = random.choice([axis for axis, size in enumerate(value.shape) if size > 1])
    model.set_constant(name, np.roll(value, 1, axis))
    return f"{name}, axis {axis}"


def coarsen_weight(model: Wounded, random: Random) -> str | None:
    """A weight loses its precision: float32 through bfloat16."""
    found = [(name, value) for name, value in model.floats() if value.dtype == np.float32]
    if not found:
        return None
    name, value = random.choice(found)
    bits = np.array(value, order="C").view(np.uint32)
    model.set_constant(name, (bits & np.uint32(0xFFFF0000)).view(np.float32))
    return name


def round_constant(model: Wounded, random: Random) -> str | None:
    """A number is written with two digits."""
    found = [
        (name, value) for name, value in model.floats()
        if value.size == 1 and np.isfinite(value).all() and float(f"{value.item():.2g}") != value.item()
    ]  # fmt: skip
    if not found:
        return None
    name, value = random.choice(found)
    model.set_constant(name, np.full_like(value, float(f"{value.item():.2g}")))
    return name


def change_strictness(model: Wounded, random: Random) -> str | None:
    node = _chosen(model, random, lambda n: n.op_type in (*_STRICT, "Trilu"))
    if node is None:
        return None
    place = model.place(node)
    if node.op_type == "Trilu":
        diagonal = model.constants.get(node.input[1]) if len(node.input) > 1 and node.input[1] else np.asarray(0)
        moved = model.add_constant(np.asarray(int(diagonal if diagonal is not None else 0) + 1, np.int64))
        node.input[:] = [node.input[0], moved]
    else:
        node.op_type = _STRICT[node.op_type]
    return place


def change_resizing(model: Wounded, random: Random) -> str | None:
    node = _chosen(model, random, lambda n: n.op_type in ("Resize", "GridSample"))
    if node is None:
        return None
    if node.op_type == "GridSample":
        model.set_attribute(node, "align_corners", 1 - model.attribute(node, "align_corners", 0))
        return model.place(node)
    mode = model.attribute(node, "coordinate_transformation_mode", b"half_pixel")
    other = "align_corners" if mode == b"asymmetric" else "asymmetric"
    model.set_attribute(node, "coordinate_transformation_mode", other)
    if model.attribute(node, "mode", b"nearest") == b"nearest":
        model.set_attribute(node, "nearest_mode", "ceil")
    return model.place(node)


def change_product(model: Wounded, random: Random) -> str | None:
    node = _chosen(model, random, lambda n: n.op_type == "Gemm")
    if node is None:
        return None
    name = random.choice(("alpha", "beta", "transB"))
    value = 1 - model.attribute(node, "transB", 0) if name == "transB" else model.attribute(node, name, 1.0) * 1.01
    model.set_attribute(node, name, value)
    return f"{model.place(node)}, {name}"


def change_recurrence(model: Wounded, random: Random) -> str | None:
    """Two gates exchanged, another direction, or another place of the reset gate."""
    node = _chosen(model, random, lambda n: n.op_type in ("LSTM", "GRU", "RNN"))
    if node is None:
        return None
    weights = [position for position in (1, 2, 3) if node.input[position : position + 1] and
               node.input[position] in model.constants]  # fmt: skip
    choice = random.randrange(3)
    if choice == 0 and node.op_type == "GRU":
        model.set_attribute(node, "linear_before_reset", 1 - model.attribute(node, "linear_before_reset", 0))
    elif choice == 1 and model.attribute(node, "direction", b"forward") != b"bidirectional":
        is_forward = model.attribute(node, "direction", b"forward") == b"forward"
        model.set_attribute(node, "direction", "reverse" if is_forward else "forward")
    elif weights:
        position = random.choice(weights)
        value = model.constants[node.input[position]]
        hidden = model.attribute(node, "hidden_size", 1)
        order = np.roll(np.arange(value.shape[1]), hidden)
        model.replace_operand(node, position, value[:, order])
    return model.place(node)


DAMAGES: dict[str, Damage] = {
    function.__name__: function
    for function in (
        drop_scale, drop_bias, swap_weights, change_epsilon, move_pad, shift_axis, flip_mask, exchange_operands,
        exchange_branches, round_half_up, wrap_integers, take_stale_part, take_stale_operand, change_permutation,
        reshape_for_transpose, transpose_weight, swap_activation, shift_slice, flip_keepdims, change_bound,
        change_dilation, flip_count_include_pad, shift_index, drop_summand, change_reduction, roll_channels,
        coarsen_weight, round_constant, change_strictness, change_resizing, change_product, change_recurrence,
    )
}  # fmt: skip
"""By name."""
