"""What an arrow does: the actions of the four figures, each one line of what the site can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.packets import count_of

if TYPE_CHECKING:
    from unisono.core import Effect
    from unisono.protocols.ring.core import Site
    from unisono.protocols.ring.packets import (
        Control,
        Delegate,
        MemberRecord,
        ResendRequest,
        RingPart,
        TurnPacket,
    )


# -- do: Send -------------------------------------------------------------------------------------


def open_shop(me: Site, event: object, out: list[Effect]) -> None:
    me.token.begin(out)


def speak(me: Site, event: object, out: list[Effect]) -> None:
    me.token.speak(out)


def pass_early(me: Site, event: object, out: list[Effect]) -> None:
    me.token.pass_early(out)


def wait_for_more(me: Site, event: object, out: list[Effect]) -> None:
    me.token.wait(out)


def reform_at_the_token(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.at_token = True
    me.push(Code.E_REFSTART)
    me.push(Code.E_COORDINATOR)


def look_for_the_token(me: Site, event: object, out: list[Effect]) -> None:
    me.token.look(out)


def forward(me: Site, event: object, out: list[Effect]) -> None:
    me.token.forward(out)


def speak_for_it(me: Site, packet: Delegate, out: list[Effect]) -> None:
    me.token.entrust(packet)


def pass_over(me: Site, packet: Delegate, out: list[Effect]) -> None:
    me.codec.drop("no_token")


def close_shop(me: Site, event: object, out: list[Effect]) -> None:
    me.token.stop(out)


# -- do: Receive ----------------------------------------------------------------------------------


def take(me: Site, packet: TurnPacket, out: list[Effect]) -> None:
    me.take(packet, out)


def ignore(me: Site, packet: Any, out: list[Effect]) -> None:
    me.codec.drop("version", count_of(packet))


def ask(me: Site, event: object, out: list[Effect]) -> None:
    me.repair.ask(out)


def look_for_it(me: Site, event: object, out: list[Effect]) -> None:
    me.repair.look(out)


def ping(me: Site, event: object, out: list[Effect]) -> None:
    # Deviates [RNG Figure 7]: the text lets Send ping the holder on T_SEND, and Figure 8 lets
    # Receive find the fault on T_RT. Here it is Receive and T_RT alone.
    me.token.ping(out)


def suspect(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.suspect(out)


def yield_to_it(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.push(Code.E_REFSTART)
    me.push(Code.REF_INV_BC, packet)


def lead_instead(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.reform.deny(packet, out, leads=True)
    me.push(Code.E_REFSTART)
    me.push(Code.E_COORDINATOR)


def deny(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.reform.deny(packet, out)


def coordinate(me: Site, packet: object, out: list[Effect]) -> None:
    me.reform.suspect_holder()
    me.push(Code.E_REFSTART)
    me.push(Code.E_COORDINATOR)


def follow_the_later(me: Site, packet: Any, out: list[Effect]) -> None:
    me.push(Code.E_REFSTART)
    me.push(Code.E_INIT)


def note_join(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.membership.note_join(packet, out)


def note_quit(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.membership.note_quit(packet, out)


def say_alive(me: Site, packet: Control, out: list[Effect]) -> None:
    me.repair.say_alive(packet, out)


def resend(me: Site, packet: Any, out: list[Effect]) -> None:
    me.repair.resend(packet, out)


def say_resume(me: Site, packet: Control, out: list[Effect]) -> None:
    me.reform.say_resume(packet, out)


def acknowledge_again(me: Site, packet: RingPart, out: list[Effect]) -> None:
    me.reform.acknowledge(packet, out)


def go_on(me: Site, event: object, out: list[Effect]) -> None:
    """The row is unbroken again."""
    me.repair.closed()


# -- do: Reformation ------------------------------------------------------------------------------


def wait_for_invitation(me: Site, event: object, out: list[Effect]) -> None:
    me.membership.wait(out)


def ask_to_join(me: Site, event: object, out: list[Effect]) -> None:
    me.membership.ask(out)


def stand(me: Site, event: object, out: list[Effect]) -> None:
    me.push(Code.E_COORDINATOR)


def promise(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.reform.promise(packet, out)


def take_repair(me: Site, packet: TurnPacket, out: list[Effect]) -> None:
    me.reform.take_repair(packet, out)


def ask_the_leader(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.ask_leader(out)


def accept(me: Site, packet: RingPart, out: list[Effect]) -> None:
    me.reform.accept_offer(packet, out)


def install(me: Site, event: object, out: list[Effect]) -> None:
    me.install(out)
    if me.in_force:
        me.push(Code.E_REFEND)


def ask_resume(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.ask_resume(out)


def return_to_ring(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.return_to_ring(out)
    me.push(Code.E_REFEND)


def be_released(me: Site, packet: Control, out: list[Effect]) -> None:
    me.membership.be_released(packet)


def deny_and_stand(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.reform.deny(packet, out)
    me.push(Code.E_COORDINATOR)


def escape(me: Site, packet: TurnPacket, out: list[Effect]) -> None:
    me.reform.free()
    me.membership.hear_of(packet, out)
    me.membership.wait(out)


def hear_of_ring(me: Site, packet: Any, out: list[Effect]) -> None:
    me.membership.hear_of(packet, out)


# -- do: Coordinator ------------------------------------------------------------------------------


def invite(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.invite(out)


def count_in(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.reform.count_in(packet, out)


def resend_to_follower(me: Site, packet: ResendRequest, out: list[Effect]) -> None:
    me.reform.resend(packet, out)


def send_ring(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.form(out)


def send_ring_again(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.say_ring(out)


def release(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.release(out)


def note_ack(me: Site, packet: Control, out: list[Effect]) -> None:
    me.reform.accepted.add(packet.header.sender)


def resume(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.resume(out)
    install(me, event, out)


def give_up(me: Site, event: object, out: list[Effect]) -> None:
    me.reform.give_up(out)
    me.push(Code.E_INIT)


def abort(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.reform.give_up(out)
    me.push(Code.E_ABORT_REF)


def go_and_join(me: Site, packet: Any, out: list[Effect]) -> None:
    me.reform.give_up(out)
    me.membership.hear_of(packet, out)
    me.push(Code.E_INIT)


def vote_for_it(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    # Deviates [RNG Negative ack]: the paper tells all members who the new coordinator is. Here the
    # attempt is called off, and the one that knows more invites by itself.
    me.reform.give_up(out)
    me.push(Code.E_INIT)


def yield_as_coordinator(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.reform.give_up(out)
    me.push(Code.REF_INV_BC, packet)


def note_denial(me: Site, packet: MemberRecord, out: list[Effect]) -> None:
    me.reform.note_denial(packet)
