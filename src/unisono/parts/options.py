"""Checks the options of a protocol against their bounds."""

from __future__ import annotations

from collections.abc import Mapping

from unisono.errors import Misuse, check_option_names

Bounds = Mapping[str, tuple[int, int]]
"""By option, the least and the largest value."""


def checked(
    protocol: str, defaults: Mapping[str, int], given: Mapping[str, int], bounds: Bounds
) -> dict[str, int]:
    """The given options over the defaults; `Misuse` names the first that is unknown or out of
    bounds. An option without bounds must not be negative."""
    check_option_names(protocol, given, defaults)
    for name, value in given.items():
        if value < 0:
            raise Misuse(f"{protocol} option {name} must not be negative, got {value}")
    chosen = {**defaults, **given}
    for name, (least, most) in bounds.items():
        if not least <= chosen[name] <= most:
            raise Misuse(f"{protocol} option {name} must be {least} to {most}, got {chosen[name]}")
    return chosen
