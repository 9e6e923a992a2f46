"""Tasks of kernels whose sizes vary: they are measured at those that are optimised for."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest

from eqfuse.driver.compiler.compilation import kernels_of
from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.prim_funcs import DistinctKernels, ScheduleCheck
from eqfuse.lowering.tuning.tasks import TaskTable

from ..free_size_models import feature_maps, sequences

TYPICAL = ("H=21", "W=16", "N=1", "L=7")


@pytest.mark.parametrize("make", [feature_maps, sequences])
def test_dynamic_dimensions_of_a_task_have_typical_sizes(make: Callable[[], onnx.ModelProto]) -> None:
    proto = make()
    names = {dimension.dim_param for value in proto.graph.input for dimension in value.type.tensor_type.shape.dim}
    typical = tuple(fact for fact in TYPICAL if fact.partition("=")[0] in names)
    options = Options(partition="joint", verify=False, typical=typical)
    result = optimize_model(proto, None, options, None)
    graph, kernels = kernels_of(result, options.sizes.typical)
    functions = DistinctKernels.of(graph, kernels, Weights(result.rewritten.model))
    table = TaskTable(ScheduleCheck(functions, target_of("x86-64-v3", 1)))
    calls = table.calls(kernels)
    assert calls
    fixed = {value.name: value.type for value in graph.at_sizes(options.sizes.typical).values}
    for key in calls:
        task = table.tasks[key]
        assert all(type_.is_static for type_ in task.parameters)
        assert table.roofline(key) > 0
    made = {type_.elements() for key in calls for type_ in table.tasks[key].parameters}
    wanted = {type_.elements() for output in proto.graph.output if (type_ := fixed.get(output.name)) is not None}
    assert wanted
    assert wanted <= made
