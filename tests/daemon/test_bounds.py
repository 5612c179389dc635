"""The bounds of a daemon, and what happens at each: no other client is ever stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.daemon.stage import (
    RING,
    daemon,
    daemon_process,
    daemons,
    heard,
    joining,
    messages,
    of_size,
    role,
    stopped,
)
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, eventually
from unisono.client import frames
from unisono.client.frame_splitter import FrameSplitter
from unisono.client.frames import FrameKind, JoinFrame, ShedFrame, StateFrame, framed
from unisono.daemon import Daemon, RegistryLimits, SessionLimits, records
from unisono.daemon.records import MulticastFields, encoded
from unisono.layout import decode

pytestmark = pytest.mark.real

KILO = b"x" * 1000
LIKE_A_DAEMON = {
    "message_bytes_max": (64 << 20) + frames.SLACK_BYTES + records.HEAD_BYTES_MAX,
}
"""What a member must have to be let into a ring of daemons."""


class Raw:
    """A client that sends good or bad frames, and reads only on request."""

    def __init__(self, place: Path, *first: bytes) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(f"{place}/d0")
        if first:
            self.socket.sendall(b"".join(first))

    async def rest(self) -> list[tuple[int, bytes]]:
        """All frames until the daemon closes the connection."""
        return await asyncio.get_running_loop().run_in_executor(None, self._rest)

    def _rest(self) -> list[tuple[int, bytes]]:
        cutter, found = FrameSplitter(1 << 28), []
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(1 << 16):
                found += [(kind, bytes(body)) for kind, body in cutter.feed(data)]
        self.socket.close()
        return found


def member(name: str, group: str = "g", sheds: bool = False) -> bytes:
    return frames.hello(name, 1) + framed(JoinFrame(group, False, sheds))


@pytest.mark.rule("RNG-1")
async def test_a_full_qsub_makes_the_application_wait_and_loses_nothing(place: Path) -> None:
    bounds = SessionLimits(submit_bytes_max=1 << 15)
    said = behind = 0
    numbers: list[int] = []

    async def say(a: Any) -> None:
        nonlocal said
        for _ in range(400):
            await a.multicast_many([b"%d " % (said + i) + KILO for i in range(10)])
            said += 10

    async with (
        daemons(place, bounds=bounds, window_bytes_max=1 << 16) as (one,),
        joining(place, "a", window_bytes_max=1 << 16) as a,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(say(a))
        while len(numbers) < 4000:
            (message,) = await messages(a, 1)
            assert message.payload == b"%d " % len(numbers) + KILO
            numbers.append(message.number)
            behind = max(behind, said - len(numbers))
        assert numbers == list(range(1, 4001))
        assert one.counts["submit.full"], "QSUB was full"
        # An application that did not wait would have sent all of it at once.
        assert behind < 2000, "the application waited"


@pytest.mark.rule("RNG-1")
async def test_a_blocked_daemon_makes_its_application_wait(place: Path) -> None:
    with daemon_process(place, 0, free_port()) as process:
        a = await joining(place, "a", window_bytes_max=1 << 16)
        process.signal(signal.SIGSTOP)
        said = 0

        async def say() -> None:
            nonlocal said
            while said < 3000:
                await a.multicast(b"%d " % said + KILO)
                said += 1

        saying = asyncio.create_task(say())
        await eventually(lambda: a.counters()["multicast.waiting"] == 1)
        before = said
        with pytest.raises(unisono.Full):
            a.multicast_nowait(b"now")
        await asyncio.sleep(0.3)
        assert before == said < 3000, "it waits"
        process.signal(signal.SIGCONT)
        assert await heard(a, 3000) == [b"%d " % i + KILO for i in range(3000)]
        await saying
        await a.leave()


@contextlib.contextmanager
def flooding(a: Any, count: int = 10**9) -> Iterator[asyncio.Task[None]]:
    async def say() -> None:
        for at in range(count):
            await a.multicast_many([b"%d " % (10 * at + i) + KILO for i in range(10)])

    task = asyncio.create_task(say())
    try:
        yield task
    finally:
        task.cancel()


async def test_a_client_that_does_not_read_is_disconnected_and_blocks_no_other(place: Path) -> None:
    async with daemons(place, bounds=SessionLimits(queue_bytes_max=1 << 20)) as (one,):
        a = await joining(place, "a")
        raw = Raw(place, member("slow"))
        await of_size(a, 2)
        with flooding(a, 400) as saying:
            found = await heard(a, 4000)
            await saying
        assert found == [b"%d " % i + KILO for i in range(4000)]
        assert one.counts["cut"] == 1
        await eventually(lambda: len(a.members) == 1)
        assert "reads too slowly" in a.view.detail
        *told_, (kind, reason) = await raw.rest()
        assert kind == FrameKind.BYE and b"queue_bytes_max=1048576" in reason
        kinds = [kind for kind, _ in told_]
        assert kinds[0] == FrameKind.WELCOME and set(kinds[1:]) == {
            FrameKind.VIEW,
            FrameKind.DELIVER,
        }
        await a.leave()


async def test_a_group_that_is_not_iterated_is_cut_off_with_the_reason(place: Path) -> None:
    async with daemons(place, bounds=SessionLimits(queue_bytes_max=1 << 21)):
        a = await joining(place, "a")
        b = await joining(place, "b", queue_bytes_max=1 << 16)
        await of_size(a, 2)
        with flooding(a):
            await asyncio.gather(of_size(a, 1))
        heard_ = []
        with pytest.raises(unisono.Stopped, match="reads too slowly"):
            async for item in b:
                if isinstance(item, unisono.Message):
                    heard_.append(item.number)
        assert heard_ == list(range(1, len(heard_) + 1)), "all up to a place"
        await a.leave()


async def test_a_client_that_sheds_loses_the_oldest_and_learns_how_many(place: Path) -> None:
    async with daemons(place, bounds=SessionLimits(queue_bytes_max=1 << 21)) as (one,):
        a = await joining(place, "a")
        raw = Raw(place, member("slow", sheds=True))
        await of_size(a, 2)
        with flooding(a, 800):
            await messages(a, 8000)
        assert not one.counts["cut"] and one.counts["shed"] > 1000
        reading = asyncio.create_task(raw.rest())
        await one.close()
        numbers: list[int] = []
        hearing = frames.BundleReader()
        for kind, body in await reading:
            if kind == FrameKind.SHED:
                numbers += [0] * decode(ShedFrame, memoryview(body)).messages
            elif kind == FrameKind.DELIVER:
                numbers += [each.number for each in hearing.run(memoryview(body), "").messages()]
        assert len(numbers) <= 8000
        gaps = [number for at, number in enumerate(numbers, 1) if number not in (0, at)]
        assert not gaps, "what is there is at its place"


async def test_all_queues_together_are_bounded_too(place: Path) -> None:
    async with daemons(place, bounds=SessionLimits(all_bytes_max=1 << 20)) as (one,):
        a = await joining(place, "a")
        raws = [Raw(place, member(f"slow{i}")) for i in range(3)]
        await of_size(a, 4)
        with flooding(a):
            await of_size(a, 1)
        assert one.counts["cut"] == 3
        reasons = [(await raw.rest())[-1][1] for raw in raws]
        assert all(b"all_bytes_max=1048576" in reason for reason in reasons)
        await a.leave()


BAD = {
    "nothing of ours": (b"GET / HTTP/1.1\r\n\r\n", b"frame_length"),
    "no magic": (frames.frame(FrameKind.HELLO, b"????\0\1"), b"foreign"),
    "another version": (frames.frame(FrameKind.HELLO, frames.MAGIC + b"\0\x63"), b"version"),
    "no hello": (framed(JoinFrame("g", False, False)), b"foreign"),
    "a name that is none": (frames.hello("a b", 1), b"name"),
    "a group that is none": (
        frames.hello("a", 1) + framed(JoinFrame("a b", False, False)),
        b"join",
    ),
    "two joins": (member("a") + framed(JoinFrame("h", False, False)), b"join"),
    "an unknown kind": (frames.hello("a", 1) + frames.frame(FrameKind.LEFT), b"kind"),
    "a bundle that lies": (
        frames.hello("a", 1)
        + frames.frame(FrameKind.SUBMIT, frames.submit_head(4, ("g",)), b"\0\1\0\0\0\x09x"),  # type: ignore[arg-type]
        b"bundle",
    ),
    "no group": (
        frames.hello("a", 1) + frames.submit(frames.submit_head(unisono.AGREED, ()), [b"x"]),
        b"groups",
    ),
    "too long": (frames.hello("a", 1) + b"\x7f\xff\xff\xff\3", b"frame_length"),
    "too large": (
        frames.hello("a", 1)
        + frames.submit(frames.submit_head(unisono.AGREED, ("g",)), [bytes(5000)]),
        b"too_large",
    ),
    "a level that is not offered": (
        frames.hello("a", 1)
        + frames.submit(frames.submit_head(unisono.Resilient(2), ("g",)), [b"x"]),
        b"does not offer resilient",
    ),
    "a state that was not requested": (
        member("b") + framed(StateFrame(False, b"k", b"x")),
        b"state",
    ),
    "a state that is none": (
        member("b") + frames.frame(FrameKind.STATE, b"\0"),
        b"malformed",
    ),
}


async def test_bad_frames_end_that_client_with_a_reason_and_no_other(place: Path) -> None:
    async with daemons(place, message_bytes_max=4000), joining(place, "good") as good:
        for what, (data, word) in BAD.items():
            *_, (kind, reason) = await Raw(place, data).rest()
            assert kind == FrameKind.BYE and word in reason, (what, reason)
        Raw(place, member("c") + b"\0\0").socket.close()
        await good.multicast(b"still here")
        await eventually(lambda: len(good.members) == 1)
        assert await heard(good, 1) == [b"still here"]


async def test_too_many_clients_are_refused(place: Path) -> None:
    options: Any = {
        "bounds": SessionLimits(clients_count_max=2),
        "limits": RegistryLimits(groups_count_max=1),
    }
    async with daemons(place, **options), joining(place, "a"):
        with pytest.raises(unisono.Stopped, match="the ring has 1 groups, its limit"):
            await joining(place, "b", "h")
        async with joining(place, "b"):
            with pytest.raises(unisono.Stopped, match=r"2 clients, its limit clients_count_max"):
                await joining(place, "c")
        await (await joining(place, "c")).leave()


async def test_listen_addresses_are_checked(place: Path) -> None:
    async with daemons(place) as (one,):
        with pytest.raises(unisono.Misuse, match="another daemon listens there"):
            await daemon(place, 0, free_port()).__aenter__()
        assert (place / "d0").stat().st_mode & 0o777 == 0o600
        assert str(one.at[0]) == f"unix:{place}/d0"
    assert not (place / "d0").exists(), "it removes what it made"
    (place / "d0").write_text("mine")
    with pytest.raises(unisono.Misuse, match="the file is not a socket"):
        await daemon(place, 0, free_port()).__aenter__()
    (place / "d0").unlink()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(f"{place}/d0")
    async with daemons(place), joining(place, "a"):
        pass  # the socket of a dead daemon is taken over
    with pytest.raises(unisono.Misuse, match="rmcast has no total order"):
        Daemon("/x", protocol="rmcast")
    with pytest.raises(unisono.Misuse, match=r"transis has no total order .* give one_history=1"):
        Daemon("/x", protocol="transis")
    with pytest.raises(unisono.Misuse, match="one_history=1 needs sites="):
        await Daemon("/x", protocol="transis", one_history=1).__aenter__()
    with pytest.raises(unisono.Misuse, match="no listen address"):
        Daemon([])
    with pytest.raises(unisono.Misuse, match="slow='shed'"):
        Daemon("/x", slow="shed")
    with pytest.raises(unisono.Misuse, match="has no option"):
        await Daemon("/x", protocol=RING, nonsense=1).__aenter__()


async def test_a_foreign_message_in_the_ring_is_ignored(place: Path) -> None:
    port = free_port()
    state: Any = {"snapshot": lambda: b"", "restore": lambda data: None, **LIKE_A_DAEMON}
    async with (
        daemon(place, 0, port) as one,
        joining(place, "a") as a,
        unisono.join("ring", protocol=RING, name="x", port=port, **role(1), **state) as foreign,
    ):
        await foreign.multicast(b"hello?")
        await foreign.multicast(b"")
        await a.multicast(b"x")
        assert await heard(a, 1) == [b"x"]
        await eventually(lambda: one.counters()["registry.drop.record_malformed"] == 2)


async def test_a_ring_that_is_lost_for_good_ends_the_daemon_with_the_reason(place: Path) -> None:
    async with daemons(place) as (one,):
        a = await joining(place, "a")
        one.ring._incarnations.abandon("the net is gone")
        with pytest.raises(unisono.Stopped, match="the net is gone"):
            await one.serve()
        assert await stopped(a) == "the daemon lost the ring: the net is gone"


async def test_a_state_of_another_version_is_reported(place: Path) -> None:
    port = free_port()
    state: Any = {"snapshot": lambda: b"?!", "restore": lambda data: None, **LIKE_A_DAEMON}
    first = unisono.join("ring", protocol=RING, name="x", port=port, **role(0), **state)
    async with first as x:
        giving = asyncio.create_task(_drained(x))
        async with daemon(place, 0, port, **role(1)) as one:
            with pytest.raises(unisono.Stopped, match="the ring's state is malformed"):
                await one.serve()
        giving.cancel()


async def _drained(group: Any) -> None:
    async for _ in group.batches():
        pass


@pytest.mark.parametrize("never", [False, True])
async def test_the_sender_is_notified_when_its_message_is_stable_or_never_will_be(
    place: Path, never: bool
) -> None:
    async with daemons(place) as (one,), joining(place, "a") as a:
        await of_size(a, 1)
        level = unisono.Resilient(2)
        body = frames.submit_head(level, ("g",)) + frames.bundle_of([b"x", b"y"])
        record = encoded(MulticastFields(1, 4, None, body))
        messages = (unisono.Message(one.ring.me, record, 1),)
        too_few = unisono.Unstable(messages, unisono.Cause.TOO_FEW)
        one._deliver(too_few if never else unisono.Stable(messages))
        one._flush()
        item = await anext(a)
        assert isinstance(item, unisono.Unstable if never else unisono.Stable)
        found = [(each.sender, each.payload, each.number) for each in item.messages]
        assert found == [(a.me, b"x", 5), (a.me, b"y", 6)]


async def test_a_reason_reaches_the_waiting_caller(place: Path) -> None:
    async with daemons(place) as (one,):
        a = await joining(place, "a")
        waiting = asyncio.create_task(stopped(a))
        await asyncio.sleep(0.05)
        await one.close("maintenance")
        assert await waiting == "maintenance"
