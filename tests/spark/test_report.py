"""What is on the page, for few runs and for many; without Spark and without a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.documents import section
from tests.laws.stories import DOCTORED, story, write_trace
from tests.spark import pages
from unisono.laws import LAWS, Verdict, Violation, judge
from unisono.spark.report import (
    Curves,
    Diagram,
    Findings,
    RunInfo,
    charts,
    diagrams,
    markup,
    page,
    trace_rows,
    verdicts,
)
from unisono.spark.report.broken import NAMED_MAX, SHOWN_MAX
from unisono.spark.report.diagrams import Diagrams, diagram_style
from unisono.spark.report.markup import anchor_of, clean, time_of
from unisono.spark.report.page import MEASURES_SHOWN_MAX
from unisono.spark.report.trace_rows import ViolationRows, rows_near
from unisono.trace.history import life_of, message_of
from unisono.trace.reading import read_trace

Made = tuple[Path, Findings, Curves]
NOTHING = Curves("run", {}, {})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return pages.sample(tmp_path_factory.getbasetemp() / "report-traces")


class Seen(HTMLParser):
    """Tags, addresses, ids and the words of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name in ("href", "src"):
                self.addresses.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def verdict(*broken: str, run: str = "r") -> Verdict:
    found = [Violation(law, run, "a#1", "b#1:7", "c#1", "after 9") for law in broken]
    return Verdict({law: "broken" if law in broken else "kept" for law in LAWS}, sorted(found))


def findings(verdicts: dict[str, Verdict], **more: object) -> Findings:
    return replace(Findings(verdicts, [], 10, 0, []), **more)  # type: ignore[arg-type]


# -- what it says first ----------------------------------------------------------------------------


def test_the_header_says_at_once_whether_all_is_well() -> None:
    def title(found: Findings) -> str:
        match = re.search(r"<h1>.*?</span> (.*?)</h1>", page(found, NOTHING))
        assert match
        return match[1]

    unclaimed = Verdict(dict.fromkeys(LAWS, "not claimed"), [])
    assert title(findings({})) == "Nothing to judge"
    assert title(findings({"a": verdict()})) == "Every law kept in 1 run"
    assert title(findings({"a": verdict(), "b": verdict("fifo")})) == "Laws broken in 1 of 2 runs"
    assert title(findings({"a": unclaimed})) == "No law is claimed in 1 run"
    early = Verdict(verdict().laws | {"validity": "not yet"}, [])
    assert title(findings({"a": verdict(), "b": early})) == "No law broken so far in 2 runs"
    assert title(findings({"a": early, "b": verdict("fifo")})) == "Laws broken in 1 of 2 runs"


def test_a_law_that_is_not_judged_yet_is_not_said_to_be_kept() -> None:
    early = Verdict(verdict().laws | {"validity": "not yet"}, [])
    few = page(findings({"a": verdict(), "b": early}), NOTHING)
    assert few.count('title="validity: not yet"') == few.count('title="validity: kept"') == 1
    assert "not yet" not in page(findings({"a": verdict()}), NOTHING), "nor in the key"
    many = Seen(page(findings({str(n): early if n < 2 else verdict() for n in range(50)}), NOTHING))
    assert re.search(r"… validity unknown 48 \(2 not yet\) 0", many.text)


def test_what_was_not_judged_or_is_not_over_is_said_at_the_top() -> None:
    found = findings({"a": verdict()}, quarantined=3, quarantine=[("f", None, "torn")],
                     info={"a": RunInfo("ring", complete=False)})  # fmt: skip
    text = Seen(page(found, NOTHING)).text
    assert "3 rows or files could not be judged" in text
    assert "1 run has files without an end" in text
    assert "so far" in text
    calm = Seen(page(findings({"a": verdict()}, info={"a": RunInfo("ring")}), NOTHING)).text
    assert "could not be judged" not in calm and "so far" not in calm


# -- few and many ----------------------------------------------------------------------------------


def test_few_runs_have_a_row_each_the_broken_first(made: Made) -> None:
    _, found, curves = made
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td class="(?:kept|none|broken)"',
                      page(found, curves))  # fmt: skip
    assert len(rows) == len(found.verdicts) == 6
    assert [anchor_of(run) in row for run, row in zip(found.broken, rows, strict=False)] == [
        True
    ] * 2
    assert not any("href" in row for row in rows[2:])


