"""How a daemon is in its ring: what was asked for, checked, with a daemon's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from unisono import config as configs
from unisono.config import Config
from unisono.core import ProtocolSpec
from unisono.errors import Misuse
from unisono.model import Service, ServiceLevel

RING = "unisono"


def ring_config(ring: str | None, config: str | Path | None, options: Mapping[str, Any]) -> Config:
    """How to join the ring: what was given, and for a daemon other defaults than for a member."""
    if config is None and ring is None:
        ring = RING
    read = configs.read(ring, config, options)
    if read.slow != "block":
        raise Misuse(f"slow={read.slow!r}: a daemon reads its ring always; clients have a policy")
    if read.daemon:
        raise Misuse(f"daemon={read.daemon!r}: a daemon is a member of the ring itself")
    return replace(read, rejoin=True)


def given(config: Config) -> dict[str, Any]:
    """What is not as it would be anyway."""
    usual = Config()
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}


def offer_of(protocol: str) -> ProtocolSpec:
    """The protocol of the ring, which must have one order for all."""
    from unisono import protocols

    offer = protocols.offer(protocol)
    if "total_order" not in offer.laws:
        raise Misuse(
            f"protocol {offer.name} has no total order, and daemons need one: use"
            f" {' or '.join(protocols.ordered())}"
        )
    return offer


def control_level(offer: ProtocolSpec) -> ServiceLevel:
    """Comings and goings are in the total order, whatever the clients ask for their messages."""
    return min(level for level in offer.services if level >= Service.AGREED)
