"""The Python API: what is wrong with a call is one line, and what comes back can be looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqfuse
from eqfuse.cli.parser import build_parser
from eqfuse.engine.choices import CostName, Extraction, PartitionMethod
from eqfuse.errors import EqfuseError
from eqfuse.rules.vocabulary import Precision


def layers(count: int) -> onnx.ModelProto:
    """So many pairs of Relu and Add."""
    tensor, nodes = helper.make_tensor_value_info, []
    for number in range(count):
        nodes.append(helper.make_node("Relu", [f"h{number}"], [f"r{number}"]))
        nodes.append(helper.make_node("Add", [f"r{number}", "w"], [f"h{number + 1}"]))
    ends = [tensor("h0", TensorProto.FLOAT, [2, 3])], [tensor(f"h{count}", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph(nodes, "graph", *ends, [numpy_helper.from_array(np.ones((1, 3), np.float32), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bogus"}, "precision: 'bogus' is not one of exact, real, fast"),
        ({"partition": "bogus"}, "partition: 'bogus' is not one of joint, ago, dnnfusion, fuseops, none"),
        ({"cost": "bogus"}, "cost: 'bogus' is not one of roofline, flops, profile"),
        ({"extraction": "bogus"}, "extraction: 'bogus' is not one of exact, greedy"),
        ({"precission": "real"}, "precission: is no option; did you mean precision?"),
        ({"time_limit": 0}, "time_limit: 0 is not a number above 0"),
        ({"certify": True}, "certify: is about sub-graphs, and partition is none"),
        ({"partition": "joint", "cost": "flops"}, "partition: joint minimises time; it cannot be had with cost flops"),
        ({"opset": 999}, "opset: 999 is not known here; the newest is"),
        ({"device": "bogus"}, "device 'bogus': not found"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], message: str) -> None:
    with pytest.raises(EqfuseError) as refused:
        eqfuse.optimize(layers(1), **options)
    assert str(refused.value).startswith(message)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"tuning": {"trails": 3}}, "trails: is no option; did you mean trials?"),
        ({"tuning": {}}, "trials: has to be given"),
        ({"tuning": {"trials": "many"}}, "trials: 'many' is not a whole number"),
        ({"target": "dsa-goya", "accelerator": {"order": "bogus"}}, "order: 'bogus' is not one of better, bfs, dfs"),
        ({"target": "dsa-goya", "accelerator": {"batches": 2}}, "batches: is no option; did you mean batch?"),
        ({"partition": "bogus"}, "partition: 'bogus' is not one of"),
    ],
)
def test_options_of_compile_that_cannot_be_used(tmp_path: Path, call: dict[str, Any], message: str) -> None:
    with pytest.raises(EqfuseError) as refused:
        eqfuse.compile(layers(1), tmp_path / "bundle", **call)
    assert str(refused.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model_is_said() -> None:
    with pytest.raises(EqfuseError, match=r"^a model is a path, .*, not int$"):
        eqfuse.optimize(3)


def test_one_rule_file_need_be_no_sequence() -> None:
    with pytest.raises(EqfuseError, match=r"^my\.egg: cannot be read: No such file"):
        eqfuse.optimize(layers(1), rules="my.egg")


def test_a_result_is_shown_in_a_few_lines() -> None:
    """However large the model is."""
    small, large = (eqfuse.optimize(layers(count), verify=False) for count in (1, 60))
    for shown in (repr(large), repr(large.original), repr(large.extraction), repr(large.saturation)):
        assert len(shown) < 400
    assert repr(large).count("\n") == repr(small).count("\n") == 3
    assert repr(large).startswith("<Result: 120 -> ")


def test_a_verification_is_shown_in_one_line() -> None:
    shown = repr(eqfuse.optimize(layers(1)).verification)
    assert shown.startswith("<Verification: passed, 1 output(s), ")
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("option", "names"),
    [("precision", Precision), ("cost", CostName), ("extraction", Extraction), ("partition", PartitionMethod)],
)
def test_the_command_line_offers_what_the_api_takes(option: str, names: Any) -> None:
    for name in get_args(names):
        arguments = build_parser().parse_args(["optimize", "in.onnx", f"--{option}", name])
        assert getattr(eqfuse.Options(**{option: getattr(arguments, option)}), option) == name


@pytest.mark.parametrize(("options", "device"), [({}, "x86-64-v4"), ({"cost": "profile"}, "host")])
def test_prices_are_for_a_named_class_unless_they_were_measured_here(options: dict[str, str], device: str) -> None:
    assert eqfuse.Options(**options).device == device
    assert eqfuse.Options(**options, device="arm64").device == "arm64"


def test_what_the_package_offers_is_listed_before_it_is_loaded() -> None:
    assert {"optimize", "compile", "load", "EqfuseError"} <= set(dir(eqfuse))
