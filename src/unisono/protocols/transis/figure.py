"""[TRA §4] The membership as a table of arrows: faults, joins, merges and leaves in one figure.

The paper prints no figure. It describes two stages: suggest a new membership set, and wait for
agreement from every machine in the set.
"""

from __future__ import annotations

from typing import Final

from unisono.core import Join, Leave
from unisono.fsa import Arrow, Figure, On, always, discarded, stay
from unisono.protocols.transis.flush import Flush
from unisono.protocols.transis.membership import Membership
from unisono.protocols.transis.packets import Agree, ComponentAnnounce, Refuse, Suggest
from unisono.protocols.transis.states import (
    AGREE,
    DONE,
    INSIDE,
    OUTSIDE,
    REGULAR,
    SUGGEST,
    MemberState,
    Timer,
)

EVENTS: Final[tuple[On, ...]] = (
    Join, Leave, Suggest, ComponentAnnounce, Agree, Refuse, Timer.LOOK, Timer.MEMBERSHIP,
)  # fmt: skip

# fmt: off
ARROWS: Final = (
    #     from     on                 when                      do                        to
    Arrow(OUTSIDE, Join,              always,                   Membership.start,         SUGGEST),
    Arrow(OUTSIDE, Leave,             always,                   Membership.leave,         DONE),

    Arrow(SUGGEST, Suggest,           Membership.is_relevant,   Membership.merge,         SUGGEST),
    Arrow(SUGGEST, Suggest,           always,                   Membership.greet,         SUGGEST),
    Arrow(SUGGEST, ComponentAnnounce, Membership.answers_me,    Membership.add,           SUGGEST),
    Arrow(SUGGEST, ComponentAnnounce, always,                   Membership.greet,         SUGGEST),
    Arrow(SUGGEST, Agree,             always,                   Membership.note,          SUGGEST),
    Arrow(SUGGEST, Timer.MEMBERSHIP,  always,                   Membership.urge,          SUGGEST),
    Arrow(SUGGEST, Timer.LOOK,        always,                   Membership.look,          SUGGEST),
    Arrow(SUGGEST, None,              Membership.is_agreed,     Membership.agree,         AGREE),

    Arrow(AGREE,   Suggest,           Membership.is_taken_back, Membership.suggest_again, SUGGEST),
    Arrow(AGREE,   Suggest,           always,                   stay,                     AGREE),
    Arrow(AGREE,   Agree,             Flush.is_of_this_set,     Membership.note,          AGREE),
    Arrow(AGREE,   Agree,             always,                   stay,                     AGREE),
    Arrow(AGREE,   Timer.MEMBERSHIP,  Membership.is_overdue,    Membership.drop_late,     SUGGEST),
    Arrow(AGREE,   Timer.MEMBERSHIP,  always,                   Membership.repeat,        AGREE),
    Arrow(AGREE,   Timer.LOOK,        always,                   Membership.look,          AGREE),
    Arrow(AGREE,   None,              Flush.knows_all,          Membership.gather,        AGREE),
    Arrow(AGREE,   None,              Flush.lacks_nothing,      Membership.recover,       AGREE),
    Arrow(AGREE,   None,              Flush.is_leaver,          Flush.depart,             DONE),
    Arrow(AGREE,   None,              Flush.are_recovered,      Membership.install,       REGULAR),

    Arrow(REGULAR, Suggest,           Membership.calls_me,      Membership.join_in,       SUGGEST),
    Arrow(REGULAR, Suggest,           always,                   Membership.greet,         REGULAR),
    Arrow(REGULAR, ComponentAnnounce, Membership.may_merge,     Membership.suggest_merge, SUGGEST),
    Arrow(REGULAR, ComponentAnnounce, always,                   Membership.greet,         REGULAR),
    Arrow(REGULAR, Agree,             always,                   Membership.remind,        REGULAR),
    Arrow(REGULAR, Timer.LOOK,        Membership.must_change,   Membership.drop_silent,   SUGGEST),
    Arrow(REGULAR, Timer.LOOK,        always,                   Membership.look,          REGULAR),
    Arrow(REGULAR, None,              Membership.may_leave,     Membership.suggest_leave, SUGGEST),

    Arrow(SUGGEST, Leave,             Membership.is_outside,    Membership.leave,         DONE),
    Arrow(INSIDE,  Leave,             always,                   Membership.leave,         None),
    Arrow(INSIDE,  Refuse,            Membership.is_refused,    Membership.give_up,       DONE),
    Arrow(INSIDE,  Refuse,            always,                   stay,                     None),
)
FIGURE: Final = Figure(
    "membership", start=OUTSIDE, arrows=(*ARROWS, *discarded(ARROWS, MemberState, EVENTS))
)
# fmt: on
