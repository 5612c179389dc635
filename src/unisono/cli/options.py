"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from unisono.core import DEFAULT_PROTOCOL
from unisono.errors import Misuse

DAY_S: Final = 86_400


def finite(value: float | None) -> float | None:
    """The parser's ranges accept NaN."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a number of seconds")
    return value


def duration(help: str, least: float = 0, most: float = DAY_S, metavar: str | None = "S") -> Any:
    """An option that is a time."""
    return typer.Option(min=least, max=most, callback=finite, metavar=metavar, help=help)


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Protocol = Annotated[str | None, typer.Option(help=f"Default: {DEFAULT_PROTOCOL}.")]
Ordered = Annotated[
    str | None, typer.Option(help=f"Default: {DEFAULT_PROTOCOL}; it needs a total order.")
]
Options = Annotated[
    list[str] | None, typer.Option(metavar="K=V", help="A protocol option; may be repeated.")
]
GroupName = Annotated[
    str | None, typer.Argument(help="The group's name, or a URL.", show_default=False)
]
MemberName = Annotated[str | None, typer.Option(help="This member's name.")]
Interface = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="The network interface of the group.")
]
Port = Annotated[
    int | None, typer.Option(help="The multicast port; with --peers, this member's port.")
]
Peers = Annotated[
    str | None, typer.Option(metavar="HOST:PORT,…", help="The members, without multicast.")
]
Bind = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="This member's socket.")]
Advertise = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The address that others use.")
]
DaemonAt = Annotated[
    str | None, typer.Option(metavar="WHERE", help="Join through this daemon, as unix:/path.")
]
ConfigFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="TOML with a table \\[group], or a URL.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-X", metavar="K=V", help="Any argument of join, as slow=leave; may be repeated."
    ),
]
Stable = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Stable storage of this member, kept over a crash."),
]
Key = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Seal all packets with the keys of this keyring."),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="No warning where packets leave unsealed.")
]
TraceTo = Annotated[Path | None, typer.Option(metavar="DIR", help="Write a trace.")]
Detail = Annotated[bool, typer.Option("--detail", help="Trace packets too, for draw.")]
TraceDir = Annotated[Path, typer.Argument(help="The directory that --trace wrote.")]
AllowQuarantined = Annotated[
    bool, typer.Option("--allow-quarantined", help="Succeed although rows could not be judged.")
]
Faults = Annotated[
    str | None, typer.Option(help="none, loss, crash, partition, mild or chaos (default).")
]
Strongest = Annotated[str | None, typer.Option(help="Default: the protocol's strongest service.")]
Master = Annotated[str, typer.Option(help="The Spark master.")]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="K=V", help="A Spark setting; may be repeated.")
]

MEMBER: Final = tuple(
    """name interface port peers bind advertise protocol daemon service option config rejoin
    replayable key insecure stable trace detail""".split()
)
"""Parameters of a command that `join` takes."""


def given(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Those of a command's parameters that were given: the others keep their defaults."""
    return {
        name: value
        for name in names
        if (value := values.get(name)) is not None and value is not False and value != []
    }


def member_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `join` among a command's parameters."""
    found = given(values, MEMBER)
    if values.get("rejoin") is False:
        found["rejoin"] = False
    if "option" in found:
        found["options"] = options_of(found.pop("option"))
    for text in values.get("settings") or ():
        from unisono.config import JoinOptions

        name, equals, value = text.partition("=")
        if name not in JoinOptions.__annotations__ or not equals:
            known = ", ".join(sorted(JoinOptions.__annotations__))
            raise Misuse(f"--set {text!r}: write K=V, where K is an argument of join: {known}")
        found[name] = setting(value)
    return found


def setting(text: str) -> bool | int | float | str:
    """As in TOML; what is nothing else is a text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def integer(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Misuse(f"{option} {text!r} is not a whole number") from None


def integers(text: str, option: str, separators: str = ":") -> tuple[int, int]:
    """`A:B`, with A not above B."""
    match = re.fullmatch(rf"(\d{{1,18}})[{separators}](\d{{1,18}})", text)
    if match is None or int(match[1]) > int(match[2]):
        raise Misuse(f"{option} {text!r}: write two numbers as A{separators[0]}B, the lesser first")
    return int(match[1]), int(match[2])


def options_of(texts: Iterable[str]) -> dict[str, int]:
    """Protocol options, each `name=number`; the last of a name counts."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misuse(f"--option {text!r}: write it as name=number")
        found[name] = integer(value, f"--option {name}")
    return found
