"""From parsed arguments to the API's options."""

from __future__ import annotations

import argparse

from ..api import Options


def options_of(arguments: argparse.Namespace, *, verify: bool) -> Options:
    """The options of `optimize` and `bisect`."""
    return Options(
        cost=arguments.cost,
        device=arguments.device,
        precision=arguments.precision,
        rules=tuple(arguments.rules),
        only=tuple(arguments.only),
        skip=tuple(arguments.skip),
        time_limit=arguments.time_limit,
        node_limit=arguments.node_limit,
        iterations=arguments.iterations,
        extraction=arguments.extraction,
        opset=arguments.opset,
        input_shapes=dict(arguments.input_shapes),
        verify=verify,
        atol=arguments.atol,
        rtol=arguments.rtol,
        seed=arguments.seed,
    )
