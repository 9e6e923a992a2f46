"""Nodes that are compiled kernels, among those that are loops: ``Y = kernel(X, W)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import onnx
from onnx import helper

from ...ir.sizes import Size
from .plan import Requirement
from .sizes import Demand, Solution, solve_sizes

KERNEL_DOMAIN = "eqfuse.kernel"
"""The domain of kernels; the type of a node is the kernel's symbol."""


@dataclass(frozen=True)
class KernelSignature:
    """The shapes of a kernel's inputs and outputs in memory, the element types of its outputs, and what sizes have to
    fulfil. All sizes follow from the shapes of the inputs."""

    inputs: tuple[tuple[int | Size, ...], ...]
    outputs: tuple[tuple[int | Size, ...], ...]
    dtypes: tuple[str, ...]
    requirements: tuple[Requirement, ...] = ()

    def solve(self) -> list[Solution | Demand]:
        """How the sizes follow from the shapes of the inputs. Raises ValueError with one that does not."""
        steps = solve_sizes(self.inputs)
        solved = {step.name for step in steps if isinstance(step, Solution)}
        sizes = [size.names() for shape in self.outputs for size in shape if isinstance(size, Size)]
        for names in (*sizes, *(required.relation.names() for required in self.requirements)):
            if unknown := names - solved:
                raise ValueError(min(unknown))
        return steps


def make_kernel_node(
    symbol: str, inputs: Sequence[str], outputs: Sequence[str], signature: KernelSignature
) -> onnx.NodeProto:
    """The node of a kernel."""
    text = msgspec.json.encode(signature).decode()
    return helper.make_node(symbol, inputs, outputs, domain=KERNEL_DOMAIN, signature=text)


def signature_of(node: onnx.NodeProto) -> KernelSignature:
    """The signature that `make_kernel_node` was given."""
    return msgspec.json.decode(node.attribute[0].s, type=KernelSignature)
