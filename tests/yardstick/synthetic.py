"""Traces of any size, made quickly: a group that agrees on everything, and faults planted in it.

Messages have one order; message `i` is said by a sender drawn by lot, `LAG` places before everyone
delivers it. Three views divide the run. The rows are written as the trace's own writer writes them:
20,000 a row group, 500 row groups a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from unisono.trace.files import SEGMENT_GROUPS_MAX
from unisono.trace.parquet import SCHEMA, writer_to

PROTOCOL = "synthetic"
LAG = 40
BLOCK = 50_000
GROUP_ROWS = 20_000
NAMES = "abcdefghijklmnopqrstuvwxyz"
SERVICES = ("safe", "agreed", "causal")
KINDS = ("send", "deliver", "view")

Columns = dict[str, Any]


class Fault(NamedTuple):
    """What is wrong at one life, at one part of the way."""

    kind: str
    life: int
    part: float


# fmt: off
FAULTS: dict[str, tuple[Fault, ...]] = {
    "sound":             (),
    "no_creation":       (Fault("alter", 1, .31),),
    "never_sent":        (Fault("unsent", 0, .12),),
    "no_duplication":    (Fault("twice", 2, .42),),
    "fifo":              (Fault("swap", 3, .23),),
    "causal":            (Fault("early", 2, .71),),
    "total_order":       (Fault("renumber", 1, .64),),
    "prefix":            (Fault("cross", 0, .85),),
    "agreement":         (Fault("drop", 4, .57),),
    "validity":          (Fault("unheard", 1, .77),),
    "virtual_synchrony": (Fault("late view", 2, .5),),
    "view_order":        (Fault("other members", 3, .5),),
    "self_inclusion":    (Fault("selfless", 4, .5),),
    "progress":          (Fault("drop", 1, 1.0),),
    "local_order":       (Fault("rash", 0, .37),),
}
# fmt: on
EVERYTHING = tuple(fault for faults in FAULTS.values() for fault in faults)


class Story(NamedTuple):
    run: str
    messages: int
    lives: int
    faults: tuple[Fault, ...]
    seed: int


def stories(events: int, runs: int, lives: int, faulty: bool) -> list[Story]:
    """Runs of equal size; one alone has every fault, of several each has one, or none."""
    messages = max(400, events // runs // (lives + 1))
    kinds = list(FAULTS.values())
    return [
        Story(
            run=f"r{number:06}",
            messages=messages,
            lives=lives,
            faults=() if not faulty else EVERYTHING if runs == 1 else kinds[number % len(kinds)],
            seed=number,
        )
        for number in range(runs)
    ]


def write(directory: Path, told: Sequence[Story], processes: int = 2) -> None:
    """All of them, as a trace directory."""
    if len(told) == 1:
        jobs = [(directory, told[0], life) for life in range(told[0].lives)]
        with ProcessPoolExecutor(processes) as pool:
            list(pool.map(_write_life, *zip(*jobs, strict=True)))
        return
    if len(told) < 64 and sum(story.messages for story in told) < 100_000:
        for story in told:
            write_story(directory, story)
        return
    with ProcessPoolExecutor(processes) as pool:
        list(pool.map(write_story, [directory] * len(told), told, chunksize=8))


def write_story(directory: Path, story: Story) -> None:
    for life in range(story.lives):
        _write_life(directory, story, life)


def _write_life(directory: Path, story: Story, life: int) -> None:
    folder = directory / f"run={story.run}"
    folder.mkdir(parents=True, exist_ok=True)
    waiting: list[pa.RecordBatch] = []
    segment = groups = 0
    writer = writer_to(folder / f"{NAMES[life]}-1.parquet")
    step = 0
    for columns in _blocks(story, life):
        waiting.append(_batch(columns, life, step))
        step += len(columns["kind"])
        table = pa.Table.from_batches(waiting)
        last = columns["last"]
        while table.num_rows >= GROUP_ROWS or (last and table.num_rows):
            if groups == SEGMENT_GROUPS_MAX:
                writer.close()
                segment, groups = segment + 1, 0
                writer = writer_to(folder / f"{NAMES[life]}-1.s{segment:06}.parquet")
            writer.write_table(table.slice(0, GROUP_ROWS))
            groups += 1
            table = table.slice(GROUP_ROWS)
        waiting = table.to_batches()
    writer.close()


def _hash(values: Any, salt: int) -> Any:
    """Numbers that look drawn by lot."""
    mixed = (values.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return (mixed * np.uint64(0xBF58476D1CE4E5B9)).view(np.int64)


def _senders(story: Story) -> tuple[Any, Any]:
    """Of each message, who says it and the number that it has."""
    senders = np.random.default_rng(story.seed).integers(0, story.lives, story.messages, np.uint8)
    numbers = np.empty(story.messages, np.int64)
    for sender in range(story.lives):
        mine = np.flatnonzero(senders == sender)
        numbers[mine] = np.arange(1, len(mine) + 1)
    return senders, numbers


def _blocks(story: Story, life: int) -> Iterator[Columns]:
    """A life's rows, in its order, some at a time."""
    senders, numbers = _senders(story)
    count = story.messages
    own = np.flatnonzero(senders == life)
    faults = [_placed(fault, story, senders) for fault in story.faults if fault.life == life]
    views = {0: "1", count // 2: "2", count - LAG * 3: "3"}
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        heard = np.arange(start, end)
        # A send stands LAG places before its delivery; the first ones right after the first view.
        when = np.maximum(own - LAG, 0)
        said = own[(when >= start) & (when < end)]
        seen = [place for place in views if start <= place < end]
        message = np.concatenate([np.array(seen, np.int64), said, heard])
        kind = np.repeat(np.array([2, 0, 1], np.int8), [len(seen), len(said), len(heard)])
        key = np.concatenate(
            [np.array(seen) * 8.0, np.maximum(said - LAG, 0) * 8.0 + 1, heard * 8.0 + 2]
        )
        block: Columns = {"kind": kind, "message": message, "key": key}
        block["digest"] = _hash(message, story.seed)
        # The tenth of ten has no place.
        block["seq"] = message + 1 - (message + 1) // 10
        for fault, place in faults:
            _plant(block, fault, place, senders)
        order = np.argsort(block["key"], kind="stable")
        block = {name: values[order] for name, values in block.items()}
        message, kind = block["message"], block["kind"]
        block["sender"] = np.where(kind == 2, 0, senders[message])
        block["number"] = numbers[message]
        block["view"] = [views.get(int(place), "?") for place in message[kind == 2]]
        block["members"] = [_members(story, faults, view) for view in block["view"]]
        slow = (_hash(message, 7 + life) & 0x3FF) * (_hash(message, 70 + life) & 0x3F)
        block["t_us"] = message * 6 + np.where(kind == 1, LAG * 6 + slow, 0)
        block["probe"] = (kind == 0) & (message == own[-1])
        block["last"] = end == count
        yield block


def _members(story: Story, faults: list[tuple[Fault, int]], view: str) -> list[str]:
    members = [f"{NAMES[each]}#1" for each in range(story.lives)]
    for fault, _ in faults:
        if view == "2" and fault.kind == "other members":
            members.remove(f"{NAMES[(fault.life + 1) % story.lives]}#1")
        if view == "2" and fault.kind == "selfless":
            members.remove(f"{NAMES[fault.life]}#1")
    return members


def _placed(fault: Fault, story: Story, senders: Any) -> tuple[Fault, int]:
    """The fault, and the message that it is about: away from where blocks meet."""
    if fault.part >= 1:
        # The last message of somebody else that is a probe.
        others = np.flatnonzero(senders != fault.life)
        return fault, int(others[-1])
    place = int(fault.part * story.messages)
    if fault.kind in ("late view", "other members", "selfless"):
        return fault, story.messages // 2
    place = min(max(place, 2 * LAG + 5), story.messages - 8 * LAG)
    if place % BLOCK < 3 * LAG or place % BLOCK > BLOCK - 3 * LAG:
        place += 6 * LAG
    own = fault.kind in ("unsent", "unheard", "rash")
    wanted = (senders == fault.life) == own
    # Services go round by ten; an odd fault is to be about an ordered one.
    wanted &= np.arange(len(senders)) % 10 < 6
    return fault, place + int(np.argmax(wanted[place:]))


def _plant(block: Columns, fault: Fault, place: int, senders: Any) -> None:
    message, kind, key = block["message"], block["kind"], block["key"]
    heard = np.flatnonzero((message == place) & (kind == 1))
    if fault.kind == "late view":
        block["key"] = np.where((kind == 2) & (message == place), key + 8 * 7, key)
    elif fault.kind == "unsent":
        _drop(block, np.flatnonzero((message == place) & (kind == 0)))
    if not len(heard) or fault.kind in ("late view", "other members", "selfless", "unsent"):
        return
    row = int(heard[0])
    if fault.kind == "alter":
        block["digest"][row] ^= 1
    elif fault.kind == "renumber":
        block["seq"][row] += 10**9
    elif fault.kind in ("drop", "unheard"):
        _drop(block, heard)
    elif fault.kind == "rash":
        # Before it is sent.
        block["key"][row] = (message[row] - LAG) * 8.0 + 0.5
    elif fault.kind == "twice":
        for name in list(block):
            block[name] = np.append(block[name], block[name][row])
        block["key"][-1] += 8 * 11
    else:
        # Before the one before it; of one sender; or before what its sender had heard.
        if fault.kind == "swap":
            before = place - 1 - int(np.argmax(senders[:place][::-1] == senders[place]))
        else:
            # The tenth of ten has no place in the one order.
            cross = 1 if place % 10 else 2
            before = place - (cross if fault.kind == "cross" else LAG + 9)
        (other,) = np.flatnonzero((message == before) & (kind == 1))
        block["key"][row] = key[other] - 0.5


def _drop(block: Columns, rows: Any) -> None:
    for name in list(block):
        block[name] = np.delete(block[name], rows)


def _words(words: Sequence[str | None], codes: Any) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(codes))


