"""Branches with which a model cannot run: the other branch is always taken.

Exporters write an If where a framework drops an axis of one element if it has one. Its branches have different ranks,
and what follows takes only one of them. A run in which the other branch is taken ends with an error. So does one that
takes a branch with an operator for other sizes than the model has, as where a branch for each sampling rate is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir
from onnx_ir import serde

from ...support.errors import ModelError
from ..onnx.nodes import branches, is_flat_if, is_standard
from ..onnx.typing import infer_outputs, type_proto
from ..shapes.inference import Knowledge
from .constant_control import replace_by_branch
from .flatten import FlatModel

Inference = Callable[[FlatModel], Knowledge]


def refute_branches(flat: FlatModel, knowledge: Knowledge, infer: Inference) -> bool:
    """Put the other branch in the place of an If where one leads to an operator that cannot run.

    Changes the flat model. Returns whether there were any. `infer` infers the types of a flat model that it may change.
    """
    if _refute_invalid_branch(flat, knowledge):
        return True
    candidates = list(_candidates(flat, knowledge))
    for branch in (1, 0) if candidates else ():
        assumed = flat.copy()
        copies = dict(zip(flat.graph, assumed.graph, strict=True))
        for node in candidates:
            replace_by_branch(assumed, copies[node], branch)
        try:
            consequences = infer(assumed)
        except ModelError:
            continue
        refuted = [node for node in candidates if _fails(flat, node, candidates, knowledge, consequences)]
        for node in refuted:
            replace_by_branch(flat, node, 1 - branch)
        if refuted:
            return True
    return False


def _refute_invalid_branch(flat: FlatModel, knowledge: Knowledge) -> bool:
    """Put the other branch in the place of an If one of whose branches has an operator that cannot run, if any."""
    choices = [(node, flat.branches[node.outputs[0].name or ""]) for node in filter(is_flat_if, flat.graph)]
    scopes = {scope for _, pair in choices for scope in pair}
    homes = ((_home(flat, node), node) for node in flat.graph)
    failing = {home for home, node in homes if home in scopes and _is_invalid(node, knowledge, flat.model.opset)}
    for node, pair in choices:
        fails = [scope in failing for scope in pair]
        if fails.count(True) == 1:
            replace_by_branch(flat, node, fails.index(False))
            return True
    return False


def _candidates(flat: FlatModel, knowledge: Knowledge) -> Iterator[ir.Node]:
    """Ifs whose branches have different ranks, none of them computed from another."""
    dependent: set[ir.Value] = set()
    for node in flat.graph:
        is_dependent = any(value in dependent for value in node.inputs)
        if is_flat_if(node) and not is_dependent and _has_two_ranks(node, knowledge):
            is_dependent = True
            yield node
        if is_dependent:
            dependent.update(node.outputs)


def _has_two_ranks(node: ir.Node, knowledge: Knowledge) -> bool:
    for pair in zip(*branches(node), strict=True):
        types = [knowledge.types.get(value.name or "") for value in pair]
        if len({len(t.shape) for t in types if t is not None and t.shape is not None}) == 2:
            return True
    return False


def _fails(
    flat: FlatModel, branch: ir.Node, candidates: list[ir.Node], knowledge: Knowledge, consequences: Knowledge
) -> bool:
    """Whether an operator that runs whenever an If does, and reads no other candidate, cannot run."""
    home = _home(flat, branch)
    others = {output for node in candidates if node is not branch for output in node.outputs}
    dependent = set(branch.outputs)
    for node in flat.graph:
        if any(value in others for value in node.inputs):
            others.update(node.outputs)
        elif any(value in dependent for value in node.inputs):
            dependent.update(node.outputs)
            here = _home(flat, node)
            runs = home is not None and here is not None and flat.encloses(here, home)
            if runs and _is_invalid(node, consequences, flat.model.opset):
                return not _is_invalid(node, knowledge, flat.model.opset)
    return False


def _home(flat: FlatModel, node: ir.Node) -> int | None:
    return next((flat.homes[o.name] for o in node.outputs if o.name and o.name in flat.homes), None)


def _is_invalid(node: ir.Node, knowledge: Knowledge, opset: int) -> bool:
    """Whether ONNX refuses the types of the operands of a node, all of known rank."""
    names = [value.name for value in node.inputs if value is not None and value.name]
    types = [knowledge.types.get(name) for name in names]
    protos = {n: type_proto(t) for n, t in zip(names, types, strict=True) if t is not None and t.shape is not None}
    if not is_standard(node) or len(protos) < len(set(names)):
        return False
    return infer_outputs(serde.serialize_node(node), protos, knowledge.constants, opset) is None
