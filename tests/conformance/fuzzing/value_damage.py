"""Damage to what single attributes, tensors and types say. Each kind damages a model in place."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from .sites import (
    FLOATS,
    INTEGERS,
    NAMES,
    SIZES,
    TYPES,
    attributes_of,
    chosen,
    graphs_of,
    nodes_of,
    tensors_of,
    values_of,
)


def change_an_integer_attribute(model: ModelProto, random: Random) -> None:
    node = random.choice([n for n in nodes_of(model) if n.attribute] or nodes_of(model))
    attribute = chosen([a for a in node.attribute if a.type in (AttributeProto.INT, AttributeProto.INTS)], random)
    if attribute is None:
        node.attribute.append(helper.make_attribute(random.choice(("axis", "to", "keepdims")), random.choice(INTEGERS)))
    elif attribute.type == AttributeProto.INT:
        attribute.i = random.choice(INTEGERS)
    elif attribute.ints:
        attribute.ints[random.randrange(len(attribute.ints))] = random.choice(INTEGERS)


def change_the_length_of_an_attribute(model: ModelProto, random: Random) -> None:
    attribute = chosen([a for a in attributes_of(model) if a.type == AttributeProto.INTS], random)
    if attribute is None:
        axes = [random.choice(INTEGERS) for _ in range(random.randrange(5))]
        random.choice(nodes_of(model)).attribute.append(
            helper.make_attribute("axes", axes, attr_type=AttributeProto.INTS)
        )
    else:
        attribute.ints[:] = list(attribute.ints)[: random.randrange(3)] * random.choice((0, 1, 2, 1000))


def change_a_float(model: ModelProto, random: Random) -> None:
    attribute = chosen([a for a in attributes_of(model) if a.type == AttributeProto.FLOAT], random)
    if attribute is None:
        name = random.choice(("alpha", "epsilon", "value_float", "beta"))
        attribute = random.choice(nodes_of(model)).attribute.add(name=name, type=AttributeProto.FLOAT)
    attribute.f = random.choice(FLOATS)


def change_the_type_of_an_attribute(model: ModelProto, random: Random) -> None:
    attribute = chosen(attributes_of(model), random)
    if attribute is not None:
        value: Any = random.choice((1, 1.5, "text", b"\xff\x00", [1], [1.5], ["a", "b"], np.float32(2), model.graph))
        value = numpy_helper.from_array(np.asarray(value)) if isinstance(value, np.generic) else value
        attribute.CopyFrom(helper.make_attribute(attribute.name, value))


def rename_an_attribute(model: ModelProto, random: Random) -> None:
    attribute = chosen(attributes_of(model), random)
    if attribute is not None:
        attribute.name = random.choice((*NAMES, "axis", "perm", "value", "body"))


def move_attributes(model: ModelProto, random: Random) -> None:
    one, other = random.choice(nodes_of(model)), random.choice(nodes_of(model))
    one.attribute.extend(list(other.attribute))  # for ever, without a copy, where both are the same node
    if random.random() < 0.5:
        del other.attribute[:]


def change_dimensions_of_a_tensor(model: ModelProto, random: Random) -> None:
    tensor = chosen(tensors_of(model), random)
    if tensor is not None:
        tensor.dims[:] = random.choice(([], [0], [1, *tensor.dims], [*tensor.dims, 0], [random.choice(SIZES)] * 2))


def reshape_a_tensor(model: ModelProto, random: Random) -> None:
    """As many elements, in another shape."""
    tensor = chosen(tensors_of(model), random)
    if tensor is not None:
        dims = list(tensor.dims)
        random.shuffle(dims)
        tensor.dims[:] = random.choice((dims, [math.prod(dims)], [1, *dims], [*dims, 1, 1]))


def change_numbers_of_a_tensor(model: ModelProto, random: Random) -> None:
    tensor = chosen([t for t in tensors_of(model) if t.data_location != TensorProto.EXTERNAL], random)
    if tensor is not None and tensor.data_type != TensorProto.STRING:
        array = numpy_helper.to_array(tensor).copy()
        numbers = INTEGERS if array.dtype.kind in "iub" else FLOATS
        with np.errstate(all="ignore"):
            extreme = np.asarray(random.choice(numbers)).astype(array.dtype)
        array.flat[random.randrange(array.size) if random.random() < 0.5 else slice(None)] = extreme
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def change_the_type_of_a_tensor(model: ModelProto, random: Random) -> None:
    tensor = chosen(tensors_of(model), random)
    if tensor is not None:
        tensor.data_type = random.choice(TYPES)


def convert_a_tensor(model: ModelProto, random: Random) -> None:
    """The tensor is sound, and of a type that nobody expects."""
    tensor = chosen([t for t in tensors_of(model) if t.data_location != TensorProto.EXTERNAL], random)
    if tensor is not None and tensor.data_type != TensorProto.STRING:
        with np.errstate(all="ignore"):
            kind = random.choice((np.float16, np.float64, np.int8, np.uint64, np.int64, np.bool_, np.complex64))
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(kind), tensor.name))


def exchange_tensors(model: ModelProto, random: Random) -> None:
    tensors = tensors_of(model)
    if tensors:
        one, other, name = random.choice(tensors), random.choice(tensors), random.choice((True, False))
        kept = one.name
        one.CopyFrom(other)
        one.name = kept if name else other.name


def change_a_dimension(model: ModelProto, random: Random) -> None:
    value = random.choice(values_of(model))
    dims = value.type.tensor_type.shape.dim
    if dims:
        dim = random.choice(dims)
        dim.Clear()
        if random.random() < 0.7:
            dim.dim_value = random.choice((*SIZES, -1))
        else:
            dim.dim_param = random.choice((*NAMES, "N", "N*N", "2**99", "a+" * 300 + "a"))


def change_the_rank_of_a_value(model: ModelProto, random: Random) -> None:
    shape = random.choice(values_of(model)).type.tensor_type.shape
    sizes = random.choice(([], [1] * 40, [2] * 70, [0, 0], [random.choice(SIZES)]))
    del shape.dim[:]
    for size in sizes:
        shape.dim.add(dim_value=size)


def change_the_type_of_a_value(model: ModelProto, random: Random) -> None:
    type_ = random.choice(values_of(model)).type
    match random.randrange(4):
        case 0:
            type_.tensor_type.elem_type = random.choice(TYPES)
        case 1:
            type_.sequence_type.elem_type.tensor_type.elem_type = random.choice(TYPES)
        case 2:
            type_.map_type.key_type = TensorProto.INT64
            type_.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
        case _:
            type_.Clear()


def contradict_by_value_info(model: ModelProto, random: Random) -> None:
    graph = random.choice(list(graphs_of(model.graph)))
    name = random.choice([o for node in graph.node for o in node.output] or ["x"])
    shape = [random.choice((*SIZES, "N")) for _ in range(random.randrange(5))]
    graph.value_info.append(helper.make_tensor_value_info(name, random.choice(TYPES), shape))


def damage_sparse_tensors(model: ModelProto, random: Random) -> None:
    if not model.graph.sparse_initializer:
        values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [2.0])
        indices = helper.make_tensor("at", TensorProto.INT64, [1], [0])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
    sparse = model.graph.sparse_initializer[0]
    match random.randrange(4):
        case 0:
            sparse.dims[:] = [random.choice(SIZES)] * random.randrange(3)
        case 1:
            count = len(numpy_helper.to_array(sparse.indices))
            wrong = np.full(count, random.choice(INTEGERS))
            sparse.indices.CopyFrom(numpy_helper.from_array(wrong))
        case 2:
            sparse.values.name = random.choice((*NAMES, "w"))
        case _:
            sparse.indices.data_type = random.choice(TYPES)


VALUE_DAMAGES = (
    change_an_integer_attribute, change_the_length_of_an_attribute, change_a_float,
    change_the_type_of_an_attribute, rename_an_attribute, move_attributes, change_dimensions_of_a_tensor,
    reshape_a_tensor, change_numbers_of_a_tensor, change_the_type_of_a_tensor, convert_a_tensor, exchange_tensors,
    change_a_dimension, change_the_rank_of_a_value, change_the_type_of_a_value, contradict_by_value_info,
    damage_sparse_tensors,
)  # fmt: skip
"""Each damages a model in place."""
