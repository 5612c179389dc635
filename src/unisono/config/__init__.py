"""Options of `join`: keyword arguments, a TOML file or a URL become one checked `Config`."""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import parse_qsl, unquote

from unisono.config.join_options import JoinOptions as JoinOptions
from unisono.core import DEFAULT_PROTOCOL
from unisono.errors import Misuse, check_option_names
from unisono.model import Address, Resilient, Service, ServiceLevel, level_named, level_text
from unisono.net import addresses
from unisono.net.addresses import Addresses
from unisono.net.stream import SLOW, Slow
from unisono.net.udp import BUFFER_BYTES, SEND_QUEUE_BYTES_MAX
from unisono.spec import ProtocolSpec

MULTICAST, PORT = "239.192.77.1", 7400
"""An address of the organisation-local scope, and a port that needs no privilege."""
LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
NAME = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
FORMAT_LENGTH_MAX: Final = 64
FORMAT = re.compile(rf"[A-Za-z0-9._@+:/-]{{1,{FORMAT_LENGTH_MAX}}}")
URL = re.compile(r"(?P<scheme>[a-z+]+)://(?P<hosts>[^/?#]*)(?P<path>/[^?#]*)?(\?(?P<query>.*))?")
SCHEMES = ("unisono", "unisono+peers")
POSITIVE = re.compile(r".*_(max|bytes|s)$")
SECONDS_MAX = 86_400
BUFFER_BYTES_MAX = (1 << 31) - 1
"""The most that the socket option holds."""
PACKET_BYTES_MIN = 512
"""Smaller packets would consist mostly of the protocol's headers."""


@dataclass(frozen=True, slots=True)
class Config:
    """How to join a group. Every field is a keyword of `join`, a key of the TOML table `[group]`
    and, but for lists, a parameter of the URL."""

    group: str = ""
    name: str = ""
    """The member's own name; by default host and process id."""
    protocol: str = DEFAULT_PROTOCOL
    service: str = ""
    """The default service level; by default the protocol's strongest, at most agreed."""
    multicast: str = ""
    """The group's address, by default 239.192.77.1; or `peers`, not both."""
    peers: tuple[str, ...] = ()
    """`host:port` of members, where there is no multicast."""
    port: int = -1
    """Of the multicast address, by default 7400; with peers, this member's port."""
    interface: str = ""
    """Address or name of the interface; with multicast, by default loopback: this machine only."""
    bind: str = ""
    """`host:port` of this member's socket."""
    advertise: str = ""
    """`host[:port]` at which others reach this member, if not the bound one."""
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Where the group spans clusters joined by wide links: by name, `host:port` of all members of
    each; the same at every member."""
    cluster: str = ""
    """This member's cluster. Its list is that of `peers`, unless there is multicast."""
    daemon: str = ""
    """The address of the local daemon, `unix:/path` or `tcp:127.0.0.1:7401`: join through it, not
    as a member."""
    slow: Slow = "block"
    """Policy for a slow reader: block the senders, shed the oldest messages, or leave."""
    queue_count_max: int = 65_536
    """Events that wait for the reader."""
    queue_bytes_max: int = 64 << 20
    """Bytes of messages that wait for the reader; a single message may be larger."""
    message_bytes_max: int = 64 << 20
    window_bytes_max: int = 4 << 20
    packet_bytes_max: int = 1400
    buffer_bytes: int = BUFFER_BYTES
    """Socket buffers, each."""
    send_queue_bytes_max: int = SEND_QUEUE_BYTES_MAX
    """Packets that wait for the socket."""
    offload: bool = True
    """Send and receive bursts with one system call, if the kernel supports it."""
    join_s: float = 10.0
    leave_s: float = 5.0
    detect_ms: int = 0
    """A member that is silent for this long has failed, unless it is known to be slower; 0 is the
    protocol's default. Sets its option `detect_us`; the same at every member."""
    rejoin: bool = True
    """Join again as a new incarnation when the member is stopped; the stream has `Rejoined`."""
    replayable: bool = False
    """Messages have offsets, and each row of a sink is delivered once: for a log or a Spark stream.
    The same at every member."""
    retain_bytes: int = 16 << 20
    """Payload bytes that each member of a replayable group keeps for recalls."""
    closed: bool = False
    """Through a daemon: only members send to the group. The same at every member."""
    format: str = ""
    """What the messages are, by a name of the application's choosing, such as `prices/2`: members
    that give another are refused."""
    key: str = field(default="", repr=False)
    """Seals all packets: a keyring file, or a key of 32 hexadecimal digits; the same at every
    member."""
    identity: str = ""
    """The file with the key by which this member signs."""
    allowed: str = ""
    """The list of members that may take part, with their public keys."""
    insecure: bool = False
    """No warning where packets leave this machine unsealed."""
    stable: str = ""
    """The file for the protocol's stable storage."""
    trace: str = ""
    """The directory for traces; without it there is none."""
    detail: bool = False
    """Trace protocol work as well."""
    run: str = ""
    """The run's name in the trace directory."""
    options: Mapping[str, int] = field(default_factory=dict)
    """The protocol's own parameters."""


