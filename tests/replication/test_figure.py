"""The figure decides every event in every state, and chaos walks its arrows."""

from __future__ import annotations

from unisono.services.replication.figure import FIGURE


def test_every_event_is_decided_in_every_state() -> None:
    assert not FIGURE.undecided()
