"""The rules of the papers as the documents list them, and what tests have shown of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

HOLDS, BROKEN, NO_TEST = VERDICTS = ("holds", "broken", "no test")
NAMES_SHOWN_MAX: Final = 3

_SECTION: Final = re.compile(r"## ([A-Z]+): (\w+)")
_ROW: Final = re.compile(r"\| (([A-Z]+)-\d+) ([^|]+?) \| ([^|]+?) \|")
_WEIGHT: Final = {"skipped": 0, "passed": 1, "failed": 2}
"""Of several phases of a test the heaviest counts: one that fails after it passed has failed."""


class BadRules(Exception):
    """The page of rules cannot be read."""


@dataclass(frozen=True)
class Rule:
    id: str
    name: str
    what: str


@dataclass(frozen=True)
class Paper:
    prefix: str
    protocol: str
    """Its name in the catalogue."""
    rules: tuple[Rule, ...]


def papers_in(text: str) -> tuple[Paper, ...]:
    """The papers of the page: a section each, `## RMC: rmcast`, with a row for each rule."""
    found: dict[str, tuple[str, dict[str, Rule]]] = {}
    prefix = ""
    for line in text.splitlines():
        if section := _SECTION.fullmatch(line):
            prefix = section[1]
            found[prefix] = (section[2], {})
        elif line.startswith("## "):
            prefix = ""
        elif row := _ROW.fullmatch(line):
            if row[2] != prefix:
                raise BadRules(f"{row[1]} stands in the section {prefix or 'of no paper'}")
            if row[1] in found[prefix][1]:
                raise BadRules(f"{row[1]} stands there twice")
            found[prefix][1][row[1]] = Rule(row[1], row[3], row[4])
    if not found:
        raise BadRules("there is no section such as '## RMC: rmcast'")
    return tuple(
        Paper(prefix, protocol, tuple(rules.values()))
        for prefix, (protocol, rules) in found.items()
    )


class Tally:
    """Which test showed what, by mark and by what the mark names."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)

    def note(self, mark: str, value: str, test: str, outcome: str) -> None:
        tests = self._shown[mark, value]
        tests[test] = max(tests.get(test, "skipped"), outcome, key=_WEIGHT.__getitem__)

    def of(self, mark: str, value: str) -> Mapping[str, str]:
        """The tests that name it, with their outcomes."""
        return dict(sorted(self._shown.get((mark, value), {}).items()))

    def passed(self, mark: str) -> dict[str, list[str]]:
        """What was shown by tests that passed, with these tests."""
        found = {}
        for (kind, value), tests in sorted(self._shown.items()):
            good = sorted(test for test, outcome in tests.items() if outcome == "passed")
            if kind == mark and good:
                found[value] = good
        return found

    def verdict(self, rule: str) -> str:
        outcomes = set(self.of("rule", rule).values())
        if "failed" in outcomes:
            return BROKEN
        return HOLDS if "passed" in outcomes else NO_TEST


def gaps(papers: Iterable[Paper], tally: Tally, catalogue: Collection[str]) -> list[str]:
    """Rules that do not hold though their protocol is here."""
    return [
        rule.id
        for paper in papers
        if paper.protocol in catalogue
        for rule in paper.rules
        if tally.verdict(rule.id) != HOLDS
    ]


def table(papers: Iterable[Paper], tally: Tally) -> Iterator[tuple[str, str]]:
    """Lines, each with the verdict it tells: a rule, what it asks, its verdict, its tests."""
    rules = [rule for paper in papers for rule in paper.rules]
    ids = max((len(rule.id) for rule in rules), default=0)
    names = max((len(rule.name) for rule in rules), default=0)
    yield f"{'rule':<{ids}}  {'what':<{names}}  {'verdict':<7}  tests", ""
    for rule in rules:
        verdict, named = tally.verdict(rule.id), tally.of("rule", rule.id)
        tests = [test for test, outcome in named.items() if outcome != "skipped"]
        shown = few(dict.fromkeys(map(plain, tests)))
        head = f"{rule.id:<{ids}}  {rule.name:<{names}}  {verdict:<7}"
        yield f"{head}  {len(tests):>5}  {shown[0]}" if tests else head, verdict
        for test in shown[1:]:
            yield f"{'':<{ids + names + 20}}{test}", verdict


def sums(
    papers: Iterable[Paper], tally: Tally, catalogue: Collection[str]
) -> list[dict[str, str | int | bool]]:
    """A paper a line: how many of its rules hold, are broken, have no test."""
    found: list[dict[str, str | int | bool]] = []
    for paper in papers:
        count = Counter(tally.verdict(rule.id) for rule in paper.rules)
        found.append(
            {
                "paper": paper.prefix,
                "protocol": paper.protocol,
                "in_catalogue": paper.protocol in catalogue,
                "rules": len(paper.rules),
                **{verdict: count[verdict] for verdict in VERDICTS},
            }
        )
    return found


def as_object(
    papers: Collection[Paper], tally: Tally, catalogue: Collection[str]
) -> dict[str, Any]:
    """All of it, for programs."""
    return {
        "papers": sums(papers, tally, catalogue),
        "rules": [
            {
                "rule": rule.id,
                "name": rule.name,
                "what": rule.what,
                "verdict": tally.verdict(rule.id),
                "tests": tally.of("rule", rule.id),
            }
            for paper in papers
            for rule in paper.rules
        ],
        "gaps": gaps(papers, tally, catalogue),
    }


def plain(test: str) -> str:
    """File and function, without the case."""
    return test.partition("[")[0]


def few(names: Iterable[str]) -> list[str]:
    """The first of them, and how many more there are."""
    listed = list(names)
    more = len(listed) - NAMES_SHOWN_MAX
    return listed[:NAMES_SHOWN_MAX] + ([f"and {more} more"] if more > 0 else [])


def by_number(rule: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", rule)]
