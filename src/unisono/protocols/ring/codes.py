"""The paper's 24 events and five timers by name, and the few that we had to add."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from unisono.fsa import Named


class Code(IntEnum):
    """[RNG Events] 1 to 17 are packets, 18 to 24 what one machine tells another; those beyond are
    additions. A code is the kind of a packet on the wire."""

    MEMBER_JOIN = 1
    """A new member wants to join."""
    FAST_ACK = 2
    """To the next holder: I have all up to s."""
    REF_INV_BC = 3
    """Invitation to a reformation."""
    RESUME = 4
    """The new ring is in force."""
    RESUME_RQU = 5
    RSP_POS = 6
    RSP_NEG = 7
    NEWTR_ACK = 8
    ABORT_BC_RQU = 9
    """The coordinator gives its reformation up."""
    COORD_RQU = 10
    """You come before the holder that I suspect: coordinate."""
    TS_ALIVE_RQU = 11
    TS_ALIVE_RSP = 12
    NEWTR_BC = 13
    """The new token ring."""
    RB_DATA_RQU = 14
    """The application's messages: never on the wire, `Multicast` here."""
    DATA_BC_RQU = 15
    """To the holder: multicast this for me."""
    TOKEN_BC = 16
    """The ordered multicast; NULL when it is empty."""
    RESEND_DATA = 17

    E_ACK = 18
    """The expected turn was taken."""
    E_COORDINATOR = 19
    """I am the coordinator."""
    E_INIT = 20
    """I take part in a reformation."""
    E_ABORT_REF = 21
    """My own reformation is given up: back to the ring as it was."""
    E_REFSTART = 22
    """Normal operation stops."""
    E_REFEND = 23
    """Normal operation begins."""
    E_SENDABLE = 24
    """The token is here."""

    # Deviates [RNG Events]: the paper has no packets for these, though its text asks for them.
    RING_INFO = 25
    """[RNG Membership] The coordinator's answer to a request to join: version and S."""
    RESEND_RQU = 26
    """[RNG Ordered] Send me these again."""
    QUIT = 27
    """[RNG Member leave]"""
    RELEASE = 28
    """To one that quits, where too few remain for a new ring: you have everything, go."""
    STALE = 29
    """You cannot go on as you are: join again."""
    REFUSE = 30
    STATE_ASK = 31
    STATE = 32

    # Deviates [RNG Events]: the paper's token is here only when all before it is.
    E_AWAITED = 33
    """The token will be here as soon as all of the turn at hand is, and somebody waits for it."""


OF_SEND: Final = frozenset((Code.E_ACK, Code.E_AWAITED, Code.E_SENDABLE, Code.RB_DATA_RQU))
"""What the Send machine is told."""
OF_SEVERAL: Final = frozenset(
    (Code.E_REFEND, Code.E_REFSTART, Code.E_COORDINATOR, Code.E_ABORT_REF, Code.E_INIT)
)
"""What more than one machine is told, or only while no ring works."""
NEVER_SENT: Final = frozenset(
    (Code.RB_DATA_RQU, Code.E_AWAITED, *range(Code.E_ACK, Code.E_SENDABLE + 1))
)
KINDS: Final = {code.value: code.name.lower() for code in Code if code not in NEVER_SENT}


class Timer(Named):
    """[RNG Timers] The paper's five, then ours."""

    T_SEND = auto()
    """The holder has waited long enough for something to send: NULL."""
    T_RT = auto()
    """The turn that was expected did not come."""
    T_REFORM = auto()
    """Nobody invited: stand as coordinator. For one that asked to join: nobody answered."""
    T_REF_RT = auto()
    """The new ring, or the word to resume, did not come."""
    T_TS = auto()
    """The coordinator has waited long enough for answers."""
    # Deviates [RNG Timer management]: the paper has five, and one of them on at a time. These two
    # are ours, and several may be on.
    REPAIR = auto()
    """What was asked for did not come: ask again."""
    LEAVE = auto()
    """The leave was not answered."""


# By themselves: to look one up in its class takes ten times as long, and these are always needed.
T_SEND: Final = Timer.T_SEND
T_RT: Final = Timer.T_RT
E_ACK: Final = Code.E_ACK
E_SENDABLE: Final = Code.E_SENDABLE
FAST_ACK: Final = Code.FAST_ACK
TOKEN_BC: Final = Code.TOKEN_BC
RESEND_DATA: Final = Code.RESEND_DATA


WAITS: Final = frozenset((Timer.T_RT, Timer.T_REFORM, Timer.T_REF_RT, Timer.T_TS))
"""Those that wait for what others say."""
