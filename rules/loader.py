"""The rule catalogue: the shipped .egg files and the user's, selected and joined into one egglog program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path

from ..support.errors import UsageError
from .constructors import freezing_rules, sorts
from .lint import require_clean
from .places import analysis_files, rule_paths, shipped_files
from .records import PROPERTIES, Rule, RuleFile, read_file
from .vocabulary import Precision, RuleSelection

__all__ = ["Rule", "RuleFile", "RuleSet", "load_rules", "load_selection", "prelude"]

ADMITTED: dict[Precision, tuple[str, ...]] = {
    "exact": ("exact",),
    "real": ("exact", "real"),
    "fast": ("exact", "real", "approx", "step"),
}


@dataclass(frozen=True)
class RuleSet:
    """The rules of a run in a fixed order, and the files they come from."""

    files: tuple[RuleFile, ...]
    rules: tuple[Rule, ...]

    @cached_property
    def by_name(self) -> dict[str, Rule]:
        """Each rule by its ``:name``, and by the two names that egglog reports a birewrite under."""
        return {name: rule for rule in self.rules for name in (rule.name, f"{rule.name}=>", f"{rule.name}<=")}

    @property
    def parts(self) -> tuple[RuleSet, RuleSet]:
        """The shipped files with their rules, and the user's."""
        paths = {file.path for file in shipped_files()}

        def part(is_shipped: bool) -> RuleSet:
            chosen = (file for file in self.files if (file.path in paths) == is_shipped)
            return RuleSet(tuple(chosen), tuple(rule for rule in self.rules if (rule.path in paths) == is_shipped))

        return part(True), part(False)

    @cached_property
    def program(self) -> str:
        """What egglog reads after `prelude()`: the declarations of all files, then the selected rules."""
        declared = [d.text for file in self.files for d in file.declarations]
        return "\n".join((*declared, *(rule.program for rule in self.rules), ""))


@cache
def prelude() -> str:
    """The egglog program before any rule: sorts, constructors, and the analyses with their rules."""
    rules = (rule.program for file in analysis_files() for rule in file.rules)
    return "\n".join((declarations(), *rules, freezing_rules(), ""))


@cache
def declarations() -> str:
    """The beginning of `prelude()`, without the rules of the analyses."""
    return "\n".join((sorts(), *(declared.text for file in analysis_files() for declared in file.declarations)))


def load_rules(
    paths: Sequence[Path] = (),
    *,
    precision: Precision = "real",
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    domains: Sequence[str] = (),
) -> RuleSet:
    """The shipped catalogue and the user's files or folders.

    `precision` admits rules by soundness: ``exact`` the exact ones, ``real`` also those that hold over the reals,
    ``fast`` all. `only` keeps and `skip` drops rules by tag: a property, a topic (the name of the file) or a rule.
    Rules that only derive facts stay in any case, and those that make operators of a runtime's own domain are left out
    unless it is one of `domains`.
    Raises RuleError for a file with problems, UsageError for a tag or a domain that does not exist.
    """
    own = rule_paths(paths)
    require_clean(own)
    files = (*shipped_files(), *map(read_file, own))
    rules = [rule for file in files for rule in file.rules]
    tags = {*PROPERTIES, *(tag for rule in rules for tag in rule.tags)}
    for tag in (*only, *skip):
        if tag not in tags:
            near = get_close_matches(tag, sorted(tags), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"no rule, topic, property or soundness is called {tag!r}{hint}")
    offered = {rule.domain for rule in rules if rule.domain}
    for domain in domains:
        if domain not in offered:
            raise UsageError(f"no rules are for the domain {domain!r}; there are some for {', '.join(sorted(offered))}")
    selection = RuleSelection(tuple(paths), precision, tuple(only), tuple(skip), tuple(domains))
    return RuleSet(files, tuple(r for r in rules if is_chosen(r, selection)))


def load_selection(selection: RuleSelection) -> RuleSet:
    """The rules of a selection; see `load_rules`."""
    return load_rules(
        selection.rules, precision=selection.precision, only=selection.only, skip=selection.skip,
        domains=selection.domains,
    )  # fmt: skip


def is_chosen(rule: Rule, selection: RuleSelection) -> bool:
    """Whether a rule is one of those that `load_rules` chooses."""
    if rule.domain and rule.domain not in selection.domains:
        return False
    wanted = not selection.only or not set(selection.only).isdisjoint(rule.tags)
    return rule.derives or (
        rule.sound in ADMITTED[selection.precision] and wanted and set(selection.skip).isdisjoint(rule.tags)
    )