FIELDS = {entry.name: entry for entry in fields(Config)}


def read(given: str | None, config: str | Path | None, options: Mapping[str, Any]) -> Config:
    """One Config of everything given; keywords win over the file or URL."""
    values: dict[str, Any] = {}
    if config is not None:
        text = str(config)
        values = from_url(text) if "://" in text else from_toml(Path(config))
    if given and "://" in given:
        values |= from_url(given)
    elif given is not None:
        values["group"] = given
    under, over = _gathered(values), _gathered(options)
    return from_values({**under, **over, "options": {**under["options"], **over["options"]}})


def _gathered(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values, with all options of the protocol under `options`."""
    known = {key: value for key, value in values.items() if key in FIELDS}
    own = {key: value for key, value in values.items() if key not in FIELDS}
    return known | {"options": _typed("options", values.get("options", {})) | own}


def from_toml(path: Path) -> dict[str, Any]:
    try:
        whole = tomllib.loads(path.read_text())
    except OSError as error:
        raise Misuse(f"config {str(path)!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"config {str(path)!r} is not TOML: {error}") from None
    except RecursionError:
        raise Misuse(f"config {str(path)!r} is nested too deeply: write plain keys") from None
    table = whole.get("group")
    if not isinstance(table, dict):
        raise Misuse(f"config {str(path)!r} has no table [group]: put the keys under [group]")
    values = dict(table)
    if "group" not in values and isinstance(whole.get("name"), str):
        raise Misuse(f"config {str(path)!r}: write the group's name as group = ... under [group]")
    return values


def from_url(text: str) -> dict[str, Any]:
    """`unisono://239.1.2.3:7400/orders?protocol=mtp` or `unisono+peers://a:7400,b:7400/orders`."""
    # By hand, because urllib does not parse a list of hosts.
    match = URL.fullmatch(text)
    if match is None or match["scheme"] not in SCHEMES:
        raise Misuse(f"URL {text!r}: write unisono://… or unisono+peers://… instead")
    scheme, query = match["scheme"], match["query"] or ""
    values: dict[str, Any] = {}
    group = unquote((match["path"] or "").strip("/"))
    if not group or "/" in group:
        raise Misuse(f"URL {text!r} names no group: write {scheme}://host:port/GROUP")
    values["group"] = group
    hosts = unquote(match["hosts"])
    if scheme == "unisono+peers":
        if not hosts:
            raise Misuse(
                f"URL {text!r} names no peers: write unisono+peers://host:port,host:port/…"
            )
        values["peers"] = hosts
    elif hosts:
        host, port = addresses.host_and_port(hosts, "URL host", -1)
        values["multicast"] = host
        if port >= 0:
            values["port"] = port
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise Misuse(f"URL {text!r}: write options as ?key=value&key=value") from None
    for key, value in pairs:
        values[key] = _from_text(key, value)
    return values


def _from_text(key: str, value: str) -> Any:
    """The value as the field's type; as a number for an option of the protocol."""
    kind = FIELDS[key].type if key in FIELDS else "int"
    try:
        if kind == "int":
            return int(value)
        if kind == "float":
            return float(value)
    except ValueError:
        raise Misuse(f"{key}={value!r} is not a number") from None
    if kind == "bool":
        if value.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise Misuse(f"{key}={value!r}: write true or false")
        return value.lower() in ("true", "1", "yes")
    return value


def from_values(values: Mapping[str, Any]) -> Config:
    """Checks types, ranges and conflicts. Unknown keys are options of the protocol."""
    known = {key: _typed(key, value) for key, value in values.items() if key in FIELDS}
    own = {key: value for key, value in values.items() if key not in FIELDS}
    made = Config(**known)
    made = replace(made, options={**made.options, **own})
    if not NAME.fullmatch(made.group):
        raise Misuse(f"group {made.group!r}: give it a name of 1 to 64 letters, digits or ._@+-")
    if made.format and not FORMAT.fullmatch(made.format):
        raise Misuse(f"format {made.format!r}: use 1 to 64 letters, digits or ._@+-:/")
    if made.name and not NAME.fullmatch(made.name):
        raise Misuse(f"name {made.name!r}: use 1 to 64 letters, digits or ._@+-")
    if made.slow not in get_args(Slow):
        raise Misuse(f"slow={made.slow!r}: write one of {', '.join(SLOW)}")
    if made.multicast and made.peers:
        raise Misuse("both multicast= and peers= are given: keep the one that reaches the members")
    _check_clusters(made)
    _check_numbers(made)
    if "port" in known:
        addresses.port_in(made.port)
    return made


def _check_numbers(made: Config) -> None:
    for key in FIELDS:
        value = getattr(made, key)
        if not POSITIVE.fullmatch(key) or not isinstance(value, int | float):
            continue
        if not value > 0:
            raise Misuse(f"{key}={value}: give a number above 0")
        if key.endswith("_s") and value > SECONDS_MAX:
            raise Misuse(f"{key}={value}: give at most a day, {SECONDS_MAX} seconds")
    if made.packet_bytes_max < PACKET_BYTES_MIN:
        raise Misuse(f"packet_bytes_max={made.packet_bytes_max}: give at least {PACKET_BYTES_MIN}")
    if made.buffer_bytes > BUFFER_BYTES_MAX:
        raise Misuse(f"buffer_bytes={made.buffer_bytes}: give at most {BUFFER_BYTES_MAX}")


def _typed(key: str, value: Any) -> Any:
    kind = FIELDS[key].type
    if key == "peers":
        entries = value.split(",") if isinstance(value, str) else value
        if isinstance(entries, list | tuple) and all(isinstance(entry, str) for entry in entries):
            if named := tuple(entry.strip() for entry in entries if entry.strip()):
                return named
            raise Misuse("peers= is empty: write host:port,…, or leave it out for multicast")
        raise Misuse(f"peers={value!r}: write a list of 'host:port'")
    if key == "clusters":
        return _clusters(value)
    if key == "options":
        if isinstance(value, Mapping):
            return dict(value)
        raise Misuse(f"options={value!r}: write a table of names and numbers")
    if key == "key" and isinstance(value, bytes):
        return value.hex()
    if kind == "str" and isinstance(value, os.PathLike):
        return os.fspath(value)
    if key == "service" and isinstance(value, Service | Resilient):
        return level_text(value)
    fits = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
    }
    if not fits.get(str(kind), isinstance(value, str)):
        wanted = {"int": "a whole number", "float": "a number", "bool": "true or false"}
        shown = "…" if key == "key" else repr(value)
        raise Misuse(f"{key}={shown}: write {wanted.get(str(kind), 'a text')} instead")
    return value


