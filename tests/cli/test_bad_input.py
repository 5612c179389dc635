"""Bad input gets one clear line on standard error, exit code 2, and no traceback."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.running import here, refused, unisono
from tests.net.recorder import free_port

CASES = {
    "unknown command": ("conduct", ("No such command",)),
    "unknown option": ("sim --conduct", ("No such option",)),
    "no argument": ("verify", ("directory",)),
    "not a number": ("sim --seed many", ("--seed",)),
    "cat: unknown protocol": ("cat g --protocol nope", ("nope", "rmcast")),
    "cat: service not offered": ("cat g --protocol mtp --service safe", ("use ring",)),
    "cat: no such service": ("cat g --service best", ("causal",)),
    "cat: no group": ("cat", ("write unisono cat GROUP, or --config FILE",)),
    "cat: bad group": ("cat a/b", ("name",)),
    "cat: bad name": ("cat g --name a/b", ("a/b",)),
    "cat: interface of another machine": ("cat g --interface 203.0.113.7", ("203.0.113.7",)),
    "cat: interface that is no address": ("cat g --interface nosuch0", ("nosuch0",)),
    "cat: bad peer": ("cat g --peers 127.0.0.1:99999", ("99999",)),
    "cat: bad port": ("cat g --port 70000", ("70000",)),
    "cat: peers that are none": ("cat g --peers ,", ("peers= is empty",)),
    "cat: bind of the other family": ("cat g --bind [::1]:0", ("bind", "IPv4")),
    "cat: peers of the other family": (
        "cat g --peers 127.0.0.1:7400 --bind [::1]:5",
        ("bind", "IPv4"),
    ),
    "cat: advertise of the other family": ("cat g --advertise [::1]:5", ("advertise", "IPv4")),
    "cat: advertise nobody": ("cat g --advertise 0.0.0.0:5", ("advertise",)),
    "cat: endless linger": ("cat g --linger inf", ("--linger",)),
    "cat: linger of no length": ("cat g --linger nan", ("--linger",)),
    "cat: endless settle": ("cat g --settle inf", ("--settle",)),
    "cat: bad bind": ("cat g --bind here", ("bind", "here")),
    "cat: bad advertise": ("cat g --advertise here", ("advertise", "here")),
    "cat: malformed URL": ("cat unisono://239.1.2.3:x/g", ("port",)),
    "cat: foreign URL": ("cat http://example.com/g", ("unisono://",)),
    "cat: no such config": ("cat g --config nosuch.toml", ("nosuch.toml",)),
    "cat: malformed TOML": ("cat g --config bad.toml", ("bad.toml", "TOML")),
    "cat: TOML without the table": ("cat g --config other.toml", ("[group]",)),
    "cat: trace in a file": ("cat g --trace bad.toml", ("bad.toml",)),
    "cat: option without number": ("cat g --option tries=soon", ("tries",)),
    "cat: unknown option of ring": ("cat g --option speed=1", ("speed", "sites")),
    "cat: negative expect": ("cat g --expect -1", ("--expect",)),
    "sim: unknown protocol": ("sim --protocol nope", ("nope", "rmcast")),
    "sim: unknown faults": ("sim --faults some", ("chaos",)),
    "sim: service not offered": ("sim --protocol rmcast --service safe", ("causal",)),
    "sim: option without number": ("sim --option tries=soon", ("tries",)),
    "sim: unknown option of ring": ("sim --option speed=1", ("speed", "sites")),
    "sim: too many nodes": ("sim --nodes 99", ("64",)),
    "sim: no such plan": ("sim --plan nosuch.json", ("nosuch.json",)),
    "sim: plan that is no JSON": ("sim --plan bad.toml", ("JSON",)),
    "sim: plan without protocol": ("sim --plan empty.json", ("protocol",)),
    "sim: plan and more": ("sim --plan empty.json --seed 3", ("--seed",)),
    "sim: bad seeds": ("sim --seeds 7", ("A:B",)),
    "sim: seeds and shrink": ("sim --seeds 1:3 --shrink", ("--shrink",)),
    "sim: more nodes than the protocol takes": (
        "sim --protocol rmcast --nodes 33",
        ("32", "members_count_max"),
    ),
    "sim: seeds of too many nodes": ("sim --protocol rmcast --seeds 0:2 --nodes 3:40", ("32",)),
    "sim: seeds and plan": ("sim --seeds 0:2 --plan empty.json", ("--plan",)),
    "sim: seeds of an unknown protocol": ("sim --seeds 0:2 --protocol nope", ("nope",)),
    "sim: trace in a file": ("sim --trace bad.toml", ("bad.toml",)),
    "verify: no such directory": ("verify nosuch", ("nosuch",)),
    "verify: a file": ("verify bad.toml", ("bad.toml",)),
    "verify: an empty directory": ("verify .", ("no trace",)),
    "verify: a foreign directory": ("verify foreign", ("foreign",)),
    "pipeline: no such directory": ("pipeline nosuch --out out", ("nosuch",)),
    "pipeline: no out": ("pipeline foreign", ("--out",)),
    "bench: unknown": ("bench nope", ("raw",)),
    "demo: unknown protocol": ("demo --protocol nope", ("nope", "rmcast")),
    "demo: unknown option of ring": ("demo --option speed=1", ("speed", "sites")),
    "demo: too short": ("demo --seconds 2", ("--seconds", "4")),
    "demo: not its directory": ("demo --out foreign", ("foreign", "--out")),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bad")
    (place / "bad.toml").write_text("group = [")
    (place / "other.toml").write_text("[other]\nname = 'x'\n")
    (place / "empty.json").write_text("{}")
    folder = place / "foreign" / "run=x"
    folder.mkdir(parents=True)
    (folder / "a-1.parquet").write_text("not Parquet at all")
    return place


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_gets_one_line(
    case: str, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    line, words = CASES[case]
    refused(here(capfd, *line.split()), *words)


def test_a_mistake_ends_the_command() -> None:
    refused(unisono("sim", "--protocol", "nope"), "nope", "rmcast")


def test_a_taken_port_is_reported() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        refused(unisono("cat", "g", "--bind", f"127.0.0.1:{port}"), str(port), "taken", "bind=")


def test_a_line_over_the_limit_is_reported(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text("[group]\nmessage_bytes_max = 10\n")
    found = unisono(
        "cat", "g", "--config", "small.toml", "--port", str(free_port()), cwd=tmp_path,
        stdin=b"short\nmuch longer than ten\nshort\n",
    )  # fmt: skip
    assert found.returncode == 2
    assert found.stderr.splitlines() == [
        "unisono: line 2 is over the group's limit message_bytes_max=10: split it, or raise the"
        " limit with --config"
    ]
