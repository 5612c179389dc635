"""What the page about the daemon shows is run, and so is the command and the example."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli.running import refused, unisono
from tests.daemon.stage import daemon_process
from tests.documents import blocks, section
from tests.harness import ENVIRONMENT, ROOT, Child, output_of
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, until
from unisono.cli import run

pytestmark = pytest.mark.real

PROGRAMS = blocks(section("OPERATIONS", "The daemon"), "python")


@pytest.mark.parametrize("program", PROGRAMS, ids=["join", "connect", "daemon"])
def test_a_program_of_the_page_runs(program: str, place: Path) -> None:
    path = "d9" if "Daemon(" in program else "d0"
    body = program.replace("/tmp/unisono.sock", f"{place}/{path}")
    body = body.replace("bounds=", f"port={free_port()}, bounds=")
    source = "import asyncio\nimport unisono\nasync def main():\n"
    source += textwrap.indent(body, "    ") + "asyncio.run(main())\n"
    with daemon_process(place, 0, free_port()):
        output_of("-c", source)


def test_the_example_runs(place: Path) -> None:
    program = [sys.executable, "-u", str(ROOT / "examples" / "site.py"), f"{place}/d0"]
    with daemon_process(place, 0, free_port()):
        listeners = {
            room: subprocess.Popen(
                [*program, "listen", room, "2"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=ENVIRONMENT,
            )
            for room in ("kitchen", "garden")
        }
        try:
            for room, process in listeners.items():
                assert process.stdout is not None
                assert process.stdout.readline().startswith(f"in {room}: ")
            for words in ("dinner is ready", "come"):
                subprocess.run(
                    [*program, "say", "kitchen,garden", words], timeout=LIMIT_S, check=True
                )
            for process in listeners.values():
                out, _ = process.communicate(timeout=LIMIT_S)
                assert out == "speaker: dinner is ready\nspeaker: come\n"
                assert process.returncode == 0
        finally:
            for process in listeners.values():
                process.kill()
                process.wait(10)


def test_lines_go_through_a_daemon(place: Path) -> None:
    with daemon_process(place, 0, free_port()):
        cat = ["cat", "orders", "--daemon", f"unix:{place}/d0", "--name", "a", "--settle", "0"]
        found = unisono(*cat, "--linger", "0", stdin=b"one\ntwo\n")
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-2:] == ["a: one", "a: two"]


MISTAKES = [
    ("daemon", "no listen address"),
    ("daemon --listen here", "write unix:/path"),
    ("daemon --listen tcp:192.168.1.1:7401", "clients are local"),
    (
        "daemon --listen PLACE/x --protocol rmcast",
        "has no total order for all members, and daemons need one",
    ),
    ("daemon --listen PLACE/x --mode 9", "write permissions as 600"),
    ("daemon --listen PLACE/x --service resilient(2)", "does not offer"),
    ("daemon --listen PLACE/x --option nonsense=1", "has no option"),
    ("daemon --listen PLACE/no/x", "there is no directory"),
    ("daemon --listen PLACE", "the file is not a socket"),
    ("cat g --daemon PLACE/x --peers 127.0.0.1:1", "cannot be used with daemon="),
]


@pytest.mark.parametrize(("line", "words"), MISTAKES)
def test_a_mistake_on_the_command_line_gets_one_line(
    line: str, words: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.replace("PLACE", str(place)).split()) == 2
    out, err = capsys.readouterr()
    assert not out and words in err and err.count("\n") == 1


def test_a_missing_daemon_or_a_second_one_is_reported(place: Path) -> None:
    refused(unisono("cat", "g", "--daemon", f"{place}/x"), "no daemon answers", code=3)
    with daemon_process(place, 0, free_port()):
        again = ("daemon", "--listen", f"unix:{place}/d0", "--port", str(free_port()))
        refused(unisono(*again), "another daemon listens there")


def test_a_daemon_prints_what_it_does(place: Path) -> None:
    line = [sys.executable, "-m", "unisono", "daemon", "--listen", f"{place}/d0"]
    process = subprocess.Popen(
        [*line, "--port", str(free_port()), "--name", "d0"],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"listening: unix:{place}/d0\n"
        assert process.stdout.readline().startswith("ring: ")
        process.send_signal(2)
        assert process.stdout.read() == "ended\n"
        assert process.wait(LIMIT_S) == 130
    finally:
        process.kill()
        process.wait(10)


def test_a_daemon_has_a_file_for_each_client(place: Path) -> None:
    line = f"ulimit -S -n 256; exec {sys.executable} -m unisono daemon --listen {place}/d0"
    process = subprocess.Popen(
        ["sh", "-c", f"{line} --port {free_port()} --clients 300"],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        assert process.stdout is not None and process.stdout.readline().startswith("listening")
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        (soft,) = re.findall(r"Max open files +(\d+)", limits)
        assert int(soft) >= 300
    finally:
        process.kill()
        process.wait(10)


def test_a_client_imports_neither_protocols_nor_anything_heavy(place: Path) -> None:
    source = f"""
import asyncio, sys, unisono
async def main():
    async with unisono.join("g", daemon="{place}/d0") as group:
        await group.multicast(b"x")
        async for event in group:
            if isinstance(event, unisono.Message):
                break
        async with unisono.connect("{place}/d0") as connection:
            await connection.send("g", b"y")
asyncio.run(main())
heavy = ("pyarrow", "pyspark", "typer", "rich", "unisono.protocols", "unisono.daemon")
print([name for name in heavy if name in sys.modules])
"""
    with daemon_process(place, 0, free_port()):
        assert output_of("-c", source) == "[]\n"


def test_a_second_daemon_is_reported_in_the_ring(place: Path) -> None:
    port = free_port()

    def names(teller: Child) -> list[str]:
        views = teller.of("ring")
        return sorted(views[-1]["daemons"]) if views else []

    with daemon_process(place, 0, port) as one, daemon_process(place, 1, port) as two:
        until(lambda: names(one) == names(two) == ["d0", "d1"])
