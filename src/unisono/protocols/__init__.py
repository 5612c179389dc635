"""The catalogue of protocols: those of this package, and those of installed plugins.

A distribution adds a protocol by one line of its metadata, an entry point that names a
`ProtocolSpec`:

    [project.entry-points."unisono.protocols"]
    sequencer = "my_package.sequencer:SPEC"
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from unisono.core import ProtocolSpec
from unisono.errors import Misuse
from unisono.protocols.mtp import OFFER as MTP
from unisono.protocols.ring import OFFER as RING
from unisono.protocols.rmcast import OFFER as RMCAST

PLUGINS: Final = "unisono.protocols"
"""The group of entry points."""
_BUILT_IN: Final = {offer.name: offer for offer in (RMCAST, MTP, RING)}


_broken: Final[dict[str, str]] = {}
"""By name, why a plugin is left out."""


@cache
def _catalogue() -> Mapping[str, ProtocolSpec]:
    """A plugin that is broken is left out: it must not keep anybody from the other protocols."""
    found = dict(_BUILT_IN)
    for plugin in entry_points(group=PLUGINS):
        try:
            found = dict(catalogue((*found.values(), _loaded(plugin))))
        except Misuse as misuse:
            _broken[plugin.name] = str(misuse)
            warnings.warn(str(misuse), RuntimeWarning, stacklevel=2)
    return found


def _loaded(plugin: EntryPoint) -> ProtocolSpec:
    where = f"the protocol plugin {plugin.name} ({plugin.value})"
    try:
        spec = plugin.load()
    except Exception as error:
        raise Misuse(f"{where} cannot be imported: {error}; mend or uninstall it") from error
    if not isinstance(spec, ProtocolSpec):
        raise Misuse(f"{where} is a {type(spec).__name__}, not a ProtocolSpec")
    return spec


def catalogue(offers: Iterable[ProtocolSpec]) -> Mapping[str, ProtocolSpec]:
    """The protocols by name; `Misuse` where two share a name or a number on the wire."""
    found: dict[str, ProtocolSpec] = {}
    numbers: dict[int, str] = {}
    for offer in offers:
        other = numbers.setdefault(offer.wire_number, offer.name)
        if offer.name in found or other != offer.name:
            raise Misuse(
                f"protocol {offer.name} has the name or the wire_number={offer.wire_number} of"
                f" protocol {other}: give it another"
            )
        found[offer.name] = offer
    return found


def offers() -> dict[str, ProtocolSpec]:
    """Every protocol by name."""
    return dict(_catalogue())


def offer(name: str) -> ProtocolSpec:
    """The protocol of this name."""
    found = _BUILT_IN.get(name) or _catalogue().get(name)
    if found is None:
        if name in _broken:
            raise Misuse(_broken[name])
        raise Misuse(f"no protocol {name!r}; there is: {', '.join(_catalogue())}")
    return found


def ordered() -> tuple[str, ...]:
    """The protocols with a total order, the latest first."""
    return tuple(name for name, each in reversed(offers().items()) if "total_order" in each.laws)


def check_options(chosen: ProtocolSpec, options: Mapping[str, int]) -> None:
    """`Misuse` if the protocol does not take one of these."""
    for name in sorted(options.keys() - chosen.options.keys()):
        known = ", ".join(sorted(chosen.options)) or "none"
        raise Misuse(f"{chosen.name} has no option {name!r}; it has: {known}")
