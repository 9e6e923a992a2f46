"""The Python API: an error of a call is one line, and results can be looked at."""

from __future__ import annotations

import argparse
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.cli.parser import build_parser
from eqfuse.engine.choices import CostName, Extraction, PartitionMethod
from eqfuse.rules.vocabulary import Precision
from eqfuse.support.errors import EqfuseError

from .engine.models import model, value


def layers(count: int) -> onnx.ModelProto:
    """A chain of pairs of Relu and Add."""
    nodes = []
    for number in range(count):
        nodes.append(helper.make_node("Relu", [f"h{number}"], [f"r{number}"]))
        nodes.append(helper.make_node("Add", [f"r{number}", "w"], [f"h{number + 1}"]))
    ends = [value("h0", [2, 3])], [value(f"h{count}", [2, 3])]
    return model(nodes, *ends, {"w": np.ones((1, 3), np.float32)})


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
        ({"partition": "joint", "cost": "flops"}, "partition: joint minimises time; it cannot be used with cost flops"),
        ({"opset": 999}, "opset: 999 is not known here; the newest is"),
        ({"device": "bogus"}, "there is no device 'bogus'"),
        ({"runtime": "bogus"}, "runtime: 'bogus' is not one of onnxruntime, onnxruntime-1.22, onnxruntime-vnni, none"),
        ({"measure": 0}, "measure: 0 is not a number above 0"),
        ({"threads": 2}, "threads: is for measure, which was not asked for"),
        ({"measure": 1, "partition": "ago"}, "measure: times whole graphs, and a partition was asked for"),
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
        ({"target": "dsa-goya", "domains": "com.microsoft"}, "domains: a program for an accelerator has operators"),
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
        eqfuse.optimize(3)  # type: ignore[call-overload]


def test_one_rule_file_need_be_no_sequence() -> None:
    with pytest.raises(EqfuseError, match=r"^my\.egg: cannot be read: No such file"):
        eqfuse.optimize(layers(1), rules="my.egg")


def test_a_result_is_shown_in_a_few_lines() -> None:
    """However large the model is."""
    small, large = (eqfuse.optimize_with_result(layers(count), verify=False) for count in (1, 60))
    for shown in (repr(large), repr(large.original), repr(large.extraction), repr(large.saturation)):
        assert len(shown) < 400
    assert repr(large).count("\n") == repr(small).count("\n") == 3
    assert repr(large).startswith("<Result: 120 -> ")


def test_a_verification_is_shown_in_one_line() -> None:
    shown = repr(eqfuse.optimize_with_result(layers(1)).verification)
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
def test_costs_are_for_a_named_class_unless_they_were_measured_here(options: dict[str, str], device: str) -> None:
    assert eqfuse.Options(**options).device == device
    assert eqfuse.Options(**options, device="arm64").device == "arm64"


def test_the_package_lists_its_api_before_it_is_loaded() -> None:
    assert {"optimize", "compile", "load", *FUNCTIONS, "EqfuseError"} <= set(dir(eqfuse))


FUNCTIONS = ("optimize", "compile", "verify", "inspect", "diff", "bench")
WITHOUT_FLAG = {
    "optimize": {"observer", "intensive"},
    "compile": {
        "observer", "accelerator", "tuning", "device", "runtime", "as_functions", "certify", "certificate",
        "save_intermediate",
    },
}  # fmt: skip
"""The keywords that a command has no flag for: on the command line the device is the target, and the fields of
`accelerator` and `tuning` are flags of their own."""
WITHOUT_KEYWORD = {
    "optimize": {"out", "report"},
    "compile": {
        "batch_axis", "floats", "variant", "order", "per_cluster", "up_sampling", "trials", "tuning_limit", "reformer",
        "runner", "tracker", "device_key", "cluster",
    },
}  # fmt: skip


def parameters(name: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function of the API."""
    return inspect.signature(getattr(eqfuse, name)).parameters


def flags(command: str) -> dict[str, argparse.Action]:
    """A command's arguments by destination, without those of every command, the models and the file to write."""
    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    common = {"help", "verbose", "quiet", "json", "output"}
    positional = {"optimize": {"model"}, "compile": {"model"}, "bench": {"bundle"}, "inspect": {"models"}}
    models = positional.get(command, {"model", "candidate"})
    return {a.dest: a for a in commands.choices[command].filled()._actions if a.dest not in common | models}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_command_has_the_keywords_of_its_function(name: str) -> None:
    keywords = {key for key, each in parameters(name).items() if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert set(flags(name)) - WITHOUT_KEYWORD.get(name, set()) == keywords - WITHOUT_FLAG.get(name, set())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_says_of_each_option_what_the_command_line_says(name: str) -> None:
    described = " ".join(getattr(eqfuse, name).__doc__.split())
    assert [key for key in parameters(name) if f" {key}: " not in described] == []
    for key, action in flags(name).items():
        if key in parameters(name) and not isinstance(action, argparse._StoreFalseAction):
            said = str(action.help).removesuffix("; repeatable")
            sentence = re.sub(r"--([a-z][\w-]*)", lambda flag: f"`{flag[1].replace('-', '_')}`", said)
            assert f" {key}: {sentence} " in f"{described} ", key


def test_defaults_of_a_signature_are_those_that_are_used() -> None:
    assert parameters("optimize")["partition"].default == "none"
    assert parameters("compile")["partition"].default == "joint"
    assert parameters("optimize")["input_shapes"].default == {}
    assert eqfuse.Options() == eqfuse.Options(
        **{name: parameters("optimize")[name].default for name in vars(eqfuse.Options())}
    )


def test_help_shows_every_function_with_its_options() -> None:
    text = pydoc.plain(pydoc.render_doc(eqfuse))
    for name in FUNCTIONS:
        assert f"\n    {name}(" in text
    assert "precision: 'Precision' = 'real'" in text


def test_importing_the_package_loads_none_of_it() -> None:
    heavy = ("onnx", "onnx_ir", "numpy", "scipy", "onnxruntime", "tvm", "eqfuse.api")
    script = f"import sys, eqfuse; dir(eqfuse); print(*set({heavy}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_model_is_inspected_compared_and_verified() -> None:
    model = layers(2)
    assert eqfuse.inspect(model).inputs == {"h0": "float[2, 3]"}
    assert eqfuse.inspect(model, partition="ago").partition is not None
    assert eqfuse.diff(model, layers(1)).after.layers == 2
    assert eqfuse.verify(model, model, seed=3).status == "passed"
    assert eqfuse.verify(model, layers(1)).status == "failed"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eqfuse.verify(layers(1), layers(1), atoll=1), "atoll: is no option; did you mean atol?"),  # type: ignore[call-arg]
        (lambda: eqfuse.inspect(layers(1), cost="bogus"), "cost: 'bogus' is not one of"),
        (lambda: eqfuse.bench("gone", repeat=0), "repeat: 0 is not a number above 0"),
        (lambda: eqfuse.bench("gone"), "gone: no such folder"),
    ],
)
def test_other_functions_say_what_is_wrong_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(EqfuseError) as refused:
        call()
    assert str(refused.value).startswith(message)
