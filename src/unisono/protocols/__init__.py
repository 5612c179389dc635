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

from unisono.errors import Misuse
from unisono.protocols.mtp import SPEC as MTP
from unisono.protocols.ring import SPEC as RING
from unisono.protocols.rmcast import SPEC as RMCAST
from unisono.protocols.rmp import SPEC as RMP
from unisono.protocols.transis import SPEC as TRANSIS
from unisono.spec import ProtocolSpec

PLUGINS: Final = "unisono.protocols"
"""The group of entry points."""
_BUILT_IN: Final = {spec.name: spec for spec in (RMCAST, MTP, RMP, TRANSIS, RING)}


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


def catalogue(specs: Iterable[ProtocolSpec]) -> Mapping[str, ProtocolSpec]:
    """The protocols by name; `Misuse` where two share a name or a number on the wire."""
    found: dict[str, ProtocolSpec] = {}
    numbers: dict[int, str] = {}
    for spec in specs:
        other = numbers.setdefault(spec.wire_number, spec.name)
        if spec.name in found or other != spec.name:
            raise Misuse(
                f"protocol {spec.name} has the name or the wire_number={spec.wire_number} of"
                f" protocol {other}: give it another"
            )
        found[spec.name] = spec
    return found


def specs() -> dict[str, ProtocolSpec]:
    """Every protocol by name."""
    return dict(_catalogue())


def spec(name: str) -> ProtocolSpec:
    """The protocol of this name."""
    found = _BUILT_IN.get(name) or _catalogue().get(name)
    if found is None:
        if name in _broken:
            raise Misuse(_broken[name])
        raise Misuse(f"no protocol {name!r}; there is: {', '.join(_catalogue())}")
    return found


def ordered() -> tuple[str, ...]:
    """The protocols with a total order, the latest first."""
    return tuple(name for name, each in reversed(specs().items()) if each.is_ordered)


def with_one_order() -> tuple[str, ...]:
    """Those of them in which the whole group has one order, also when it splits."""
    return tuple(name for name in ordered() if spec(name).has_one_order)
