"""The options of join: three ways to give them, and an error for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import unisono
from tests.net.flood import FLOOD
from unisono import config as configs
from unisono.errors import Misuse
from unisono.model import Address, Resilient, Service

TOML = """
[group]
group = "orders"
name = "a"
protocol = "flood"
multicast = "239.1.2.3"
port = 7411
interface = "10.0.0.1"
beat_us = 5
"""
URL = "unisono://239.1.2.3:7411/orders?protocol=flood&interface=10.0.0.1&name=a&beat_us=5"


def test_keywords_a_file_and_a_url_mean_the_same(tmp_path: Path) -> None:
    path = tmp_path / "group.toml"
    path.write_text(TOML)
    keywords = {"name": "a", "protocol": "flood", "multicast": "239.1.2.3", "port": 7411}
    keywords |= {"interface": "10.0.0.1", "beat_us": 5}
    by_keywords = configs.read("orders", None, keywords)
    assert configs.read(None, path, {}) == by_keywords
    assert configs.read(URL, None, {}) == by_keywords
    assert configs.read(None, URL, {}) == by_keywords
    assert by_keywords.options == {"beat_us": 5}
    assert configs.read(None, path, {"port": 1}).port == 1, "keywords win"
    for over in ({"beat_us": 6}, {"options": {"beat_us": 6}}):
        assert configs.read(None, path, over).options == {"beat_us": 6}, "keywords win here too"


def test_a_url_lists_peers() -> None:
    read = configs.read(
        "unisono+peers://127.0.0.1:1,[::1]:2/orders?rejoin=true&join_s=2.5", None, {}
    )
    assert read.peers == ("127.0.0.1:1", "[::1]:2")
    assert read.rejoin and read.join_s == 2.5


def test_by_default_members_on_one_machine_find_each_other() -> None:
    at = configs.resolve_addresses(configs.read("orders", None, {}))
    assert at.multicast == Address("239.192.77.1", 7400) and at.interface == "127.0.0.1"


def test_a_name_among_the_peers_is_resolved() -> None:
    at = configs.resolve_addresses(
        configs.read("orders", None, {"peers": ["localhost:5", "127.0.0.1"]})
    )
    assert at.peers == (Address("127.0.0.1", 5), Address("127.0.0.1", 7400))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"inteface": "x"}, "did you mean 'interface'"),
        ({"beat": 5}, "flood has no option 'beat' .did you mean 'beat_us'.*; it has: beat_us"),
        ({"port": "7400"}, "write a whole number"),
        ({"port": 70000}, "^port 70000 is not a number from 0 to 65535"),
        ({"port": True}, "write a whole number"),
        ({"rejoin": 1}, "write true or false"),
        ({"slow": "sleep"}, "write one of block, shed, leave"),
        ({"queue_count_max": 0}, "above 0"),
        ({"join_s": -1}, "above 0"),
        ({"join_s": float("nan")}, "above 0"),
        ({"join_s": float("inf")}, "at most a day"),
        ({"leave_s": 86_401}, "at most a day"),
        ({"packet_bytes_max": 511}, "give at least 512"),
        ({"buffer_bytes": 1 << 31}, "give at most 2147483647"),
        ({"peers": ""}, "peers= is empty"),
        ({"peers": " ,"}, "peers= is empty"),
        ({"peers": []}, "leave it out for multicast"),
        ({"peers": [1]}, "a list of 'host:port'"),
        ({"peers": "a:1", "multicast": "239.1.1.1"}, "both multicast= and peers="),
        ({"name": "a b"}, "letters, digits"),
        ({"beat_us": "5"}, "write a whole number"),
        ({"service": "loud"}, "unknown service"),
        ({"service": "safe"}, "protocol flood does not offer safe"),
        ({"snapshot": lambda: b""}, "go together"),
        (
            {"slow": "shed", "snapshot": lambda: b"", "restore": lambda state: None},
            "no state can be transferred",
        ),
    ],
)
def test_a_mistake_is_reported_at_once_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(Misuse, match=text) as caught:
        unisono.join("orders", spec=FLOOD, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"multicast": "10.0.0.1"}, "not a multicast address"),
        ({"multicast": "example.org"}, "not an IP address"),
        ({"port": 0}, "give a port other than 0"),
        ({"peers": "host:x"}, "not a number from 0"),
        ({"peers": "[::1:5"}, r"\[address\]:port"),
        ({"peers": "no-such-host.invalid:5"}, "cannot be resolved"),
        ({"bind": "here:5"}, "not an IP address"),
        ({"advertise": "me"}, "not an IP address"),
    ],
)
def test_a_bad_directory_is_reported(options: dict[str, Any], text: str) -> None:
    with pytest.raises(Misuse, match=text):
        configs.resolve_addresses(configs.read("orders", None, options))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://239.1.2.3/orders", "unisono://"),
        ("unisono://239.1.2.3:7400", "names no group"),
        ("unisono://239.1.2.3:x/orders", "not a number"),
        ("unisono+peers:///orders", "names no peers"),
        ("unisono+peers://,/orders", "peers= is empty"),
        ("unisono://239.1.2.3/orders?join_s=nan", "above 0"),
        ("unisono://239.1.2.3/orders?buffer_bytes=99999999999999", "at most"),
        ("unisono://239.1.2.3/orders?port=x", "not a number"),
        ("unisono://239.1.2.3/orders?rejoin=maybe", "true or false"),
        ("unisono://239.1.2.3/orders?rejoin", "key=value"),
        ("unisono://[::1/orders", "URL"),
        ("unisono://", "names no group"),
        ("orders://x/y", "unisono://"),
    ],
)
def test_a_malformed_url_is_reported(url: str, text: str) -> None:
    with pytest.raises(Misuse, match=text):
        configs.read(url, None, {})


@pytest.mark.parametrize(
    ("toml", "text"),
    [
        ("group = ", "is not TOML"),
        ("x = " + "[" * 20_000, "nested too deeply"),
        ("x = 1", r"no table \[group\]"),
        ("group = 3", r"no table \[group\]"),
        ("[group]\nname = 'a'", "group ''"),
        ("[group]\ngroup = 3", "write a text"),
    ],
)
def test_a_malformed_file_is_reported(tmp_path: Path, toml: str, text: str) -> None:
    path = tmp_path / "group.toml"
    path.write_text(toml)
    with pytest.raises(Misuse, match=text):
        configs.read(None, path, {})
    with pytest.raises(Misuse, match="No such file"):
        configs.read(None, tmp_path / "none.toml", {})


def test_an_unknown_protocol_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Misuse, match="rmcast"):
        unisono.join("orders", protocol="nosuch")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("safe", Service.SAFE),
        ("RELIABLE", Service.RELIABLE),
        ("resilient(2)", Resilient(2)),
        ("resilient:2", Resilient(2)),
        ("resilient(majority)", Resilient(Resilient.MAJORITY)),
        ("resilient:all", Resilient(Resilient.ALL)),
        (Resilient(3), Resilient(3)),
    ],
)
def test_a_level_can_be_written(text: Any, level: Any) -> None:
    assert configs.service_level(text) == level


@pytest.mark.parametrize(
    "level",
    [
        "resilient(0)",
        "resilient:-3",
        *(Resilient(k) for k in cast("list[int]", [0, 1.5, "2", True])),
    ],
)
def test_a_message_is_held_by_one_or_more(level: Any) -> None:
    with pytest.raises(Misuse, match="give a number of members above 0, majority or all"):
        configs.service_level(level)


def test_the_goal_for_finding_the_dead_is_one_for_all_protocols() -> None:
    from unisono.protocols import spec

    for protocol in ("ring", "mtp", "rmcast"):
        read = configs.read("g", None, {"protocol": protocol, "detect_ms": 300})
        assert configs.check_options(read, spec(protocol))["detect_us"] == 300_000
    both = configs.read("g", None, {"detect_ms": 300, "detect_us": 300_000})
    with pytest.raises(Misuse, match="both detect_ms= and detect_us= are given"):
        configs.check_options(both, spec("ring"))
    with pytest.raises(Misuse, match="flood has no detect_us"):
        configs.check_options(configs.read("g", None, {"detect_ms": 300}), FLOOD)