def test_many_runs_are_counted_by_protocol_and_law(made: Made) -> None:
    _, found, curves = made
    whole = page(pages.many(found, 500), curves)
    table = whole[whole.index('<table class="counted">') :].split("</table>")[0]
    rows = re.findall(r"<tr><th.*?</tr>", table)[1:]
    told = [
        (*re.findall(r"</span> ([a-z ]+)</th><td>(.*?)</td>", row)[0],
         *map(int, re.findall(r'<td class="n">(\d+)</td>', row)))
        for row in rows
    ]  # fmt: skip
    wanted = pages.many(found, 500)
    for law, protocol, kept, broken in told:
        name = law.replace(" ", "_")
        words = [
            verdict.laws[name]
            for run, verdict in wanted.verdicts.items()
            if wanted.protocol_of(run) == protocol
        ]
        assert (kept, broken) == (words.count("kept"), words.count("broken")), (law, protocol)
    assert [broken > 0 for *_, broken in told] == sorted((b > 0 for *_, b in told), reverse=True)
    assert len(whole) < 400_000


def test_broken_runs_beyond_the_bound_are_named_and_then_counted() -> None:
    count = SHOWN_MAX + NAMED_MAX + 7
    found = findings({f"r{n:03}": verdict("fifo", run=f"r{n:03}") for n in range(count)})
    seen = Seen(page(found, NOTHING))
    assert seen.tags.count("article") == SHOWN_MAX
    assert sum(each.startswith("run-r") and "-name" not in each for each in seen.ids) == (
        SHOWN_MAX + NAMED_MAX
    )
    assert "7 runs more in the table" in seen.text
    assert len(seen.ids) == len(set(seen.ids))
    assert {each[1:] for each in seen.addresses} <= set(seen.ids)


def test_the_first_of_each_kind_is_told_before_the_second_of_any() -> None:
    verdicts = {f"a{n:02}": verdict("fifo") for n in range(30)}
    verdicts |= {f"z{n}": verdict("causal", "fifo") for n in range(2)}
    about = {run: RunInfo("ring" if run != "a29" else "mtp") for run in verdicts}
    assert findings(verdicts, info=about).broken[:4] == ["a00", "a29", "z0", "a01"]


def test_no_more_violations_are_told_than_can_be_read() -> None:
    many = [Violation("fifo", "r", "a#1", f"b#1:{n}", "", "late") for n in range(100)]
    text = Seen(page(findings({"r": Verdict(verdict("fifo").laws, many)}), NOTHING)).text
    assert text.count(": late") == 10
    assert "fifo: at least 90 more" in text


# -- what else is on it ----------------------------------------------------------------------------


def test_each_broken_run_has_its_address_its_witnesses_and_its_replay(made: Made) -> None:
    _, found, curves = made
    whole = page(found, curves)
    for run in found.broken:
        article = whole.split(f'<article id="{anchor_of(run)}"')[1].split("</article>")[0]
        assert f'href="#{anchor_of(run)}"' in article
        assert f"<code>{found.info[run].replay}</code>" in article
        first = found.verdicts[run].violations[0]
        assert f"message <code>{first.message}</code>" in article
        assert '<div class="scroll drawing"' in article and "<desc>" in article


def test_the_page_is_whole_stands_alone_and_is_the_same_each_time(made: Made) -> None:
    top, found, curves = made
    whole = page(pages.hostile(found), curves)
    seen = Seen(whole)
    assert not seen.open
    assert not set(seen.tags) & {"script", "img", "link", "iframe", "object"}
    assert all(each.startswith("#") for each in seen.addresses)
    assert not {name for name in seen.attributes if name.startswith("on")}
    assert "url(" not in whole and "http" not in whole and "@import" not in whole
    assert whole == page(pages.hostile(pages.found_in(top)[0]), curves)
    assert "Made by unisono 0.1.0" in seen.text


def test_all_text_is_escaped_cut_and_without_signs_that_turn_it(made: Made) -> None:
    _, found, curves = made
    whole = page(pages.hostile(found), curves)
    assert pages.HOSTILE not in whole and "\u202e" not in whole
    assert "alert(1)" in Seen(whole).text
    assert clean("<&\x00\u2066") == "&lt;&amp;\ufffd\ufffd"
    assert clean("\ud800") == "\ufffd"
    assert clean("x" * 1000) == "x" * 399 + "…"


def test_what_is_not_there_has_no_section() -> None:
    seen = Seen(page(findings({"a": verdict()}), NOTHING))
    assert {"laws", "quarantine"} <= set(seen.ids)
    assert not {"broken", "summary", "curves", "recoveries", "measures"} & set(seen.ids)


