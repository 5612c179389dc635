"""`unisono cat`: real processes on loopback."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import cats, refused, unisono
from tests.harness import ENVIRONMENT, UNISONO, Cat, Child
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, until
from unisono.cli.printing import Formatted
from unisono.model import Member, Message

pytestmark = pytest.mark.real


def test_three_members_receive_each_other_and_leave_after_the_last_message(tmp_path: Path) -> None:
    port = str(free_port())
    arguments = ("talk", "--port", port, "--expect", "6", "--trace", str(tmp_path))
    with cats("abc", *arguments) as found:
        for name, cat in found.items():
            cat.write(f"{name} one", f"{name} zwei €")
        for cat in found.values():
            assert cat.ended() == 0, cat.errors
        wanted = sorted((name, n, f"{name} {w}") for name in "abc" for n, w in WORDS)
        for cat in found.values():
            assert sorted(cat.messages) == wanted
            first = cat.objects[0]
            assert first["kind"] == "view" and "view" in first
            message = next(each for each in cat.objects if each["kind"] == "message")
            assert message.keys() == {"kind", "sender", "number", "seq", "view", "text"}
    verified = unisono("verify", str(tmp_path), "--json")
    assert verified.returncode == 0, verified.stdout
    assert list(json.loads(verified.stdout)["runs"]) == ["talk"]


WORDS = ((1, "one"), (2, "zwei €"))


def test_peers_serve_where_there_is_no_multicast() -> None:
    ports = [free_port() for _ in range(3)]
    peers = ",".join(f"127.0.0.1:{port}" for port in ports)
    with cats("ab", "talk", "--peers", peers, "--expect", "2") as found:
        for cat in found.values():
            cat.write("hello")
        assert [cat.ended() for cat in found.values()] == [0, 0]


def test_at_the_end_of_input_it_leaves_when_all_it_sent_is_delivered() -> None:
    lines = b"".join(b"%d\n" % n for n in range(20_000)) + b"no newline"
    found = unisono(
        "cat", "g", "--name", "a", "--port", str(free_port()), "--linger", "0", stdin=lines
    )
    assert found.returncode == 0
    assert not found.stderr
    told = found.stdout.splitlines()
    assert told[0] == "-- a  (+a)"
    assert told[1:] == [f"a: {n}" for n in range(20_000)] + ["a: no newline"]


def test_bytes_that_are_no_text_are_carried() -> None:
    port = str(free_port())
    arguments = ("cat", "g", "--name", "a", "--port", port, "--linger", "0")
    told = json.loads(unisono(*arguments, "--json", stdin=b"\xff!\n").stdout.splitlines()[-1])
    assert base64.b64decode(told["base64"]) == b"\xff!"
    assert "text" not in told
    process = subprocess.run(
        [*UNISONO, *arguments], input=b"\xff!\n", capture_output=True, env=ENVIRONMENT, check=True
    )
    assert process.stdout.splitlines()[-1] == b"a: \xff!"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_makes_it_leave_cleanly(number: int, code: int) -> None:
    with cats("ab", "g", "--port", str(free_port())) as found:
        found["b"].signal(number)
        assert found["b"].ended() == code
        assert found["b"].errors == ""
        until(lambda: found["a"].view == ["a"], "the view without b")
        found["a"].close_input()
        assert found["a"].ended() == 0


def test_a_killed_member_is_removed_and_comes_back() -> None:
    arguments = ("g", "--port", str(free_port()))
    with cats("abc", *arguments) as found:
        found["c"].kill()
        until(lambda: found["a"].view == found["b"].view == ["a", "b"], "the view without c")
        with Cat(*arguments, "--name", "c") as back:
            until(lambda: found["a"].view == back.view == ["a", "b", "c"], "c's return")
            back.write("again")
            until(lambda: ("c", 1, "again") in found["a"].messages, "c's message")


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    with subprocess.Popen(
        [*UNISONO, "cat", "g", "--port", str(free_port()), "--linger", "30"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"x\n" * 10)
        process.stdin.flush()
        assert process.wait(LIMIT_S) == 141
        assert process.stderr.read() == b""


def test_without_input_it_still_receives() -> None:
    port = str(free_port())
    with Cat("g", "--name", "a", "--port", port, "--expect", "1") as cat:
        cat.close_input()
        until(lambda: cat.view == ["a"])
        unisono("cat", "g", "--name", "b", "--port", port, stdin=b"hello\n")
        assert cat.ended() == 0
        assert cat.messages == [("b", 1, "hello")]


def test_members_that_start_together_receive_all_though_their_input_waits() -> None:
    port = str(free_port())
    arguments = ("cat", "pipes", "--port", port, "--json", "--expect", "9", "--linger", "1")
    arguments += ("--settle", "4")  # The last may start that much later on a busy machine.
    processes = {
        name: subprocess.Popen(
            [*UNISONO, *arguments, "--name", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        for name in "abc"
    }
    try:
        for name, process in processes.items():
            assert process.stdin is not None
            process.stdin.write(b"".join(f"{name}{n}\n".encode() for n in range(3)))
            process.stdin.close()
        for process in processes.values():
            assert process.stdout is not None
            told = [json.loads(line) for line in process.stdout]
            assert process.wait(LIMIT_S) == 0
            heard = sorted(each["text"] for each in told if each["kind"] == "message")
            assert heard == sorted(f"{name}{n}" for name in "abc" for n in range(3))
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def test_a_member_with_other_options_is_refused_in_one_line() -> None:
    port = str(free_port())
    with cats("a", "talk", "--port", port) as found:
        until(lambda: bool(found["a"].objects))
        for words, told in (
            (["--protocol", "mtp"], "has protocol=ring and this member has protocol=mtp"),
            (["--option", "sites=3"], "has sites=0 and this member has sites=3: give sites=0"),
            (
                ["--replayable"],
                "has replayable=false and this member has replayable=true: give replayable=false",
            ),
        ):
            other = unisono("cat", "talk", "--name", "b", "--port", port, *words, stdin=b"x\n")
            refused(other, told, code=3)
        found["a"].write("still here")
        until(lambda: bool(found["a"].messages))


def test_a_signal_lets_one_of_a_pair_continue() -> None:
    arguments = ("pair", "--port", str(free_port()), "--protocol", "ring", "--option", "sites=2")
    with cats("ab", *arguments) as found:
        one = found["a"]
        until(lambda: one.view == ["a", "b"], "the view of both")
        found["b"].kill()

        def goes_on() -> bool:
            one.signal(signal.SIGUSR1)
            return one.view == ["a"]

        until(goes_on, "the view of one alone")
        one.write("alone")
        until(lambda: ("a", 1, "alone") in one.messages, "its message in a view of one")


def test_a_part_goes_on_by_itself_where_that_was_allowed() -> None:
    arguments = ("pair", "--port", str(free_port()), "--option", "sites=2", "--go-on")
    with cats("ab", *arguments) as found:
        one = found["a"]
        until(lambda: one.view == ["a", "b"], "the view of both")
        found["b"].kill()
        until(lambda: one.view == ["a"], "the view of one alone")


def test_one_that_is_blocked_ends_when_its_patience_does() -> None:
    arguments = ("pair", "--port", str(free_port()), "--option", "sites=2")
    with cats("ab", *arguments, "--patience", "0.1", "-X", "leave_s=0.2") as found:
        one = found["a"]
        until(lambda: one.view == ["a", "b"], "the view of both")
        found["b"].kill()
        assert one.ended() == 4
        assert "gave up after 0.1 s: blocked: 1 of 2 members are heard" in one.errors


def test_listening_sends_nothing_and_stays_at_the_end_of_its_input() -> None:
    port = str(free_port())
    listening = ("g", "--name", "a", "--port", port, "--listen", "-f", r"%m:%n:%S:%s\x00\n")
    with (
        Child("a", *UNISONO, "cat", *listening) as one,
        Cat("g", "--name", "b", "--port", port) as other,
    ):
        one.write("never sent")
        one.close_input()
        until(lambda: other.view == ["a", "b"], "the view of both")
        other.write("hi", "hello")
        other.close_input()
        assert other.ended() == 0
        heard = [b"b:1:2:hi\0\n", b"b:2:5:hello\0\n"]
        until(lambda: one.lines == heard, "both", lambda: str(one.lines))
        one.signal(signal.SIGTERM)
        one.wait(LIMIT_S)
        assert one.code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-f", "%q"), "'%q' stands for nothing; there are %s %S %m"),
        (("-f", "50%"), "'%' stands for nothing"),
        (("-f", "%s", "--json"), "exclude each other"),
        (("-X", "colour=red"), "K is an argument of join: advertise, "),
        (("-X", "slow"), "write K=V"),
        (("-X", "slow=never"), "slow"),
    ],
)
def test_what_it_cannot_do_is_refused(words: tuple[str, ...], told: str) -> None:
    refused(unisono("cat", "g", "--port", str(free_port()), *words), told)


def test_a_format_names_the_parts_of_a_message() -> None:
    message = Message(Member("ann", ("127.0.0.1", 1), 7), b"a\nb", 3, "1-x", 42)
    assert (
        Formatted(r"%m %n %o %v %S %s%% \\ \t\x41").item(message) == b"ann 3 42 1-x 3 a\nb% \\ \tA"
    )
    assert len(Formatted("%T").item(message)) == 13