def _batch(block: Columns, life: int, step: int) -> pa.RecordBatch:
    count = len(block["kind"])
    kind, message = block["kind"], block["message"]
    spoken = kind != 2
    service = np.where(message % 10 < 6, 0, np.where(message % 10 < 9, 1, 2))
    placed = (kind == 1) & (service < 2)
    members: list[list[str] | None] = [None] * count
    view = np.searchsorted(np.flatnonzero(kind == 2), np.arange(count), side="right")
    for at, listed in zip(np.flatnonzero(kind == 2).tolist(), block["members"], strict=True):
        members[at] = listed
    own = np.zeros(count, np.int8)
    columns = {
        "protocol": _words([PROTOCOL], own),
        "group": _words(["g"], own),
        "node": _words([NAMES[life]], own),
        "incarnation": np.ones(count, np.int32),
        "step": np.arange(step, step + count),
        "t_us": block["t_us"],
        "kind": _words(KINDS, kind),
        "view": _words(["", *block["view"]], view),
        "sender": _words([*NAMES, None], np.where(spoken, block["sender"], len(NAMES))),
        "sender_incarnation": pa.array(np.ones(count, np.int32), mask=~spoken),
        "number": pa.array(block["number"], mask=~spoken),
        "seq": pa.array(block["seq"], mask=~placed),
        "service": _words([*SERVICES, None], np.where(spoken, service, 3)),
        "size": pa.array((64 + message % 900).astype(np.int32), mask=~spoken),
        "digest": pa.array(block["digest"], mask=~spoken),
        "members": pa.array(members, pa.list_(pa.string())),
        "peer": pa.nulls(count, pa.string()),
        "detail": _words(["probe", None], np.where(block["probe"], 0, 1)),
    }
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
