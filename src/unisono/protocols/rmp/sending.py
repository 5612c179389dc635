"""Sends the blocks of this site, and repeats those that no ACK has named."""

from __future__ import annotations

from typing import Final

from unisono.core import Effect
from unisono.parts.turn import write_runs
from unisono.protocols.rmp.data_packets import DATA_BYTES, PIECE_AT, UNIFORM, BestEffort, Uniform
from unisono.protocols.rmp.delivery import OrderedDelivery
from unisono.protocols.rmp.ordering import OrderingQueue
from unisono.protocols.rmp.packets import PacketKind
from unisono.protocols.rmp.repair import Repair
from unisono.protocols.rmp.send_queue import SendQueue, UniformRun
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.state import Outgoing, Timer, TokenRing

BLOCKS_MAX: Final = 16
"""Blocks that one step sends."""
RESENT_MAX: Final = 2
"""Blocks that a time-out repeats."""


class BlockSender:
    """From the send queue to the network, and to this site itself."""

    def __init__(
        self,
        state: TokenRing,
        outgoing: Outgoing,
        sources: Sources,
        queue: OrderingQueue,
        send_queue: SendQueue,
        delivery: OrderedDelivery,
        repair: Repair,
    ) -> None:
        self._state = state
        self._outgoing = outgoing
        self._sources = sources
        self._queue = queue
        self._send_queue = send_queue
        self._delivery = delivery
        self._repair = repair

    def send_blocks(self, out: list[Effect]) -> None:
        state = self._state
        for _ in range(0 if self._send_queue.is_empty() else BLOCKS_MAX):
            self._send_best_effort(out)
            block = self._send_queue.next_block(
                state.now_us, len(state.group.entries), self._queue.held
            )
            if block is None:
                break
            self._repair.send_block(block, out)
            self._delivery.messages(self._sources.put(state.key, block), ordered=False)
        if self._send_queue.has_flights() and not self._outgoing.is_armed(Timer.RESEND):
            after_us = self._send_queue.due_us() - state.now_us
            self._outgoing.arm(Timer.RESEND, max(1, after_us), out)

    def _send_best_effort(self, out: list[Effect]) -> None:
        queue, records = self._send_queue, list[BestEffort]()
        while True:
            if (uniform := queue.next_uniform()) is not None:
                self._send_records(records, out)
                self._send_uniform(uniform, out)
            elif (run := queue.next_best_effort()) is not None:
                records.append(BestEffort(self._state.key, queue.block, write_runs([run])))
            else:
                break
        self._send_records(records, out)

    def _send_records(self, records: list[BestEffort], out: list[Effect]) -> None:
        if records:
            self._outgoing.send_each(PacketKind.BEST_EFFORT, records, out)
        for record in records:
            self._delivery.messages(self._sources.take_best_effort(record), ordered=False)
        records.clear()

    def _send_uniform(self, run: UniformRun, out: list[Effect]) -> None:
        key, after, size = self._state.key, self._send_queue.block, run.length * run.times
        front = UNIFORM.pack(key, run.first, run.length, run.times, 0, after)
        head, after_bytes = front[:DATA_BYTES], front[PIECE_AT:]
        pieces = [run.data[at : at + size] for at in range(0, len(run.data), size)]
        bodies = [after_bytes + piece for piece in pieces]
        self._outgoing.send_train(PacketKind.UNIFORM, head, bodies, out)
        whole = Uniform(key, run.first, run.length, run.times * len(pieces), 0, after, [run.data])
        self._delivery.messages(self._sources.take_best_effort(whole), ordered=False)

    def resend(self, out: list[Effect]) -> None:
        """No ACK has named our blocks: the token site may have missed them."""
        queue, state = self._send_queue, self._state
        if not queue.has_flights() or state.frozen or queue.due_us() > state.now_us:
            return
        queue.timed_out(state.now_us)
        for number in queue.unacknowledged(RESENT_MAX):
            block = self._sources.get(self._state.key, number)
            if block is not None:
                self._repair.send_block(block, out)