def test_recoveries_tell_median_longest_and_how_often() -> None:
    line = [(0, 1), (250_000, 3), (1_500_000, 1)]
    found = findings({"a": verdict()}, recoveries={("ring", "crashed"): line})
    assert "5 times: half in 250 ms, all in 1.50 s" in Seen(page(found, NOTHING)).text


def test_stability_tells_each_level_by_itself() -> None:
    levels = {
        ("rmp", "resilient(2)"): [(400, 3), (900, 1)],
        ("rmp", "resilient(all)"): [(2_000, 1)],
    }
    text = Seen(page(findings({"a": verdict()}, stabilities=levels), NOTHING)).text
    assert "4 messages: half in 400 µs, all in 900 µs" in text
    assert "1 message: half in 2.00 ms, all in 2.00 ms" in text


def test_times_are_said_as_people_say_them() -> None:
    told = [time_of(us) for us in (0, 999, 1_000, 12_340, 999_400, 1_000_000, 75_000_000)]
    assert told == ["0 µs", "999 µs", "1.00 ms", "12.3 ms", "999 ms", "1.00 s", "75.0 s"]


def test_anchors_are_safe_and_each_its_own() -> None:
    names = ["ring-1", "Ring-1", "ring 1", "ring/1", "ü<b>", "", "x" * 300, "x" * 301, "\ud800"]
    anchors = [anchor_of(name) for name in names]
    assert len(set(anchors)) == len(names)
    assert anchors[0] == "run-ring-1"
    assert all(re.fullmatch(r"run-[a-z0-9~-]{0,60}", anchor) for anchor in anchors)


# -- pictures --------------------------------------------------------------------------------------


def test_the_picture_is_of_the_first_violation_with_its_message_marked(made: Made) -> None:
    top, found, _ = made
    for run in found.broken:
        picture, violations = found.diagrams[run], found.verdicts[run].violations
        focus = ViolationRows(read_trace(top).runs[run], violations).first()
        assert focus is not None
        violation, row = focus
        assert (message_of(row), life_of(row)) == (violation.message, violation.life) or (
            "not" in violation.detail
        )
        assert (
            violation.message in picture.caption
            and violation.law.replace("_", " ") in picture.caption
        )
        assert re.search(rf'class="mark \w+ accused"><title>[^<]*{violation.message},', picture.svg)
        assert "<style" not in picture.svg and "xmlns" not in picture.svg
        height = re.search(r' height="([0-9.]+)"', picture.svg)
        assert height and float(height[1]) <= diagrams.HEIGHT_PX_MAX


def test_what_happened_first_is_drawn_whatever_is_told_first(tmp_path: Path) -> None:
    told = "a: view 1 a b | send | send | send\nb: view 1 a b | a:1 | a:2 | a:3"
    write_trace(story(told, run="r"), tmp_path)
    late, early = (Violation("fifo", "r", "b#1", f"a#1:{n}", "", "?") for n in (3, 1))
    for violations in ([late, early], [early, late]):
        focus = ViolationRows(read_trace(tmp_path).runs["r"], violations).first()
        assert focus is not None and focus[0] == early


def test_every_kind_of_violation_can_be_drawn(tmp_path: Path) -> None:
    drawn = 0
    for item in DOCTORED:
        if not item.history.rows:
            continue
        write_trace(item.history, tmp_path)
        violations = judge(item.history, LAWS).violations
        picture = Diagrams(str(tmp_path)).of(item.history.run, violations)
        assert picture.svg.startswith("<svg") and picture.svg.endswith("</svg>"), item
        drawn += 1
    assert drawn > 40


def test_a_trace_that_is_gone_damaged_or_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = story("a: view 1 a | send | send | a:2", run="one two")
    violations = judge(history, LAWS).violations
    assert (
        Diagrams(str(tmp_path))
        .of("one two", violations)
        .caption.startswith("its trace is no longer")
    )
    write_trace(history, tmp_path)
    assert Diagrams(str(tmp_path)).of("one two", violations).svg
    assert Diagrams(str(tmp_path / "run=one%20two")).of("one two", violations).svg
    assert not Diagrams(str(tmp_path / "run=one%20two")).of("else", violations).svg
    stranger = [violations[0]._replace(life="z#9", message="z#9:1", other="", detail="?")]
    assert Diagrams(str(tmp_path)).of("one two", stranger).svg
    with monkeypatch.context() as patch:
        patch.setattr(diagrams, "RUN_BYTES_MAX", 10)
        long = Diagrams(str(tmp_path)).of("one two", violations)
        assert "is large" in long.caption and long.svg == ""
        assert long.command == (f"unisono draw {tmp_path} --run 'one two' --from-ms 0 --to-ms 1000")
    with monkeypatch.context() as patch:
        patch.setattr(diagrams, "ALL_BYTES_MAX", 10)
        assert "what may be read" in Diagrams(str(tmp_path)).of("one two", violations).caption
    for path in (tmp_path / "run=one%20two").iterdir():
        path.write_bytes(path.read_bytes()[:40])
    torn = Diagrams(str(tmp_path)).of("one two", violations)
    assert torn == Diagram("", "the trace has no rows about the violations.")
    assert (
        "No diagram: the trace has no row"
        in Seen(
            page(findings({"one two": verdict("fifo")}, diagrams={"one two": torn}), NOTHING)
        ).text
    )


