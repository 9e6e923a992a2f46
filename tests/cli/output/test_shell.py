"""Completion as a shell does it, and the schema of what commands print on `--json`."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess

import pytest

from eqfuse.cli.parser import build_parser, fill
from eqfuse.driver.json_output import OUTPUTS

from ..command_line import CommandLine

_COMPLETE = """
source completion.bash
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
function=$(complete -p eqfuse | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["opt"], {"optimize"}),
        (["rules", "op"], {"operators"}),
        (["optimize", "--precis"], {"--precision"}),
        (["optimize", "in.onnx", "--precision", ""], {"exact", "fast"}),
        (["inspect", "in"], {"in.onnx"}),
        (["run", "bui"], {"build"}),
    ],
)
def test_bash_completes(eqfuse: CommandLine, words: list[str], expected: set[str]) -> None:
    eqfuse.small()
    (eqfuse.folder / "build").mkdir()
    eqfuse.write("completion.bash", eqfuse.run("completion", "bash").out)
    script = _COMPLETE.format(words=shlex.join(["eqfuse", *words]))
    done = subprocess.run(["bash", "-c", script], cwd=eqfuse.folder, capture_output=True, text=True)
    assert set(done.stdout.split()) >= expected, done.stderr
    assert not [line for line in done.stdout.split() if not line.startswith(words[-1])]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_knows_the_command(eqfuse: CommandLine) -> None:
    eqfuse.write("_eqfuse", eqfuse.run("completion", "zsh").out)
    script = "fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; print $_comps[eqfuse]"
    done = subprocess.run(["zsh", "-fc", script], cwd=eqfuse.folder, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("_eqfuse", "")
    assert subprocess.run(["zsh", "-n", "_eqfuse"], cwd=eqfuse.folder, capture_output=True).stderr == b""


def test_every_command_has_a_schema() -> None:
    commands = {each.prog.removeprefix("eqfuse ") for each in fill(build_parser()) if each.get_default("command")}
    assert set(OUTPUTS) == commands - {"completion", "schema"}


def test_a_schema_lists_the_fields_and_the_error(eqfuse: CommandLine) -> None:
    printed = json.loads(eqfuse.run("schema", "device", "list").out)
    assert [form["$ref"] for form in printed["anyOf"]] == ["#/$defs/DevicesOutput", "#/$defs/ErrorOutput"]
    assert printed["$defs"]["DevicesOutput"]["required"] == ["devices", "eqfuse_version", "schema"]
    assert printed["$defs"]["ErrorOutput"]["properties"]["exit_code"] == {"type": "integer"}


def test_schema_of_no_command(eqfuse: CommandLine) -> None:
    assert "'rules lst'" in eqfuse.fail(2, "schema", "rules", "lst")
