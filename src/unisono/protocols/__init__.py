"""The catalogue: one line a protocol."""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core import ProtocolSpec
from unisono.errors import Misuse
from unisono.protocols.mtp import OFFER as MTP
from unisono.protocols.ring import OFFER as RING
from unisono.protocols.rmcast import OFFER as RMCAST

_CATALOGUE = {offer.name: offer for offer in (RMCAST, MTP, RING)}


def offers() -> dict[str, ProtocolSpec]:
    """Every protocol by name."""
    return dict(_CATALOGUE)


def offer(name: str) -> ProtocolSpec:
    """The protocol of this name."""
    found = _CATALOGUE.get(name)
    if found is None:
        raise Misuse(f"no protocol {name!r}; there is: {', '.join(_CATALOGUE)}")
    return found


def check_options(chosen: ProtocolSpec, options: Mapping[str, int]) -> None:
    """`Misuse` if the protocol does not take one of these."""
    for name in sorted(options.keys() - chosen.options.keys()):
        known = ", ".join(sorted(chosen.options)) or "none"
        raise Misuse(f"{chosen.name} has no option {name!r}; it has: {known}")