def _clusters(value: Any) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise Misuse(f"clusters={value!r}: write a table of names, each with a list of 'host:port'")
    for name in value:
        if not NAME.fullmatch(name):
            raise Misuse(f"cluster {name!r}: use 1 to 64 letters, digits or ._@+-")
    return {name: _typed("peers", listed) for name, listed in value.items()}


def _check_clusters(made: Config) -> None:
    if bool(made.clusters) != bool(made.cluster):
        raise Misuse("clusters= and cluster= go together: list all clusters, and name this one")
    if made.cluster and made.cluster not in made.clusters:
        known = ", ".join(sorted(made.clusters))
        raise Misuse(f"cluster={made.cluster!r} is not one of clusters=: write one of {known}")
    if made.clusters and made.peers:
        raise Misuse("peers= and clusters= are given: leave out peers=, the cluster lists them")


def check_options(config: Config, spec: ProtocolSpec) -> Mapping[str, int]:
    """The protocol's options with their defaults; `Misuse` if one is unknown or not an integer."""
    check_option_names(spec.name, config.options, spec.options, FIELDS)
    for key, value in config.options.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise Misuse(f"{key}={value!r}: write a whole number, in the unit its name ends with")
    goal = {"detect_us": 1000 * config.detect_ms} if config.detect_ms else {}
    if goal and "detect_us" not in spec.options:
        raise Misuse(f"detect_ms={config.detect_ms}: {spec.name} has no detect_us; leave it out")
    if goal and "detect_us" in config.options:
        raise Misuse("both detect_ms= and detect_us= are given: keep one")
    return {**spec.options, **config.options, **goal}


