"""Plans as JSON: a failing run that was made small, kept and replayed."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from unisono.errors import Misuse
from unisono.model import ServiceLevel
from unisono.sim.checking import check_plan
from unisono.sim.plan import (
    Clock,
    FaultEvent,
    LinkPlan,
    Plan,
    Router,
    Weather,
    service_name,
    service_of,
)

_SIMPLE: Final = (
    "protocol",
    "nodes",
    "seed",
    "faults",
    "messages",
    "options",
    "progress_us",
    "steps_per_s_max",
)
"""The fields of a plan that are written as they are."""

_Part = TypeVar("_Part", LinkPlan, FaultEvent, Clock)


def plan_to_json(plan: Plan) -> str:
    """The plan as text. Where the trace goes is not part of it."""
    kept: dict[str, Any] = {name: getattr(plan, name) for name in _SIMPLE}
    kept["options"] = dict(sorted(plan.options.items()))
    if plan.service is not None:
        kept["service"] = service_name(plan.service)
    if plan.weather is not None:
        kept["weather"] = _told_weather(plan.weather)
    return json.dumps(kept, indent=1) + "\n"


def _told_weather(weather: Weather) -> dict[str, Any]:
    """All of it, but what few plans have."""
    told = asdict(weather)
    told["services"] = [service_name(each) for each in weather.services]
    told["schedule"] = [_told_event(each) for each in weather.schedule]
    for name in ("routers", "services", "durable", "parts"):
        if not told[name]:
            del told[name]
    return told


def _told_event(event: FaultEvent) -> dict[str, Any]:
    return {
        field.name: getattr(event, field.name)
        for field in fields(event)
        if field.default is MISSING or getattr(event, field.name) != field.default
    }


def plan_from_json(text: str) -> Plan:
    """The plan that the text holds; what is wrong with the text is a `Misuse`."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"the plan is not JSON: {error}") from None
    if not isinstance(told, dict):
        raise Misuse("the plan must be a JSON object with at least a protocol")
    told = dict(told)
    weather = told.pop("weather", None)
    service = told.pop("service", None)
    simple: dict[str, Any] = {}
    for name, value in told.items():
        if name not in _SIMPLE:
            known = ", ".join((*_SIMPLE, "service", "weather"))
            raise Misuse(f"plan: unknown field {name!r}; known are {known}")
        simple[name] = _options(value) if name == "options" else _told(name, value)
    if "protocol" not in simple:
        raise Misuse("plan: the protocol is missing")
    if service is not None and not isinstance(service, str):
        raise Misuse("plan: service must be a name in quotes")
    plan = Plan(
        **simple,
        service=service_of(service) if service is not None else None,
        weather=_weather(weather) if weather is not None else None,
    )
    check_plan(plan)
    return plan


def read_plan(path: str | Path) -> Plan:
    """The plan in this file; a bad file is a `Misuse`."""
    try:
        return plan_from_json(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"cannot read the plan {path}: {error}") from None


def write_plan(plan: Plan, path: str | Path) -> str:
    """Write the plan; the answer is the line that replays it."""
    Path(path).write_text(plan_to_json(plan), "utf-8")
    return f"unisono sim --plan {path}"


def _told(name: str, value: Any) -> str | int:
    if name in ("protocol", "faults"):
        if not isinstance(value, str):
            raise Misuse(f"plan: {name} must be a name in quotes")
        return value
    return _whole(f"plan: {name}", value)


def _whole(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Misuse(f"{where} must be a whole number")
    return value


def _options(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        raise Misuse("plan: options must be an object of whole numbers")
    return {name: _whole(f"plan: option {name!r}", each) for name, each in value.items()}


def _list(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Misuse(f"{where} must be a list")
    return value


def _flag(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Misuse(f"{where} must be true or false")
    return value


def _nodes(where: str, value: Any) -> tuple[int, ...]:
    return tuple(_whole(where, each) for each in _list(where, value))


def _service(where: str, value: Any) -> ServiceLevel:
    if not isinstance(value, str):
        raise Misuse(f"{where} must be names in quotes")
    return service_of(value)


def _weather(told: Any) -> Weather:
    if not isinstance(told, dict):
        raise Misuse("plan: weather must be an object")
    kept: dict[str, Any] = {}
    for name, value in told.items():
        where = f"weather: {name}"
        if name not in Weather.__dataclass_fields__:
            raise Misuse(f"weather: unknown field {name!r}")
        if name == "link":
            kept[name] = _part(LinkPlan, value)
        elif name == "links":
            kept[name] = tuple(_unlike(each) for each in _list(where, value))
        elif name == "routers":
            kept[name] = tuple(_router(each) for each in _list(where, value))
        elif name == "schedule":
            kept[name] = tuple(_part(FaultEvent, each) for each in _list(where, value))
        elif name == "clocks":
            kept[name] = tuple(_part(Clock, each) for each in _list(where, value))
        elif name == "starts_us":
            kept[name] = tuple(_whole(where, each) for each in _list(where, value))
        elif name in ("with_state", "loopback"):
            kept[name] = _flag(where, value)
        elif name == "durable":
            kept[name] = tuple(_flag(where, each) for each in _list(where, value))
        elif name == "parts":
            kept[name] = tuple(_nodes(where, each) for each in _list(where, value))
        elif name == "services":
            kept[name] = tuple(_service(where, each) for each in _list(where, value))
        else:
            kept[name] = _whole(where, value)
    return Weather(**kept)


def _unlike(told: Any) -> tuple[int, int, LinkPlan]:
    if not isinstance(told, list) or len(told) != 3:
        raise Misuse("weather: each of links must be [from, to, link]")
    source, target, link = told
    return _whole("link: from", source), _whole("link: to", target), _part(LinkPlan, link)


def _router(told: Any) -> Router:
    if not isinstance(told, dict) or not {"behind"} <= told.keys() <= {"behind", "link"}:
        raise Misuse("weather: each of routers must be an object with `behind` and `link`")
    behind = _list("router: behind", told["behind"])
    return Router(
        tuple(_whole("router: behind", each) for each in behind),
        _part(LinkPlan, told.get("link", {})),
    )


def _part(kind: type[_Part], told: Any) -> _Part:
    """A link, a fault or a clock: fields that are names, whole numbers or lists of nodes."""
    what = kind.__name__
    if not isinstance(told, dict):
        raise Misuse(f"weather: each {what} must be an object")
    kept: dict[str, Any] = {}
    for name, value in told.items():
        if name not in kind.__dataclass_fields__:
            raise Misuse(f"{what}: unknown field {name!r}")
        if name in ("kind", "delay", "what", "at_arrow", "at_effect"):
            if not isinstance(value, str):
                raise Misuse(f"{what}: {name} must be a name in quotes")
            kept[name] = value
        elif name in ("nodes", "to"):
            kept[name] = _nodes(f"{what}: {name}", value)
        else:
            kept[name] = _whole(f"{what}: {name}", value)
    for field in fields(kind):
        if field.default is MISSING and field.name not in kept:
            raise Misuse(f"{what}: {field.name} is missing")
    return kind(**kept)