def test_of_a_long_run_only_what_is_near_is_kept(tmp_path: Path) -> None:
    talk = " | ".join(["send"] * 3000)
    heard = " | ".join(f"a:{n}" for n in range(1, 3001) if n != 1500)
    write_trace(story(f"a: view 1 a b | {talk}\nb: view 1 a b | {heard}", run="long"), tmp_path)
    rows = read_trace(tmp_path).runs["long"]
    lost = Violation("fifo", "long", "b#1", "a#1:1501", "a#1", "without 1500")
    told = ViolationRows(rows, [lost])
    assert {row.number for rows in told.messages.values() for row in rows} == {1501}
    focus = told.first()
    assert focus is not None
    kept = rows_near(rows, focus[1])
    assert len(kept.near) == 1500 and len(kept.rows) <= 1510
    assert {row.number for row in kept.near if row.node == "b"} >= {1499, 1501}
    assert {row.kind for row in kept.rows if row not in kept.near} >= {"view"}
    assert "a#1:1501" in Diagrams(str(tmp_path)).of("long", [lost]).caption


def test_the_style_of_drawings_holds_for_drawings_alone() -> None:
    lines = diagram_style().splitlines()
    selectors = [line.split("{")[0] for line in lines if "{" in line and not line.startswith("@")]
    assert len(selectors) > 40
    for selector in selectors:
        assert all(part.strip().startswith(".drawing ") for part in selector.split(",")), selector
    assert (
        sum(line.startswith("@media screen and (prefers-color-scheme: dark)") for line in lines)
        == 1
    )


# -- the page about the page -----------------------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs"


def test_the_docs_tell_the_bounds_as_they_are() -> None:
    text = re.sub(r"\s+", " ", section("SPARK", "The report"))
    for told in (
        f"up to {verdicts.RUNS_MAX} runs",
        f"| {SHOWN_MAX} at length",
        f"{NAMED_MAX} more are named",
        f"the {charts.KINDS_MAX} kinds of each protocol",
        f"at most {MEASURES_SHOWN_MAX} |",
        f"of the first {trace_rows.EXAMINED_MAX} listed",
        f"more than {diagrams.COLUMNS_MAX} nodes",
        f"most {trace_rows.NEAR_MAX:,} rows",
        f"more than {diagrams.RUN_BYTES_MAX >> 20} MiB of trace",
        f"more than {diagrams.ALL_BYTES_MAX >> 20} MiB for one page",
        f"cut at {markup.TEXT_MAX} characters",
    ):
        assert told in text, told
    assert verdicts.LINKED_MAX == 5 and "the first five that broke it" in text


def test_the_screenshots_are_there_and_small() -> None:
    shown = re.findall(r"\]\((figures/[^)]+\.png)\)", section("SPARK", "The report"))
    assert len(shown) == 2
    for name in shown:
        octets = (DOCS / name).read_bytes()
        assert octets.startswith(b"\x89PNG") and 10_000 < len(octets) < 250_000, name


def test_a_run_that_is_uncertain_is_listed_and_not_accused() -> None:
    told = story("a: view 1 a b | send\nb: view 1 a b | a:1", run="lost")
    rows = tuple(row for row in told.rows if row.kind != "send")
    verdict = judge(replace(told, rows=rows, unread={"a#1": "run=lost/a-1.parquet row 1"}), LAWS)
    assert verdict.laws["no_creation"] == "uncertain"
    text = page(findings({"lost": replaced(verdict)}), NOTHING)
    assert "Uncertain in 1 run: rows could not be read" in text
    assert "(uncertain: run=lost/a-1.parquet row 1 was not read)" in text
    assert 'title="no_creation: uncertain"' in text
    assert "Broken runs" not in text


def replaced(verdict: Verdict) -> Verdict:
    """Without what is certain."""
    laws = {law: "kept" if how == "broken" else how for law, how in verdict.laws.items()}
    return Verdict(laws, [each for each in verdict.violations if "uncertain" in each.detail])
