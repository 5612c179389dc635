"""A feed with a token or TLS serves those that have it, and tells the others in one line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.feed.stage import Served, messages
from tests.feed.test_server import places, raw
from unisono.errors import Misuse
from unisono.feed import FeedClient, FeedGone, protocol
from unisono.feed.access import open_to_all, server_tls, token_in
from unisono.feed.protocol import FeedFrameKind
from unisono.spark.source.options import feed_options

TOKEN = "0123456789abcdef-token"


def secret(path: Path, text: str = TOKEN) -> Path:
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    place = tmp_path_factory.mktemp("tls")
    cert, key = place / "cert.pem", place / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30"
    command += " -subj /CN=feed -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(
        [*command.split(), "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_who_states_the_token_is_served(tmp_path: Path) -> None:
    file = secret(tmp_path / "token")
    with Served(tmp_path / "log", access=(TOKEN, None)) as served:
        served.say(messages(1, 10))
        with FeedClient(served.at, 5, token=file) as client:
            assert places(client, 0, 10) == [*range(1, 11)]
            client.write("q", 0, 0, 0, [b"row"])
        assert served.taken


def test_who_states_another_or_none_is_refused_in_one_line(tmp_path: Path) -> None:
    other = secret(tmp_path / "other", TOKEN[:-1] + "x")
    ask = protocol.json_frame(
        FeedFrameKind.REQUEST, do="rows", query="q", partition=0, epoch=0, first_row=0
    )
    with Served(tmp_path / "log", access=(TOKEN, None)) as served:
        served.say(messages(1, 10))
        with pytest.raises(Misuse, match="wants a token: give the file"):
            FeedClient(served.at, 5).bounds()
        with pytest.raises(Misuse, match="another token"):
            FeedClient(served.at, 5, token=other).bounds()
        assert b"wants a token" in raw(served.at, protocol.HELLO + ask)
        for bad in (None, 1, ["x"], "\ud800", ""):
            stated = protocol.json_frame(FeedFrameKind.REQUEST, do="token", token=bad)
            assert b"token" in raw(served.at, protocol.HELLO + stated + ask)
        assert served.counts["drop.token"] == 8
        assert not served.taken


def test_a_token_where_none_is_wanted_does_no_harm(tmp_path: Path) -> None:
    with Served(tmp_path / "log") as served:
        assert FeedClient(served.at, 5, token=secret(tmp_path / "t")).bounds().end == 0


def test_a_feed_with_tls_is_read_by_who_knows_its_authority(
    tmp_path: Path, signed: tuple[Path, Path]
) -> None:
    cert, key = signed
    file = secret(tmp_path / "token")
    with Served(tmp_path / "log", access=(TOKEN, server_tls(cert, key))) as served:
        served.say(messages(1, 10))
        with FeedClient(served.at, 10, token=file, ca=cert) as client:
            assert places(client, 0, 10) == [*range(1, 11)]
        with pytest.raises(FeedGone):
            FeedClient(served.at, 0.3, token=file).bounds()
        port = served.at.partition(":")[2]
        with pytest.raises(Misuse, match=r"not accepted: .*ostname.*: check ca="):
            FeedClient(f"localhost:{port}", 5, token=file, ca=cert).bounds()
    with Served(tmp_path / "plain") as served, pytest.raises(FeedGone):
        FeedClient(served.at, 0.3, ca=cert).bounds()


def test_bad_files_are_one_line(tmp_path: Path, signed: tuple[Path, Path]) -> None:
    cert, key = signed
    with pytest.raises(Misuse, match="No such file"):
        token_in(tmp_path / "none")
    readable = secret(tmp_path / "readable")
    readable.chmod(0o644)
    with pytest.raises(Misuse, match="chmod 600"):
        token_in(readable)
    with pytest.raises(Misuse, match="16 to 1024 printable"):
        token_in(secret(tmp_path / "short", "abc"))
    with pytest.raises(Misuse, match="go together"):
        server_tls(cert, None)
    with pytest.raises(Misuse, match="tls_key="):
        server_tls(key, cert)
    with pytest.raises(Misuse, match="name a file of certificates"):
        FeedClient("127.0.0.1:1", ca=key)


def test_a_feed_that_everybody_reaches_is_warned_of(signed: tuple[Path, Path]) -> None:
    tls = server_tls(*signed)
    for near in ("127.0.0.1", "::1", "localhost"):
        assert not open_to_all(near, "", None)
    for far in ("0.0.0.0", "10.0.0.1", "feed.example"):
        assert "without a token" in open_to_all(far, "", tls)
        assert "without TLS" in open_to_all(far, TOKEN, None)
        assert not open_to_all(far, TOKEN, tls)


def test_spark_has_options_for_both() -> None:
    options = feed_options({"feed": "h:1", "feedToken": "/t", "feedCa": "/ca"})
    assert (options.token, options.ca) == ("/t", "/ca")
