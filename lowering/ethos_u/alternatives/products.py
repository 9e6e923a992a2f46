"""Convolutions of one map with the same window as one, whose result is sliced, or was joined anyway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..tosa.graph import Array, Graph, Operator
from .edit import Alternative, Chain, Edit, chain_of, data_of


def merged_products(graph: Graph) -> Iterator[Alternative]:
    groups: dict[tuple[object, ...], list[Chain]] = {}
    for operator in graph.operators:
        if operator.op == "CONV2D" and (chain := chain_of(graph, operator)) is not None:
            groups.setdefault(_shared(graph, chain), []).append(chain)
    for chains in groups.values():
        if len(chains) > 1:
            label = f"{len(chains)} convolutions of {chains[0].product.inputs[0]} as one"
            yield Alternative(label, _merge(graph, chains))


def _shared(graph: Graph, chain: Chain) -> tuple[object, ...]:
    """The parts in which products have to agree."""
    x, weights, _, *zeros = chain.product.inputs
    return (
        x, graph.tensors[weights].shape[1:], *zeros, *chain.product.attributes.items(), chain.rescale.inputs[3:],
        *((name, value) for name, value in chain.rescale.attributes.items() if name != "per_channel"),
        *(chain.clamp.attributes.items() if chain.clamp else ()),
    )  # fmt: skip


def _merge(graph: Graph, chains: Sequence[Chain]) -> Graph:
    edit, first = Edit(graph), chains[0]
    depths = [graph.tensors[each.result].shape[-1] for each in chains]
    shape = (*graph.tensors[first.result].shape[:-1], sum(depths))
    x, weights, bias, *zeros = first.product.inputs
    kernel = edit.constant(weights, np.concatenate([data_of(graph, each.product.inputs[1]) for each in chains]))
    biases = edit.constant(bias, _by_channel(graph, [each.product.inputs[2] for each in chains], depths))
    scales = [
        edit.constant(names[0], _by_channel(graph, names, depths))
        for names in ([chain.rescale.inputs[place] for chain in chains] for place in (1, 2))
    ]
    sums, rounded = (edit.tensor(each, shape) for each in (first.product.output, first.rescale.output))
    merged = [
        replace(first.product, inputs=(x, kernel, biases, *zeros), output=sums),
        replace(
            first.rescale, inputs=(sums, *scales, *first.rescale.inputs[3:]), output=rounded,
            attributes={**first.rescale.attributes, "per_channel": True},
        ),
    ]  # fmt: skip
    if first.clamp is not None:
        clamped = edit.tensor(first.clamp.output, shape)
        merged.append(replace(first.clamp, inputs=(rounded,), output=clamped))
        rounded = clamped
    start = 0
    for chain, depth in zip(chains, depths, strict=True):
        begin = edit.sizes(*(0 for _ in shape[:-1]), start)
        size = edit.sizes(*shape[:-1], depth)
        merged.append(Operator("SLICE", (rounded, begin, size), chain.result))
        start += depth
    for chain in chains:
        for operator in (chain.product, chain.rescale, *((chain.clamp,) if chain.clamp else ())):
            edit.put(operator.output)
    edit.put(first.product.output, *merged)
    for reader in graph.readers[first.result]:
        if reader.op == "CONCAT" and reader.attributes["axis"] == len(shape) - 1:
            joined = _with_whole(reader.inputs, tuple(each.result for each in chains), rounded)
            edit.put(reader.output, _concat(reader, joined))
    return edit.finish()


def _by_channel(graph: Graph, names: Iterable[str], depths: Iterable[int]) -> Array:
    return np.concatenate([
        np.broadcast_to(data_of(graph, name).reshape(-1), (depth,)) for name, depth in zip(names, depths, strict=True)
    ])  # fmt: skip


def _with_whole(operands: tuple[str, ...], parts: tuple[str, ...], whole: str) -> tuple[str, ...]:
    """The operands with one in place of its parts, if these stand beside each other."""
    for place in range(len(operands) - len(parts) + 1):
        if operands[place : place + len(parts)] == parts:
            return (*operands[:place], whole, *operands[place + len(parts) :])
    return operands


def _concat(operator: Operator, operands: tuple[str, ...]) -> Operator:
    return replace(operator, inputs=operands) if len(operands) > 1 else Operator("IDENTITY", operands, operator.output)
