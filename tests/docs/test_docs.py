"""The documentation, followed as a reader would: its commands print what it shows, its rules and links exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from eqfuse.docs import examples as docs
from eqfuse.driver.clock import CompileStage, OptimizeStage
from eqfuse.lowering.schedules import PASSES, RULES, fallback

from ..caches import own_cache

ROOT = Path(__file__).parents[2]


EXAMPLES = [example for page in docs.PAGES for example in docs.read_examples(page)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who reads one page after the other."""
    made = tmp_path_factory.mktemp("docs")
    docs.prepare_folder(made)
    return made


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    """What each command prints, which several pages may show."""
    return {}


def _parameter(example: docs.Example) -> object:
    marks = [pytest.mark.conformance] if "slow" in example.words else []
    return pytest.param(example, id=f"{example.page}: {example.command}", marks=marks)


@pytest.mark.parametrize("example", [_parameter(example) for example in EXAMPLES])
def test_a_command_prints_what_its_page_shows(
    example: docs.Example, folder: Path, outputs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make docs` renews a page where this fails."""
    before = _commands_before(example)
    if example.command not in outputs:
        monkeypatch.setenv("XDG_CACHE_HOME", own_cache(folder / "cache"))
        for needed in before:
            if not (folder / needed.split("-o ")[1].split()[0]).exists():
                outputs[needed] = docs.run(needed, folder)
        outputs[example.command] = docs.run(example.command, folder)
    if any("time limit: ended" in outputs.get(each, "") for each in (*before, example.command)):
        pytest.skip("on this busy machine the time limit of a command ended a phase, so the result is another one")
    assert example.difference(outputs[example.command]) == ""


def test_how_it_works_names_the_stages_in_their_order() -> None:
    page = (ROOT / "docs/how-it-works.md").read_text()
    section = page.split("## The stages")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z]+)` \|", section, re.MULTILINE)
    assert tuple(rows) == (*get_args(OptimizeStage), *get_args(CompileStage))


def test_how_it_works_names_the_rules_and_passes_of_scheduling_in_their_order() -> None:
    page = (ROOT / "docs/how-it-works.md").read_text()
    section = page.split("## Scheduling")[1].split("\n## ")[0]
    rules, passes = section.split("tiles the loops:")[1].split("Passes finish")
    assert re.findall(r"`([a-z_]+)`", rules) == [rule.__name__ for rule in (*RULES, fallback)]
    assert re.findall(r"^\| `([a-z_]+)` \|", passes, re.MULTILINE) == [each.__name__ for each in PASSES]


def _commands_before(example: docs.Example) -> list[str]:
    """The commands of the page that write files which this one reads."""
    earlier = [other.command for other in EXAMPLES if other.page == example.page]
    earlier = earlier[: earlier.index(example.command)]
    return [c for c in earlier if " -o " in c and c.split("-o ")[1].split()[0] in example.command]


@pytest.mark.parametrize(
    ("shown", "printed", "difference"),
    [
        (("layers  3  2",), "layers   3   2\n", ""),
        (("layers  3  2",), "layers   3   1\n", "layers  3  2"),
        (("time: 1 s",), "time: 2.3 s (verify 1 s)\n", ""),
        (("a", "c"), "a\nb\nc\n", "c"),
        (("a", "...", "c"), "a\nb\nc\n", ""),
        (("a",), "a\nb\n", "nothing, but the command prints 'b'"),
        (("a", "..."), "a\nb\n", ""),
        (("predicted latency 2 us",), "predicted latency 3 us\n", "predicted latency 2 us"),
    ],
)
def test_an_old_line_is_found(shown: tuple[str, ...], printed: str, difference: str) -> None:
    assert docs.Example("page.md", "eqfuse", shown, frozenset()).difference(printed) == difference


@pytest.mark.parametrize(
    ("words", "difference"), [(frozenset({"measured"}), ""), (frozenset(), "kernel_697b9845 Conv Clip contraction")]
)
def test_kernels_of_another_machine_are_no_difference(words: frozenset[str], difference: str) -> None:
    shown = ("kernel_697b9845 Conv Clip contraction", "3 others", "all kernels 8")
    printed = "kernel_0dea7d70 MatMul rows\n2 others\nbetween kernels 2.0\nall kernels 7\n"
    assert docs.Example("page.md", "eqfuse", shown, words).difference(printed) == difference


def test_shown_lines_are_renewed_in_their_places() -> None:
    example = docs.Example("page.md", "eqfuse", ("...", "layers  3", "...", "written: x1"), frozenset())
    assert example.renew("head\nlayers  4\nother\nwritten: x2\n") == ["...", "layers  4", "...", "written: x2"]


@pytest.mark.parametrize("page", docs.PAGES)
def test_the_first_screen_says_where_eqfuse_runs(page: str) -> None:
    head = "\n".join((ROOT / page).read_text(encoding="utf-8").splitlines()[:20])
    assert all(word in head for word in ("Linux", "x86-64", "no GPU")), head


@pytest.mark.parametrize("page", docs.PAGES)
def test_measured_figures_name_processor_and_date(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```console[^\n]*measured[^\n]*\n.*?^```\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL):
        assert re.fullmatch(r"\n?\*Measured on \d+ cores of .+, \d{4}-\d\d-\d\d\.\*", block.strip("\n"))


@pytest.mark.parametrize("page", [*docs.PAGES, "CONTRIBUTING.md", "rules/README.md", "costmodels/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(#[^)\s]*)?\)", text):
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor[1:] in [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings], anchor


@pytest.mark.parametrize("page", [*docs.PAGES, "CONTRIBUTING.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "models")
    named = re.findall(rf"`((?:{folders})/[\w/.*-]+)`", (ROOT / page).read_text(encoding="utf-8"))
    assert [name for name in named if not list(ROOT.glob(name.replace("NAME", "*").rstrip("/")))] == []


def test_quoted_rules_are_those_of_the_example_files() -> None:
    def squeeze(text: str) -> str:
        return " ".join(text.split())

    files = squeeze("".join(path.read_text() for path in (ROOT / "examples/rules").glob("*.egg")))
    guide = (ROOT / "docs/writing-rules.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^```egg\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert quoted
    assert all(squeeze(text).removesuffix("...)").rstrip() in files for text in quoted)
