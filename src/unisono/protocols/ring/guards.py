"""When an arrow is followed: the guards of the four figures. They look, and change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unisono.protocols.ring.parameters import ROUNDS_MAX

if TYPE_CHECKING:
    from unisono.protocols.ring.core import Site
    from unisono.protocols.ring.packets import (
        Abort,
        CoordRequest,
        MemberRecord,
        RingPart,
        TurnPacket,
    )


def i_have_something_to_say(me: Site, event: object) -> bool:
    return me.token.may_speak()


def i_can_do_without_it(me: Site, event: object) -> bool:
    return me.token.may_pass_early()


def others_have_more_to_say(me: Site, event: object) -> bool:
    return me.token.is_awaited()


def somebody_wants_in_or_out(me: Site, event: object) -> bool:
    return me.membership.has_changes() and not me.token.was_passed()


def the_token_is_here(me: Site, event: object) -> bool:
    return me.token.is_here()


def it_is_my_ring(me: Site, packet: TurnPacket) -> bool:
    return packet.header.version == me.ring.version


def a_later_ring_goes_on(me: Site, packet: TurnPacket | MemberRecord) -> bool:
    return me.reform.is_later(packet)


def it_is_beyond_my_promise(me: Site, packet: TurnPacket) -> bool:
    return me.reform.is_beyond_promise(packet)


def there_is_a_gap(me: Site, event: object) -> bool:
    return me.ordering.has_gap()


def the_gap_is_closed(me: Site, event: object) -> bool:
    return not me.ordering.has_gap()


def the_holder_is_silent(me: Site, event: object) -> bool:
    return me.token.is_silent()


def i_agree(me: Site, packet: MemberRecord) -> bool:
    return me.reform.agrees(packet)


def i_should_lead(me: Site, packet: MemberRecord) -> bool:
    return me.reform.should_lead(packet)


def it_is_silent_here_too(me: Site, packet: CoordRequest) -> bool:
    return me.reform.confirms(packet)


def a_ring_is_known(me: Site, event: object) -> bool:
    return me.membership.may_ask_again()


def it_is_worthy(me: Site, packet: MemberRecord) -> bool:
    return me.reform.is_worthy(packet)


def it_is_worthier(me: Site, packet: MemberRecord) -> bool:
    return me.reform.is_worthier(packet)


def my_ring_goes_on(me: Site, packet: Any) -> bool:
    return me.reform.may_return(packet)


def it_gives_up(me: Site, packet: Abort) -> bool:
    return me.reform.is_given_up(packet)


def it_lists_me(me: Site, packet: RingPart) -> bool:
    return me.reform.offers(packet)


def it_is_without_me(me: Site, packet: RingPart) -> bool:
    return me.reform.leaves_out(packet)


def i_asked_enough(me: Site, event: object) -> bool:
    return me.reform.rounds >= ROUNDS_MAX // 2


def all_answered(me: Site, event: object) -> bool:
    return me.reform.everyone_answered()


def the_majority_answered(me: Site, event: object) -> bool:
    return me.reform.may_form()


def too_few_would_remain(me: Site, event: object) -> bool:
    return me.reform.may_release()


def all_accepted(me: Site, event: object) -> bool:
    return me.reform.everyone_accepted()


def the_majority_accepted(me: Site, event: object) -> bool:
    return me.reform.may_resume()


def nobody_accepts(me: Site, event: object) -> bool:
    return me.reform.rounds >= ROUNDS_MAX


def my_ring_is_in_force(me: Site, packet: MemberRecord) -> bool:
    return me.reform.tells_of_my_ring(packet)


def another_ring_is_in_force(me: Site, packet: MemberRecord) -> bool:
    return me.reform.tells_of_another(packet)


def it_is_in_force_after_all(me: Site, packet: Any) -> bool:
    return me.reform.is_in_force_elsewhere(packet)


def it_knows_more(me: Site, packet: MemberRecord) -> bool:
    return me.reform.should_win(packet)
