"""The paper's 24 events and five timers by name, and our additions."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from unisono.fsa import Named


class Code(IntEnum):
    """[RNG Events] 1 to 17 are packets, 18 to 24 internal events, the rest additions. A code is the
    kind of a packet on the wire."""

    MEMBER_JOIN = 1
    """A new member wants to join."""
    FAST_ACK = 2
    """To the next holder: the sender has all turns up to s."""
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
    """The receiver precedes the holder that the sender suspects: coordinate."""
    TS_ALIVE_RQU = 11
    TS_ALIVE_RSP = 12
    NEWTR_BC = 13
    """The new token ring."""
    RB_DATA_RQU = 14
    """The application's messages: never on the wire, `Multicast` here."""
    DATA_BC_RQU = 15
    """To the holder: multicast these for the sender."""
    TOKEN_BC = 16
    """The ordered multicast; NULL when it is empty."""
    RESEND_DATA = 17

    E_ACK = 18
    """The expected turn was taken."""
    E_COORDINATOR = 19
    """This member becomes coordinator."""
    E_INIT = 20
    """This member takes part in a reformation."""
    E_ABORT_REF = 21
    """The reformation of this member is given up: the ring continues."""
    E_REFSTART = 22
    """Normal operation stops."""
    E_REFEND = 23
    """Normal operation begins."""
    E_SENDABLE = 24
    """The token is here."""

    # Deviates [RNG Events]: the paper has no packets for these, though its text needs them.
    RING_INFO = 25
    """[RNG Membership] The coordinator's answer to a request to join: version and S."""
    RESEND_RQU = 26
    """[RNG Ordered] Retransmit these turns."""
    QUIT = 27
    """[RNG Member leave]"""
    RELEASE = 28
    """To a leaving member, where too few remain for a new ring: it may go."""
    STALE = 29
    """The member cannot go on from where it is: join again."""
    REFUSE = 30
    STATE_ASK = 31
    STATE = 32

    # Deviates [RNG Events]: the paper's token is here only when all before it is.
    E_AWAITED = 33
    """The token arrives with the rest of the present turn, and another member waits for it."""


OF_SEND: Final = frozenset((Code.E_ACK, Code.E_AWAITED, Code.E_SENDABLE, Code.RB_DATA_RQU))
"""Events of the Send machine."""
OF_SEVERAL: Final = frozenset(
    (Code.E_REFEND, Code.E_REFSTART, Code.E_COORDINATOR, Code.E_ABORT_REF, Code.E_INIT)
)
"""Events of several machines, or of those that run while no ring is in force."""
NEVER_SENT: Final = frozenset(
    (Code.RB_DATA_RQU, Code.E_AWAITED, *range(Code.E_ACK, Code.E_SENDABLE + 1))
)
KINDS: Final = {code.value: code.name.lower() for code in Code if code not in NEVER_SENT}


class Timer(Named):
    """[RNG Timers] The paper's five, then ours."""

    T_SEND = auto()
    """The holder has nothing to send: NULL."""
    T_RT = auto()
    """The expected turn did not arrive."""
    T_REFORM = auto()
    """No invitation arrived: stand as coordinator. While joining: no answer arrived."""
    T_REF_RT = auto()
    """The new ring, or RESUME, did not arrive."""
    T_TS = auto()
    """The coordinator no longer waits for answers."""
    # Deviates [RNG Timer management]: the paper has five, and one of them on at a time. These two
    # are ours, and several may be on.
    REPAIR = auto()
    """Retransmissions did not arrive: request them again."""
    LEAVE = auto()
    """The leave was not answered."""


# As constants: looking one up in its class takes ten times as long, and each step uses these.
T_SEND: Final = Timer.T_SEND
T_RT: Final = Timer.T_RT
E_ACK: Final = Code.E_ACK
E_SENDABLE: Final = Code.E_SENDABLE
FAST_ACK: Final = Code.FAST_ACK
TOKEN_BC: Final = Code.TOKEN_BC
RESEND_DATA: Final = Code.RESEND_DATA


WAITS: Final = frozenset((Timer.T_RT, Timer.T_REFORM, Timer.T_REF_RT, Timer.T_TS))
"""Timers that wait for packets of other members."""
