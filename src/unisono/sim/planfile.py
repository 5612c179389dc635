"""Plans as JSON: a failing run that was made small, kept and replayed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

from unisono.errors import Misuse
from unisono.model import ServiceLevel
from unisono.sim.checking import check_plan
from unisono.sim.plan import FaultEvent, Plan, Weather, service_name, service_of

_WRITTEN: Final = (
    *("protocol", "nodes", "seed", "faults", "messages", "options", "progress_us"),
    *("steps_per_s_max", "service", "sealed", "clusters", "weather"),
)
"""The fields of a plan that its file holds; where the trace goes is not part of it."""


def plan_to_json(plan: Plan) -> str:
    """The plan as text."""
    kept: dict[str, Any] = {name: getattr(plan, name) for name in _WRITTEN}
    kept["options"] = dict(sorted(plan.options.items()))
    del kept["service"], kept["weather"]
    for name in ("sealed", "clusters"):
        if not kept[name]:
            del kept[name]
    if plan.service is not None:
        kept["service"] = service_name(plan.service)
    if plan.weather is not None:
        kept["weather"] = _weather_fields(plan.weather)
    return json.dumps(kept, indent=1) + "\n"


def _weather_fields(weather: Weather) -> dict[str, Any]:
    """All of them, but those that few plans have."""
    kept = asdict(weather)
    kept["services"] = [service_name(each) for each in weather.services]
    kept["schedule"] = [_event_fields(each) for each in weather.schedule]
    for name in ("routers", "services", "durable", "clusters", "parts"):
        if not kept[name]:
            del kept[name]
    return kept


def _event_fields(event: FaultEvent) -> dict[str, Any]:
    return {
        field.name: getattr(event, field.name)
        for field in fields(event)
        if field.default is MISSING or getattr(event, field.name) != field.default
    }


def plan_from_json(text: str) -> Plan:
    """The plan that the text holds; what is wrong with the text is a `Misuse`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"the plan is not JSON: {error}") from None
    plan: Plan = _object(Plan, found, "plan", _WRITTEN)
    check_plan(plan)
    return plan


def read_plan(path: str | Path) -> Plan:
    """The plan in this file; a bad file is a `Misuse`."""
    try:
        return plan_from_json(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"cannot read the plan {path}: {error}") from None


def write_plan(plan: Plan, path: str | Path) -> str:
    """Write the plan; returns the command that replays it."""
    Path(path).write_text(plan_to_json(plan), "utf-8")
    return f"unisono sim --plan {path}"


# -- reading, by the types of the fields -----------------------------------------------------------


@cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _object(kind: type, value: Any, where: str, names: tuple[str, ...] = ()) -> Any:
    """A dataclass from its JSON object; `names` are the fields that may be given, if not all."""
    if not isinstance(value, dict):
        raise Misuse(f"{where} must be an object")
    known = names or tuple(_types(kind))
    kept: dict[str, Any] = {}
    for name, each in value.items():
        if name not in known:
            raise Misuse(f"{where}: unknown field {name!r}; known are {', '.join(known)}")
        kept[name] = _value(_types(kind)[name], each, f"{where}: {name}")
    for field in fields(kind):
        if field.name in known and field.name not in kept:
            if field.default is MISSING and field.default_factory is MISSING:
                raise Misuse(f"{where}: {field.name} is missing")
    return kind(**kept)


def _value(kind: Any, value: Any, where: str) -> Any:
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Misuse(f"{where} must be a whole number")
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise Misuse(f"{where} must be true or false")
        return value
    if kind is str or kind in (ServiceLevel, ServiceLevel | None):
        if not isinstance(value, str):
            raise Misuse(f"{where} must be a name in quotes")
        return value if kind is str else service_of(value)
    if get_origin(kind) is Mapping:
        if not isinstance(value, dict):
            raise Misuse(f"{where} must be an object of whole numbers")
        return {name: _value(int, each, f"{where}: {name!r}") for name, each in value.items()}
    if get_origin(kind) is tuple:
        return _items(get_args(kind), value, where)
    part: Any = next(filter(is_dataclass, (kind, *get_args(kind))))  # It may be optional.
    return _object(part, value, where)


def _items(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise Misuse(f"{where} must be a list")
    if kinds[-1] is ...:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise Misuse(f"{where} must be a list of {len(kinds)}")
    return tuple(_value(kind, each, where) for kind, each in zip(kinds, value, strict=True))
