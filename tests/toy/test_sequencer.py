"""Is one folder and one line all that a protocol needs? The toy goes wherever ours do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import unisono
from tests.cli.running import unisono as command
from tests.harness import ENVIRONMENT
from tests.laws.judged_here import judged_here
from tests.net.recorder import free_port
from tests.toy.pages import code_lines, refreshed, shown
from tests.toy.plugin import ROOT, make_distribution
from tests.toy.sequencer import SPEC
from tests.toy.sequencer.core import FIGURE, PACKETS, Sequencer
from unisono import protocols
from unisono.core import CoreConfig, Effect
from unisono.errors import Misuse
from unisono.model import Member
from unisono.parts.links import LinkBeat, Links
from unisono.sim import PROFILES, campaign
from unisono.sim.plan import Plan
from unisono.sim.run import run


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The toy in the catalogue of this process and of those that it starts."""
    make_distribution(tmp_path / "site")
    path = [str(tmp_path / "site"), str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", os.pathsep.join(path))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    protocols._catalogue.cache_clear()
    yield tmp_path
    protocols._catalogue.cache_clear()


def test_one_line_puts_it_into_the_catalogue(installed: Path) -> None:
    assert protocols.spec("sequencer") is SPEC
    assert "sequencer" in protocols.ordered()


def test_a_name_or_a_wire_number_is_not_taken_twice() -> None:
    ours = protocols.specs().values()
    for clash in (replace(SPEC, name="other"), replace(SPEC, wire_number=201)):
        with pytest.raises(Misuse, match="give it another"):
            protocols.catalogue((*ours, SPEC, clash))


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("tests.toy.nothing:SPEC", "cannot be imported"),
        ("tests.toy.plugin:ROOT", "not a ProtocolSpec"),
    ],
)
def test_a_broken_plugin_is_left_out_and_named(
    target: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_distribution(tmp_path / "site", f"[unisono.protocols]\nbroken = {target}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    protocols._catalogue.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match=reason):
            assert protocols.specs().keys() == protocols._BUILT_IN.keys()
        with pytest.raises(Misuse, match=f"broken .*{reason}"):
            protocols.spec("broken")
    finally:
        protocols._catalogue.cache_clear()


# -- conformance and simulation -------------------------------------------------------------------


def test_its_figure_decides_every_event() -> None:
    assert not FIGURE.undecided()


@pytest.mark.parametrize("faults", PROFILES)
def test_it_keeps_what_it_claims(installed: Path, faults: str) -> None:
    summary = campaign("sequencer", range(10), faults, (3, 9), jobs=1, messages=60)
    assert not summary.failures, summary.failures[0]


class Unrepaired(Links):
    def answer(self, packet: LinkBeat, out: list[Effect]) -> None:
        super().answer(packet._replace(missing=()), out)


class WithoutRepair(Sequencer):
    """Never sends anything again."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(config)
        self._links.__class__ = Unrepaired


class Boasting(Sequencer):
    """Claims to hold messages that were never sent."""

    def held(self) -> dict[Member, int]:
        return {self.me: 1 << 40}


@pytest.mark.parametrize(("mutant", "law"), [(WithoutRepair, "progress"), (Boasting, "receipts")])
def test_a_planted_bug_breaks_a_law(mutant: type[Sequencer], law: str) -> None:
    summary = campaign(replace(SPEC, make=mutant), range(10), "mild", (3, 5), jobs=1, messages=60)
    assert law in {broken for each in summary.failures for broken in each.broken}


def test_its_options_are_checked(installed: Path) -> None:
    with pytest.raises(Misuse, match="detect_us must be 20000"):
        run(Plan(protocol="sequencer", nodes=3, options={"detect_us": 1}))


def test_what_is_no_packet_has_no_label() -> None:
    assert PACKETS.label(b"nothing") == ""


# -- real members, traces, drawings, benchmarks, Spark --------------------------------------------


@pytest.mark.real
def test_real_members_share_messages_and_state(installed: Path) -> None:
    port = free_port()
    peers = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]

    def join(name: str, at: int, log: list[bytes], **options: int) -> unisono.Group:
        return unisono.join(
            "toy",
            name=name,
            protocol="sequencer",
            peers=peers,
            bind=peers[at],
            snapshot=lambda: b",".join(log),
            restore=lambda state: log.extend(state.split(b",")),
            options=options,
        )

    async def read(group: unisono.Group, log: list[bytes], last: bytes) -> None:
        async for item in group:
            if isinstance(item, unisono.Message):
                log.append(item.payload)
                if item.payload == last:
                    return

    async def talk() -> None:
        ours: list[bytes] = []
        theirs: list[bytes] = []
        async with join("a", 0, ours, sequencer=1) as a:
            await a.multicast(b"one")
            reading = asyncio.create_task(read(a, ours, b"end"))
            async with join("b", 1, theirs) as b:
                await b.multicast(b"x" * 100_000)
                await a.multicast(b"end")
                await read(b, theirs, b"end")
            await reading
        assert ours == theirs == [b"one", b"x" * 100_000, b"end"]

    asyncio.run(talk())


def test_a_run_is_traced_verified_and_drawn(installed: Path) -> None:
    run = ("--protocol", "sequencer", "--nodes", "4", "--seed", "2", "--messages", "40")
    assert command("sim", *run, "--trace", "trace", "--detail", cwd=installed).returncode == 0
    verified = command("verify", "trace", "--json", cwd=installed)
    (verdict,) = json.loads(verified.stdout)["runs"].values()
    assert {law for law, how in verdict["laws"].items() if how == "kept"} == set(SPEC.laws)
    # As the pipeline's tasks judge it.
    found = judged_here(installed / "trace", {SPEC.name: SPEC.laws})
    assert {row["verdict"] for row in found if row.get("law") in SPEC.laws} == {"kept"}
    assert [row["protocol"] for row in found if row["what"] == "measure" and not row["node"]]
    drawn = command("draw", "trace", "--out", "picture.svg", cwd=installed)
    assert drawn.returncode == 0, drawn.stderr
    picture = (installed / "picture.svg").read_text()
    assert "data " in picture and "nak " in picture


@pytest.mark.real
def test_it_is_measured(installed: Path) -> None:
    wanted = "--protocol sequencer --members 3 --size 1000 --rounds 1 --seconds 0.2 --json"
    found = command("bench", "all", *wanted.split(), cwd=installed)
    assert found.returncode == 0, found.stderr
    rows = json.loads(found.stdout)["results"]
    assert rows and all(row["system"] == "unisono-sequencer" for row in rows)


@pytest.mark.spark
@pytest.mark.soak
def test_the_pipeline_judges_and_measures_it(installed: Path) -> None:
    run = ("--protocol", "sequencer", "--nodes", "3", "--messages", "30")
    assert command("sim", *run, "--trace", "trace", "--detail", cwd=installed).returncode == 0
    found = command(
        "pipeline", "trace", "--out", "out", "--master", "local[2]", "--json", cwd=installed
    )
    assert found.returncode == 0, found.stderr
    (verdict,) = json.loads(found.stdout)["runs"].values()
    assert {law for law, how in verdict["laws"].items() if how == "kept"} == set(SPEC.laws)


# -- the tutorial ------------------------------------------------------------------------------


def test_the_tutorial_shows_the_files_themselves(rewrite: bool) -> None:
    page = ROOT / "docs" / "YOUR-OWN-PROTOCOL.md"
    if rewrite:
        page.write_text(refreshed(page.read_text(), ROOT))
    files = sorted((ROOT / "tests" / "toy" / "sequencer").glob("*.py"))
    found = shown(page.read_text())
    assert found.keys() == {str(path.relative_to(ROOT)) for path in files}
    for path in files:
        assert code_lines(found[str(path.relative_to(ROOT))]) == code_lines(path.read_text())
