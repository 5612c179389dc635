"""How a daemon joins its ring: the given options, checked, with a daemon's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from unisono import config as configs
from unisono.config import Config
from unisono.errors import Misuse
from unisono.model import Service, ServiceLevel
from unisono.spec import ProtocolSpec

RING = "unisono"


def ring_config(ring: str | None, config: str | Path | None, options: Mapping[str, Any]) -> Config:
    """The options given, with a daemon's defaults instead of a member's."""
    if config is None and ring is None:
        ring = RING
    read = configs.read(ring, config, options)
    if read.slow != "block":
        raise Misuse(f"slow={read.slow!r}: a daemon always reads its ring; set slow= at clients")
    if read.daemon:
        raise Misuse(f"daemon={read.daemon!r}: a daemon is a member itself; leave it out")
    return replace(read, rejoin=True)


def given(config: Config) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    usual = Config()
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}


def spec_of(protocol: str, options: Mapping[str, int]) -> ProtocolSpec:
    """The protocol of the ring; `Misuse` without one total order for all."""
    from unisono import protocols

    spec = protocols.spec(protocol)
    if not spec.serves_daemons(options):
        instead = "".join(f"give {name}=1, or " for name in spec.one_history_by)
        raise Misuse(
            f"protocol {spec.name} has no total order for all members, and"
            f" daemons need one: {instead}use {' or '.join(protocols.with_one_order())}"
        )
    return spec


def control_level(spec: ProtocolSpec) -> ServiceLevel:
    """The level of joins and leaves: in the total order, whatever the messages' levels."""
    return min(level for level in spec.services if level >= Service.AGREED)
