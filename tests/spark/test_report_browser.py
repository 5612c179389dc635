"""The page as a browser lays it out: on a phone and on a desk, in light and in dark.

What is wrong with a layout is found by `test_report_seen.js`, in the page; each thing that it can
find is planted here once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark import browser as real
from tests.spark import pages
from tests.spark.browser import DESK, PHONE, Browser
from unisono.spark.report import page

pytestmark = [
    pytest.mark.skipif(real.found() is None, reason="needs a browser (package chromium)"),
    pytest.mark.xdist_group("browser"),
]

SCRIPT = Path(__file__).with_name("test_report_seen.js")
COLOURS_MIN = 60
"""A page with text, tables and plots has many shades; a blank one has few."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = real.found()
    assert program is not None
    with Browser(program) as one:
        yield one


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of few runs, of many, and of one that means ill."""
    base = tmp_path_factory.getbasetemp()
    _, found, curves = pages.sample(base / "report-traces")
    texts = {
        "few": page(found, curves),
        "many": page(pages.many(found, 300), curves),
        "hostile": page(pages.hostile(found), curves),
    }
    paths = {}
    for name, text in texts.items():
        paths[name] = base / f"report-{name}.html"
        paths[name].write_text(text, encoding="utf-8")
    return paths


def wrong_with(
    browser: Browser, path: Path, size: tuple[int, int], dark: bool = False, look: bool = True
) -> list[str]:
    """All that is wrong with a page as it is seen so; with a look at the picture itself."""
    browser.open(path, size, dark)
    wrong: list[str] = browser.value(SCRIPT.read_text())
    wrong += [f"request: {address}" for address in browser.requests()]
    wrong += [f"console: {text}" for text in browser.complaints()]
    if look and browser.colours(browser.picture()) < COLOURS_MIN:
        wrong.append("blank: the picture has hardly a colour")
    return wrong


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("name", ["few", "many", "hostile"])
def test_nothing_is_wrong_with_the_page(
    browser: Browser, written: dict[str, Path], name: str, size: tuple[int, int], dark: bool
) -> None:
    assert wrong_with(browser, written[name], size, dark) == []


def test_dark_is_dark_light_is_light_and_paper_is_white(
    browser: Browser, written: dict[str, Path]
) -> None:
    back = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    drawn = "getComputedStyle(document.querySelector('.drawing .paper')).fill"
    browser.open(written["few"], DESK, dark=True)
    assert max(browser.value(back)) < 50 and browser.value(drawn) == "rgb(15, 20, 26)"
    browser.open(written["few"], DESK, dark=False)
    assert min(browser.value(back)) > 200 and browser.value(drawn) == "rgb(255, 255, 255)"
    browser.open(written["few"], DESK, dark=True, media="print")
    assert min(browser.value(back)) > 200 and browser.value(drawn) == "rgb(255, 255, 255)"
    assert (
        browser.value("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    )
    assert not browser.value("document.querySelector('nav').checkVisibility()")


def test_a_wide_table_scrolls_in_its_own_box(browser: Browser, written: dict[str, Path]) -> None:
    browser.open(written["few"], PHONE)
    boxes = browser.value(
        "[...document.querySelectorAll('.scroll')].map(b => [b.scrollWidth > b.clientWidth,"
        " (b.scrollLeft = 50, b.scrollLeft), b.tabIndex])"
    )
    assert [50, 0] in [box[1:] for box in boxes if box[0]]
    assert all(tab == 0 for _, _, tab in boxes)


def test_an_address_with_a_run_leads_to_it(browser: Browser, written: dict[str, Path]) -> None:
    browser.open(written["few"], DESK)
    top = "document.querySelector('article:target')?.getBoundingClientRect().top ?? -1"
    assert browser.value(top) == -1
    assert browser.value("location.hash = document.querySelectorAll('article')[1].id") != ""
    assert 0 <= browser.value(top) < 100


def test_one_click_takes_the_whole_command(browser: Browser, written: dict[str, Path]) -> None:
    browser.open(written["few"], DESK)
    place = browser.value(
        "(() => { const b = document.querySelector('.command pre'); b.scrollIntoView();"
        " const r = b.getBoundingClientRect(); return [r.left + 60, r.top + r.height / 2] })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.ask("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left",
                    clickCount=1)  # fmt: skip
    taken = browser.value("getSelection().toString().trim()")
    assert taken == browser.value("document.querySelector('.command code').textContent")
    assert taken.startswith("unisono sim --protocol")


def test_the_screenshots_of_the_docs_can_be_made(written: dict[str, Path], tmp_path: Path) -> None:
    pages.shoot(written["few"], tmp_path)
    made = sorted(tmp_path.iterdir())
    assert [path.name for path in made] == ["report-desk.png", "report-phone.png"]
    assert all(10_000 < path.stat().st_size < 400_000 for path in made)


# -- each thing that can be wrong, planted ---------------------------------------------------------


def css(rule: str) -> Callable[[str], str]:
    return lambda text: text.replace("</style>", f"{rule}</style>", 1)


def put(html: str) -> Callable[[str], str]:
    return lambda text: text.replace("</main>", f"{html}</main>", 1)


def swap(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


ELSEWHERE = "http://127.0.0.1:9/x"
PLANTED = {
    "overflow of the page": (css(".scroll { overflow: visible; }"), PHONE, "overflow: the page"),
    "an element too wide": (put('<p style="width: 500px">wide</p>'), PHONE, "overflow: p"),
    "text cut off": (css("h1 { overflow: hidden; white-space: nowrap; }"), PHONE, "clipped: h1"),
    "labels on each other": (css(".plot text { font-size: 40px; }"), PHONE, "overlap: plot"),
    "a label outside": (css(".plot text { font-size: 40px; }"), DESK, "clipped: text.tick"),
    "labels too small": (css(".plot svg text { font-size: 9px; }"), PHONE, "small: text"),
    "values on their names": (
        css(".value { position: relative; left: -420px; }"),
        DESK,
        "overlap: chart",
    ),
    "a chart too wide": (css(".chart .cell { width: 900px; }"), DESK, "clipped: span.value"),
    "pale text": (css(":root { --soft: #aaa; }"), DESK, "contrast: p.note"),
    "faint text": (css(".note { opacity: .6; }"), DESK, "contrast: p.note"),
    "pale words of a diagram": (
        css(".drawing text { fill: #ccc !important; }"),
        DESK,
        "contrast: text",
    ),
    "pale marks in a table": (css("td.kept { color: #8bb; }"), DESK, "contrast: span"),
    "no diagram": (css(".drawing { display: none; }"), DESK, "diagram: not to be seen"),
    "a diagram pressed flat": (
        css(".drawing svg { height: 20px; }"),
        DESK,
        "diagram: not to be seen",
    ),
    "a message not marked": (
        css(".drawing .accused text { text-decoration: none; }"),
        DESK,
        "diagram: the",
    ),
    "a picture from elsewhere": (put(f'<img src="{ELSEWHERE}" alt="">'), DESK, "request: http"),
    "a style from elsewhere": (
        put(f'<link rel="stylesheet" href="{ELSEWHERE}">'),
        DESK,
        "request: http",
    ),
    "a script that fails": (put("<script>nothing.there()</script>"), DESK, "console: "),
    "a script that speaks": (put("<script>console.log('hello')</script>"), DESK, "console: log"),
    "nothing to be seen": (css("main { visibility: hidden; }"), DESK, "blank: the picture"),
    "no texts": (css("main { display: none; }"), DESK, "blank: only"),
    "a heading left out": (swap("<h2", "<h4"), DESK, "headings: h4"),
    "a header of nothing": (swap('<th scope="col"', "<th"), DESK, "scope: th"),
    "a link to nowhere": (put('<a href="#nowhere">x</a>'), DESK, "link: #nowhere"),
    "a link to outside": (put(f'<a href="{ELSEWHERE}">x</a>'), DESK, "outside: http"),
    "an id twice": (put('<p id="laws">x</p>'), DESK, "ids: "),
    "a plot without words": (swap("<desc>", "<metadata>"), DESK, "untold: "),
}
"""What is done to the page, where it is looked at, and how what is found begins."""


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(
    browser: Browser, written: dict[str, Path], tmp_path: Path, name: str
) -> None:
    change, size, found = PLANTED[name]
    text = written["few"].read_text()
    worse = tmp_path / "worse.html"
    worse.write_text(change(text))
    wrong = wrong_with(browser, worse, size, look=found.startswith("blank"))
    assert any(each.startswith(found) for each in wrong), wrong[:5]
