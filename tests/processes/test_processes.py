"""Child processes: what they say is read, and none outlives its owner."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.running import is_alive
from tests.waiting import LIMIT_S, until
from unisono.bench.cluster import Cluster
from unisono.processes import Process, Processes, RunFailed, answers, rss_peak_kb, wait_for

pytestmark = pytest.mark.real

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("{}", flush=True)
while True: time.sleep(1)
"""
PARENT = """
import json, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(json.dumps({"child": child.pid}), flush=True)
time.sleep(600)
"""
OWNER = """
import json, sys, time
from unisono.processes import Processes
child = Processes().start("child", [sys.executable, "-c", "import time; time.sleep(600)"])
print(json.dumps({"child": child.pid}), flush=True)
time.sleep(600)
"""


def start(processes: Processes, program: str, name: str = "a") -> Process:
    return processes.start(name, (sys.executable, "-c", program))


def test_each_line_is_answered() -> None:
    with Processes() as processes:
        a, b = (start(processes, ECHO, name) for name in "ab")
        a.write('{"n": 1}', '{"n": 2}')
        b.write('{"n": 3}')
        assert answers([a, b], LIMIT_S) == [{"n": 1}, {"n": 3}]
        assert answers([a], LIMIT_S) == [{"n": 2}]
        assert a.objects == [{"n": 1}, {"n": 2}]
        assert a.next_answer() is None
        a.close_input()
        assert a.wait(LIMIT_S) == 0
    assert not a.is_alive and not b.is_alive


def test_a_child_never_waits_for_its_reader() -> None:
    with Processes() as processes:
        child = start(processes, "for n in range(50_000): print('{\"n\": %d}' % n)")
        assert child.wait(LIMIT_S) == 0
        assert len(child.objects) == 50_000 and child.objects[-1] == {"n": 49_999}


def test_an_answer_just_before_the_end_is_not_lost() -> None:
    with Processes() as processes:
        child = start(processes, "print('{}')")
        assert answers([child], LIMIT_S) == [{}]
        with pytest.raises(RunFailed, match="a ended with code 0"):
            answers([child], LIMIT_S)


def test_an_unexpected_end_is_reported_with_the_last_error_line() -> None:
    program = "import sys; print('first\\n  last  \\n', file=sys.stderr); sys.exit(5)"
    with Processes() as processes:
        child = start(processes, program)
        with pytest.raises(RunFailed, match=r"^a ended with code 5: last$"):
            answers([child], LIMIT_S)
        with pytest.raises(RunFailed, match=r"^a ended with code 5: last$"):
            child.write("too late")


def test_reported_trouble_is_raised_also_when_the_process_is_gone() -> None:
    program = 'print(\'{"trouble": "no room"}\')'
    with Processes() as processes:
        child = start(processes, program)
        with pytest.raises(RunFailed, match=r"^a: no room$"):
            answers([child], LIMIT_S)
        assert str(child.failure()) == "a: no room"


def test_one_failure_ends_the_wait_for_all() -> None:
    with Processes() as processes:
        silent, failing = start(processes, ECHO), start(processes, "1 / 0", "b")
        with pytest.raises(RunFailed, match="b ended with code 1: ZeroDivisionError"):
            answers([silent, failing], LIMIT_S)


def test_silence_and_other_output_are_reported() -> None:
    with Processes() as processes:
        child = start(processes, ECHO)
        with pytest.raises(RunFailed, match=r"a: no answer within 0.1 s"):
            answers([child], 0.1)
        assert not wait_for(lambda: child.lines, 0.1)
        child.write("hello")
        with pytest.raises(RunFailed, match="a: not a line of JSON: b'hello"):
            answers([child], LIMIT_S)


def test_a_child_that_does_not_heed_sigterm_is_killed() -> None:
    with Processes() as processes:
        child = start(processes, STUBBORN)
        answers([child], LIMIT_S)
        processes.end(within_s=0.1)
        assert child.code == -signal.SIGKILL


def test_a_kill_takes_the_children_of_a_child_too() -> None:
    with Processes() as processes:
        child = start(processes, PARENT)
        (told,) = answers([child], LIMIT_S)
        assert is_alive(told["child"])
        child.kill()
        until(lambda: not is_alive(told["child"]), "the end of its child")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's help is Linux's")
def test_children_end_with_an_owner_that_is_killed() -> None:
    with Processes() as processes:
        owner = start(processes, OWNER)
        (told,) = answers([owner], LIMIT_S)
        # Not `kill`, which would take its group: the child has a session of its own anyway.
        owner.signal(signal.SIGKILL)
        assert owner.wait(LIMIT_S) == -signal.SIGKILL
        until(lambda: not is_alive(told["child"]), "the end of its child")


def test_a_child_outlives_the_thread_that_started_it() -> None:
    with Processes() as processes:
        thread = threading.Thread(target=start, args=(processes, ECHO))
        thread.start()
        thread.join()
        (child,) = processes
        child.write("{}")
        assert answers([child], LIMIT_S) == [{}]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_processor_time_and_memory_are_measured() -> None:
    with Processes() as processes:
        busy = start(processes, "print('{}', flush=True)\nwhile True: pass")
        answers([busy], LIMIT_S)
        until(lambda: busy.cpu_ns() > 50_000_000, "some processor time")
        assert rss_peak_kb(busy.pid) > 1000
    assert busy.cpu_ns() == 0 and rss_peak_kb(busy.pid) == 0


def test_a_dead_server_is_the_reason_why_its_members_fail() -> None:
    with Processes() as processes:
        server = start(processes, "print('not JSON'); raise SystemExit('address in use')", "server")
        member = start(processes, "1 / 0", "member")
        server.wait(LIMIT_S)
        with pytest.raises(RunFailed, match="server ended with code 1: address in use"):
            Cluster([member], [server]).wait_ready()