def check_state(
    config: Config,
    snapshot: Callable[[], bytes] | None,
    restore: Callable[[bytes], None] | None,
) -> bool:
    """Whether members transfer a state."""
    if (snapshot is None) != (restore is None):
        raise Misuse("snapshot= and restore= go together: give both, as a member may need either")
    with_state = snapshot is not None or config.replayable
    if config.slow == "shed" and with_state:
        raise Misuse("slow='shed' loses messages, so no state can be transferred: use 'block'")
    return with_state


def terms(config: Config) -> Mapping[str, str]:
    """Settings that all members must share, besides the protocol and its options."""
    return {
        "replayable": str(config.replayable).lower(),
        "message_bytes_max": str(config.message_bytes_max),
        **({"format": config.format} if config.format else {}),
    }


def service_level(asked: str | ServiceLevel) -> ServiceLevel:
    """`safe`, `resilient(2)` or `resilient:2`, `resilient(majority)`, or a level itself."""
    found = level_named(asked) if isinstance(asked, str) else asked
    if isinstance(found, Resilient):
        is_number = isinstance(found.k, int) and not isinstance(found.k, bool)
        if not is_number or (found.k < 1 and found.k not in (Resilient.MAJORITY, Resilient.ALL)):
            text = f"resilient({found.k!r}): give a number of members above 0, majority or all"
            raise Misuse(text)
    if isinstance(found, Service | Resilient):
        return found
    levels = ", ".join(name.lower() for name in Service.__members__)
    raise Misuse(f"unknown service {asked!r}: write one of {levels}, or resilient(k)")


def check_service(
    level: ServiceLevel, spec: ProtocolSpec, all_specs: Iterable[ProtocolSpec]
) -> ServiceLevel:
    """The level, if the protocol offers it; else `Misuse` names the protocols that do."""
    if _offered(level, spec):
        return level
    name = level.name.lower() if isinstance(level, Service) else "resilient"
    able = sorted(other.name for other in all_specs if _offered(level, other))
    instead = f"use {' or '.join(able)}" if able else "no protocol here does"
    raise Misuse(f"protocol {spec.name} does not offer {name}: {instead}")


def _offered(level: ServiceLevel, spec: ProtocolSpec) -> bool:
    return level in spec.services if isinstance(level, Service) else spec.resilient


def default_service(spec: ProtocolSpec) -> ServiceLevel:
    """The strongest level up to agreed, or else the strongest of all."""
    cheap = [level for level in spec.services if level <= Service.AGREED]
    return max(cheap or spec.services)


def resolve_addresses(config: Config) -> Addresses:
    """The numeric addresses. May block to resolve names: call it off the event loop."""
    advertise = addresses.numeric(config.advertise, "advertise") if config.advertise else None
    bind = addresses.numeric(config.bind, "bind") if config.bind else None
    near = config.peers
    clusters = cluster_addresses(config)
    far = tuple(
        address for name, listed in clusters.items() if name != config.cluster for address in listed
    )
    if clusters and not config.multicast:
        near = config.clusters[config.cluster]
    if near:
        peers = tuple(_peer(text, config.port) for text in near)
        if bind is None and config.port >= 0:
            bind = Address("", config.port)
        elif bind is not None and not bind.port:
            bind = Address(bind.host, max(config.port, 0))
        return Addresses(
            peers=peers, interface=config.interface, bind=bind, advertise=advertise, far=far
        )
    group = addresses.multicast_address(
        config.multicast or MULTICAST, config.port if config.port >= 0 else PORT
    )
    scope = group.host.partition("%")[2]
    interface = config.interface or scope or LOOPBACK[addresses.family_of(group.host)]
    return Addresses(multicast=group, interface=interface, bind=bind, advertise=advertise, far=far)


def cluster_addresses(config: Config) -> Mapping[str, tuple[Address, ...]]:
    """The numeric addresses of all clusters. May block."""
    return {
        name: tuple(_peer(text, config.port) for text in listed)
        for name, listed in config.clusters.items()
    }


def spans_clusters(config: Config, spec: ProtocolSpec) -> ProtocolSpec:
    """The protocol as the configuration needs it."""
    if not config.clusters:
        return spec
    if spec.clustered is None:
        raise Misuse(f"protocol {spec.name} does not span clusters: use protocol='transis'")
    return spec.clustered


def _peer(text: str, port: int) -> Address:
    host, port = addresses.host_and_port(text, "peer", port if port > 0 else PORT)
    if not port:
        raise Misuse(f"peer {text!r}: give the port it listens on, not 0")
    return addresses.resolve(host, port)
