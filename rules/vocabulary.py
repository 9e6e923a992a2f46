"""The names a rule file may use: constructors, analyses and relations by arity, primitives, rulesets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from .sexpr import Atom, Form, Node

PROPERTIES = (
    "associative",
    "distributive",
    "commutative",
    "linear",
    "layout",
    "idiom",
    "fold",
    "identity",
    "strength",
)
SOUNDNESS = ("exact", "real", "approx", "step")
Precision = Literal["exact", "real", "fast"]
"""Which rules a user allows: bit-identical ones, those true of the reals, or those that may change overflow and leave
numbers unrounded, too."""

_PRIMITIVES = """
    = != < > <= >= + - * / % ^ & | << >> min max abs neg not and or xor => log2 not-i64
    bool-= bool-!= bool-< bool-> bool-<= bool->= to-f64 to-i64 to-string replace count-matches
    vec-of vec-empty vec-append vec-pop vec-push vec-length vec-get vec-set vec-remove vec-range vec-union
    vec-contains vec-not-contains set-of set-empty set-insert set-remove set-get set-length set-contains
    set-not-contains set-union set-intersect set-diff map-empty map-insert map-get map-remove map-length
    map-contains map-not-contains multiset-of multiset-insert multiset-remove multiset-length multiset-contains
    multiset-sum multiset-count ordering-min ordering-max value-eq
"""
_RUN_COMMANDS = """
    run run-schedule check extract print-function print-size print-overall-statistics push pop fail include input
    output let delete simplify query-extract calc prove prove-exists unstable-combined-ruleset
"""

PRIMITIVES = frozenset(_PRIMITIVES.split())
RUN_COMMANDS = frozenset(_RUN_COMMANDS.split())
DECLARATIONS = frozenset({"sort", "datatype", "datatype*", "function", "constructor", "relation", "ruleset"})
RULES = frozenset({"rewrite", "birewrite", "rule"})
RUN = ("simplify", "explore", "analysis")
"""The rulesets of a run that a rule may be in."""
OWN_DECLARATIONS = frozenset({"sort", "function", "relation"})
"""The kinds of declaration that a file beside the shipped ones may have."""
ACTIONS = frozenset({"let", "set", "union", "delete", "subsume", "panic"})
TOP_LEVEL = DECLARATIONS | RULES | {"set", "condition"}


@dataclass(frozen=True)
class RuleSelection:
    """The selection of rules: the arguments of `rules.loader.load_rules`; `rules` are the user's files and folders."""

    rules: tuple[Path, ...] = ()
    precision: Precision = "real"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: what may have been meant, if anything is near."""
    near = get_close_matches(name, sorted(names), 1)
    return f"; did you mean `{near[0]}`?" if near else ""


KEY = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)+(/\w+=[^\s/\"]*)*")
"""``com.example.FusedSwish/beta=1.0``: the domain and type of an operator, then its attributes."""


def key_problem(key: str) -> str:
    """The problem with the key of an operator in a rule; "" if it names an operator of another domain."""
    from ..ir.operators import OPERATORS  # it imports numpy, and `eqfuse --help` imports this module

    name = key.partition("/")[0]
    domain, _, kind = name.rpartition(".")
    if domain in ("", "ai.onnx") and kind in OPERATORS:
        operands = " ".join(a.name for a in OPERATORS[kind].arguments)
        return f"{kind} is an operator of ONNX: write ({kind} {operands})"
    if domain == "ai.onnx":
        return f"{kind} is an operator of ONNX without a constructor, so that no rule about it can be checked"
    if not KEY.fullmatch(key):
        return f'"{key}" names no operator of another domain: write "domain.Type" or "domain.Type/attribute=value"'
    return ""


@dataclass
class Vocabulary:
    """Names declared so far.

    `tables` are constructors, functions and relations, `conditions` the named ones, both by number of arguments;
    `functions` are those tables whose values can only be looked up on the left, `constructors` those that make terms.
    """

    tables: dict[str, int] = field(default_factory=dict)
    conditions: dict[str, int] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    constructors: set[str] = field(default_factory=set)
    sorts: set[str] = field(default_factory=set)
    rulesets: set[str] = field(default_factory=set)

    def declare(self, form: Form) -> None:
        """Take over what a declaration introduces; other commands introduce nothing."""
        names = [item.text for item in form.items[1:2] if isinstance(item, Atom)]
        if form.head == "ruleset":
            self.rulesets.update(names)
        elif form.head == "sort":
            self.sorts.update(names)
        elif form.head == "datatype":
            self._datatype(form.items[1:])
        elif form.head == "datatype*":
            for part in form.items[1:]:
                if isinstance(part, Form):
                    self._datatype(part.items)
        elif form.head == "condition" and len(form.items) > 1 and isinstance(form.items[1], Form):
            self.conditions[form.items[1].head] = len(form.items[1].items) - 1
        elif form.head in DECLARATIONS and names and len(form.items) > 2 and isinstance(form.items[2], Form):
            self.tables[names[0]] = len(form.items[2].items)
            self.functions.update(names if form.head == "function" else [])
            self.constructors.update(names if form.head == "constructor" else [])

    def _datatype(self, items: tuple[Node, ...]) -> None:
        self.sorts.update(item.text for item in items[:1] if isinstance(item, Atom))
        for variant in items[1:]:
            if isinstance(variant, Form) and variant.head:
                arguments = [a for a in variant.items[1:] if not (isinstance(a, Atom) and a.text.startswith(":"))]
                self.tables[variant.head] = len(arguments)
                self.constructors.add(variant.head)

    def takes(self, name: str) -> bool:
        """Whether a variable of this name would clash with a declaration."""
        return name in self.tables or name in self.sorts or name in self.rulesets
