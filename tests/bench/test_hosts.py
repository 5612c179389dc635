"""The hosts that members run on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S
from unisono.bench import hosts
from unisono.bench.hosts import MTU, NAMESPACES, Host, check, hosts_on
from unisono.errors import Misuse
from unisono.processes import Processes, answers


def test_on_loopback_each_host_has_its_address_and_the_scratch_goes() -> None:
    with hosts_on("loopback", 3) as here:
        assert [host.address for host in here.members] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        assert here.server not in here.members and here.server.prefix == ()
        (here.scratch / "file").write_text("")
    assert not here.scratch.exists()


def test_scratch_that_a_killed_run_left_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts.tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen(["true"])
    gone.wait()
    kept = (f"unibench{os.getpid()}-mine", "unibench-other", "elsewhere")
    for name in (f"unibench{gone.pid}-left", *kept):
        (tmp_path / name).mkdir()
    with hosts_on("loopback", 2):
        pass
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(kept)


def test_an_unknown_net_is_refused() -> None:
    with pytest.raises(Misuse, match="loopback or namespaces"):
        check("wifi")


def test_namespaces_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts.shutil, "which", lambda name, path=None: "/sbin/ip")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Misuse, match="root"), hosts_on(NAMESPACES, 2):
        pass


def test_namespaces_need_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "PATH", "/nonexistent")
    with pytest.raises(Misuse, match="iproute2"), hosts_on(NAMESPACES, 2):
        pass


# -- for real ------------------------------------------------------------------------------------


def ip(host: Host, *words: str) -> str:
    return subprocess.run(
        [*host.prefix, "ip", *words], capture_output=True, text=True, check=True
    ).stdout


def our_spaces() -> list[str]:
    names = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in names.splitlines() if f"unibench{os.getpid()}-" in line]


@pytest.mark.root
@pytest.mark.real
def test_each_namespace_is_a_machine_on_the_bridge() -> None:
    with hosts_on(NAMESPACES, 2) as here:
        assert len(our_spaces()) == 4
        for host in (*here.members, here.server):
            (link,) = json.loads(ip(host, "-j", "addr", "show", "dev", host.interface))
            assert link["mtu"] == MTU
            assert host.address in [each["local"] for each in link["addr_info"]]
        a, b = here.members
        talk = "import socket; s = socket.socket(2, 2); "
        with Processes() as processes:
            listen = (
                talk
                + f"s.bind(({b.address!r}, 9)); print('{{}}', flush=True); s.recv(9); print('{{}}')"
            )
            listener = processes.start("b", (*b.prefix, "python3", "-c", listen))
            answers([listener], LIMIT_S)
            send = talk + f"s.sendto(b'heard', ({b.address!r}, 9))"
            processes.start("a", (*a.prefix, "python3", "-c", send))
            answers([listener], LIMIT_S)
    assert not our_spaces()


@pytest.mark.root
@pytest.mark.real
def test_what_goes_wrong_leaves_no_namespace_and_the_dead_are_forgotten() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    stale = f"unibench{ended.pid}-0"
    subprocess.run(["ip", "netns", "add", stale], check=True)
    with pytest.raises(RuntimeError), hosts_on(NAMESPACES, 2):
        raise RuntimeError
    assert not our_spaces()
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert stale not in left
