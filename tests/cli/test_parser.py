"""What the parser accepts, what it refuses, and that it starts fast."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from string import ascii_letters

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.cli.arguments import input_shape
from eqfuse.cli.parser import build_parser

from .command_line import CommandLine

HEAVY = ("onnx", "onnx_ir", "numpy", "z3", "scipy", "onnxruntime", "egglog", "rich")

NAMES = st.text(ascii_letters + "0123456789_:/. ", min_size=1)
SIZES = st.lists(st.integers(0, 10**6), min_size=2)


@given(NAMES, SIZES)
def test_the_three_spellings_of_a_shape_mean_the_same(name: str, sizes: list[int]) -> None:
    commas, crosses = ",".join(map(str, sizes)), "x".join(map(str, sizes))
    spellings = (f"{name}:{commas}", f"{name}:[{commas}]", f"{name}:{crosses}")
    assert {input_shape(text) for text in spellings} == {(name, tuple(sizes))}


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("x:batch,3", ("batch", 3)),
        ("x:[batch, 3]", ("batch", 3)),
        ("x:Nx3x8", ("N", 3, 8)),
        ("x:7", (7,)),
        ("x:max", ("max",)),
        ("x:[]", ()),
    ],
)
def test_dimensions_with_names(text: str, shape: tuple[int | str, ...]) -> None:
    assert input_shape(text) == ("x", shape)


@pytest.mark.parametrize("text", ["x", "x:", ":1,2", "x:1,-2", "x:1,,2", "x:1.5,2", "x:[1,2", "x:1 2", "x:1x-1"])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        input_shape(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("polish",), "polish"),
        (("optimise", "m"), "there is no command 'optimise'; did you mean optimize?"),
        (("rules", "shw"), "there is no action 'shw'; did you mean show?"),
        (("optimize", "m", "--precison", "fast"), "there is no option --precison; did you mean --precision?"),
        (("optimize", "--precison", "fast"), "there is no option --precison; did you mean --precision?"),
        (("--versoin",), "there is no option --versoin; did you mean --version?"),
        (("compile", "m", "--force"), "there is no option --force; see eqfuse compile --help"),
        (("verify", "a", "b", "-p"), "there is no option -p; see eqfuse verify --help"),
        (("verify", "a", "b", "c"), "c is one argument too many; see eqfuse verify --help"),
        (("optimize", "m", "--precison=fast"), "there is no option --precison; did you mean --precision?"),
        (("optimize", "m", "--precision", "fsat"), "there is no 'fsat'; did you mean fast?"),
        (("optimize",), "model"),
        (("optimize", "m", "--input-shapes", "x"), "'x' is not NAME:SHAPE"),
        (("optimize", "m", "--cost", "beauty"), "beauty"),
        (("optimize", "m", "--time-limit", "0"), "0 is not a number above 0"),
        (("optimize", "m", "--time-limit", "inf"), "inf is not a finite number"),
        (("optimize", "m", "--node-limit", "many"), "'many' is not a whole number"),
        (("verify", "a", "b", "--verify-limit", "0"), "0 is not a number above 0"),
        (("optimize", "m", "--opset", "-3"), "-3 is not a number above 0"),
        (("optimize", "m", "--seed", "-1"), "-1 is not a number from 0 on"),
        (("verify", "a", "b", "--atol", "nan"), "nan is not a number from 0 on"),
    ],
)
def test_usage_errors_are_one_line(eqfuse: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    said = eqfuse.run(*arguments)
    assert (said.code, said.out) == (2, "")
    assert message in said.error


def test_usage_errors_are_json_too(eqfuse: CommandLine) -> None:
    said = eqfuse.run("optimise", "m", "--json")
    assert said.code == 2
    assert json.loads(said.out)["error"] == said.error


@pytest.mark.parametrize(
    "command",
    [
        *("", "optimize", "compile", "run", "bench", "verify", "inspect", "diff", "bisect"),
        *("rules", "rules list", "rules show", "rules check"),
    ],
)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as stop:
        build_parser().parse_args([*command.split(), "--help"])
    assert stop.value.code == 0
    assert f"usage: eqfuse {command}".rstrip() in capsys.readouterr().out


@pytest.mark.parametrize("command", ["", "rules", "device"])
def test_a_command_without_a_rest_prints_its_help(eqfuse: CommandLine, command: str) -> None:
    said = eqfuse.run(*command.split())
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"usage: eqfuse {command}".rstrip())


@pytest.mark.parametrize("before", [("-q",), ("-vv", "--json"), ("--quiet", "--verbose")])
def test_flags_of_every_command_may_stand_before_it(before: tuple[str, ...]) -> None:
    command = "rules", "list"
    first, last = (build_parser().parse_args(line) for line in ([*before, *command], [*command, *before]))
    assert vars(first) == vars(last)


def test_parsing_imports_nothing_heavy(eqfuse: CommandLine) -> None:
    script = (
        "import sys, eqfuse.cli.parser as p; p.build_parser().parse_args(['optimize', 'm']); "
        f"print(*set({HEAVY}) & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=eqfuse.environment())
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_help_alone_is_printed_without_the_options(eqfuse: CommandLine) -> None:
    script = (
        "import atexit, sys, eqfuse.cli; atexit.register(lambda: print('eqfuse.support.options' in sys.modules)); "
        "eqfuse.cli.main(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=eqfuse.environment())
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "False")
