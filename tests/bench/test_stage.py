"""What members stand on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from unisono.bench import stage as stages
from unisono.bench.processes import ended_with, spawned
from unisono.bench.stage import MTU, NAMESPACES, check, stage
from unisono.bench.system import Seat
from unisono.errors import Misuse


def test_on_loopback_each_seat_has_its_address_and_the_scratch_goes() -> None:
    with stage("loopback", 3) as here:
        assert [seat.host for seat in here.seats] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        assert here.server not in here.seats and here.server.prefix == ()
        (here.scratch / "file").write_text("")
    assert not here.scratch.exists()


def test_scratch_that_a_killed_run_left_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages.tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen(["true"])
    gone.wait()
    kept = (f"unibench{os.getpid()}-mine", "unibench-other", "elsewhere")
    for name in (f"unibench{gone.pid}-left", *kept):
        (tmp_path / name).mkdir()
    with stage("loopback", 2):
        pass
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(kept)


def test_an_unknown_net_is_refused() -> None:
    with pytest.raises(Misuse, match="loopback or namespaces"):
        check("wifi")


def test_namespaces_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.shutil, "which", lambda name, path=None: "/sbin/ip")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Misuse, match="root"), stage(NAMESPACES, 2):
        pass


def test_namespaces_need_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "PATH", "/nonexistent")
    with pytest.raises(Misuse, match="iproute2"), stage(NAMESPACES, 2):
        pass


# -- for real ------------------------------------------------------------------------------------


def ip(seat: Seat, *words: str) -> str:
    return subprocess.run(
        [*seat.prefix, "ip", *words], capture_output=True, text=True, check=True
    ).stdout


def our_spaces() -> list[str]:
    names = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in names.splitlines() if f"unibench{os.getpid()}-" in line]


@pytest.mark.root
@pytest.mark.real
def test_each_namespace_is_a_machine_on_the_bridge() -> None:
    with stage(NAMESPACES, 2) as here:
        assert len(our_spaces()) == 4
        for seat in (*here.seats, here.server):
            (link,) = json.loads(ip(seat, "-j", "addr", "show", "dev", seat.interface))
            assert link["mtu"] == MTU
            assert seat.host in [each["local"] for each in link["addr_info"]]
        a, b = here.seats
        talk = "import socket; s = socket.socket(2, 2); "
        with ended_with() as processes:
            listen = talk + f"s.bind(({b.host!r}, 9)); print('up', flush=True); print(s.recv(9))"
            processes.append(spawned(b, ["python3", "-c", listen], here.scratch))
            assert processes[0].stdout is not None
            assert processes[0].stdout.readline() == "up\n"
            say = talk + f"s.sendto(b'heard', ({b.host!r}, 9))"
            processes.append(spawned(a, ["python3", "-c", say], here.scratch))
            assert processes[0].stdout.readline() == "b'heard'\n"
    assert not our_spaces()


@pytest.mark.root
@pytest.mark.real
def test_what_goes_wrong_leaves_no_namespace_and_the_dead_are_forgotten() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    stale = f"unibench{ended.pid}-0"
    subprocess.run(["ip", "netns", "add", stale], check=True)
    with pytest.raises(RuntimeError), stage(NAMESPACES, 2):
        raise RuntimeError
    assert not our_spaces()
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert stale not in left
