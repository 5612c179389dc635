"""Sessions of a member in this process: sockets, the protocol's core, its records, its trace."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Final

from unisono import config as configs
from unisono.config import Config
from unisono.core import (
    Cause,
    Congested,
    Core,
    CoreConfig,
    Join,
    Leave,
    Multicast,
    Request,
)
from unisono.errors import Misuse
from unisono.group.records import RECORDS_COUNT_MAX, RecordStore
from unisono.group.session import SessionEvents
from unisono.group.traced import Traced
from unisono.model import Member, ServiceLevel, View
from unisono.net import addresses
from unisono.net.driver import Driver
from unisono.net.identity import believed, default_name, new_incarnation
from unisono.net.key_files import (
    KeyFileWatch,
    keyring_of,
    load_allowed,
    load_identity,
    load_keyring,
)
from unisono.net.stable import StableFile
from unisono.net.udp import Endpoint
from unisono.replay_history import HEADER_BYTES_MAX
from unisono.requests import GroupCommand
from unisono.sealing.identity import Signer
from unisono.sealing.records import OVERHEAD_BYTES
from unisono.sealing.seal import Seal
from unisono.spec import ProtocolSpec

log = logging.getLogger("unisono.group")


class MemberFactory:
    """Opens the sessions of a member. Keeps what outlasts them: records, and the highest
    incarnation of the member's name."""

    founds: Final = True
    holds: Final = True

    def __init__(self, config: Config, spec: ProtocolSpec, with_state: bool) -> None:
        self.name = config.name or default_name()
        self.spec = spec
        self.default_level = configs.default_service(spec)
        self.message_bytes_max = config.message_bytes_max
        if config.closed:
            raise Misuse(
                "closed= goes with daemon=: without one only members can send; leave it out"
            )
        if config.replayable:
            self.message_bytes_max += HEADER_BYTES_MAX
        self._config = config
        self._options = configs.check_options(config, spec)
        self._with_state = with_state
        if config.key:
            keyring_of(config.key)  # A bad one is refused before anything is opened.
        if config.identity or config.allowed:
            self._check_identity(config)
        self._remembered: deque[bytes] = deque(maxlen=RECORDS_COUNT_MAX)
        self._incarnation = 0
        """The highest known of our name, from our file or from other members."""
        self._former: MemberSession | None = None
        self._warned = False

    def level(self, asked: ServiceLevel | str) -> ServiceLevel:
        level = configs.service_level(asked)
        if level not in self.spec.services:
            from unisono import protocols

            configs.check_service(level, self.spec, protocols.specs().values())
        return level

    def groups(self, to: str | Sequence[str]) -> tuple[str, ...]:
        raise Misuse(
            f"to={to!r}: a member multicasts to its own group only; to address several groups,"
            " join through a daemon with daemon=, or use connect()"
        )

    @property
    def requests(self) -> tuple[type[GroupCommand], ...]:
        return self.spec.requests

    def advice(self) -> str:
        return self.spec.advice(self._options)

    async def open(self, events: SessionEvents) -> MemberSession:
        config = self._config
        named = (*config.peers, *chain.from_iterable(config.clusters.values()))
        if all(addresses.in_numbers(addresses.host_and_port(p, "peer")[0]) for p in named):
            at = configs.resolve_addresses(config)
        else:
            at = await asyncio.get_running_loop().run_in_executor(
                None, configs.resolve_addresses, config
            )
        if self._former is not None:
            self._know(believed(self._former.superseded_by))
        with ExitStack() as opened:
            endpoint = Endpoint(
                at,
                buffer_bytes=config.buffer_bytes,
                send_queue_bytes_max=config.send_queue_bytes_max,
                offloads=config.offload,
                group=config.group,
            )
            opened.callback(endpoint.close)
            stable = StableFile(config.stable) if config.stable else None
            if stable is not None:
                opened.callback(stable.close)
                self._know(stable.incarnation)
            me = Member(self.name, endpoint.address, new_incarnation(self._incarnation))
            if stable is not None:
                stable.begin(me.incarnation)
            watch = self._sealed(me, endpoint)
            core: Core = self.spec.make(self._setting(me, endpoint))
            trace = Traced(core, self.spec, config) if config.trace else None
            records = RecordStore(self._remembered, stable)
            self._former = MemberSession(
                endpoint,
                trace.core if trace else core,
                self.spec.name,
                events,
                records,
                trace,
                watch,
            )
            opened.pop_all()
        return self._former

    def _check_identity(self, config: Config) -> None:
        if not (config.identity and config.allowed and config.key):
            raise Misuse("identity=, allowed= and key= go together: give all three, or key= alone")
        file, allowed = Path(config.identity), Path(config.allowed)
        identity = load_identity(file)
        if identity.name != self.name:
            raise Misuse(f"identity {file} is of {identity.name}: join with name={identity.name!r}")
        if load_allowed(allowed).get(self.name) != identity.public():
            raise Misuse(f"list {allowed} does not allow {self.name} with the key of {file}")

    def _sealed(self, me: Member, endpoint: Endpoint) -> KeyFileWatch | None:
        """Let the endpoint seal its packets, if there is a key."""
        config = self._config
        if not config.key:
            if not (config.insecure or self._warned or endpoint.is_local):
                self._warned = True
                log.warning(
                    "packets of group %s leave this machine unsealed: give key= (see `unisono key"
                    " new`), or insecure=True (--insecure) to accept that",
                    config.group,
                )
            return None
        signer = None
        if config.identity:
            identity = load_identity(Path(config.identity))
            signer = Signer(identity, load_allowed(Path(config.allowed)), config.group, os.urandom)
        seal = Seal(
            keyring_of(config.key),
            config.group,
            me.name,
            me.incarnation,
            os.urandom,
            endpoint.counts,
            signer,
        )
        endpoint.use(seal)
        readers = {Path(config.key): lambda path: seal.rekey(load_keyring(path))}
        if config.allowed:
            readers[Path(config.allowed)] = lambda path: seal.allow(load_allowed(path))
        return KeyFileWatch(readers)

    def _know(self, incarnation: int) -> None:
        self._incarnation = max(self._incarnation, incarnation)

    def _setting(self, me: Member, endpoint: Endpoint) -> CoreConfig:
        config = self._config
        packet_bytes_max = min(config.packet_bytes_max, endpoint.packet_bytes_max)
        return CoreConfig(
            me=me,
            group=config.group,
            seed=int.from_bytes(os.urandom(8), "big") >> 1,
            packet_bytes_max=packet_bytes_max - (OVERHEAD_BYTES if config.key else 0),
            message_bytes_max=self.message_bytes_max,
            window_bytes_max=config.window_bytes_max,
            with_state=self._with_state,
            durable=bool(config.stable),
            options=self._options,
            terms=configs.terms(config),
            clusters=configs.cluster_addresses(config),
        )


class MemberSession:
    """One incarnation of a member: its driver, between the core and the group."""

    send_credit: Callable[[], int]

    def __init__(
        self,
        endpoint: Endpoint,
        core: Core,
        protocol: str,
        events: SessionEvents,
        records: RecordStore,
        trace: Traced | None = None,
        watch: KeyFileWatch | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.core = core
        self.finished = False
        self._protocol = protocol
        self._events = events
        self._records = records
        self._trace = trace
        self._watch = watch
        self._is_in = False
        """It has had a view."""
        # The driver and the send buffer call these ends directly: some run for every burst.
        self.send_credit = core.send_credit
        self.deliver, self.stepped = events.deliver, events.stepped
        self.has_woken = events.has_woken
        self.put, self.adopt = events.put, events.adopt
        self.driver = Driver(core, endpoint, self, records.append, records.replace)

    def start(self) -> None:
        self._events.opened(self.core.me)
        if self._trace is not None:
            self._trace.start()
        if self._watch is not None:
            self._watch.start(asyncio.get_running_loop())
        self.driver.start(chain(self._records.restarts(), (Join(),)))

    # -- Session ----------------------------------------------------------------------------------

    @property
    def cause(self) -> Cause | None:
        return self.driver.cause

    @property
    def superseded_by(self) -> int:
        """The higher incarnation of our name that the group knows, if that stopped us."""
        return self.driver.known

    @property
    def warning(self) -> str:
        return self.driver.warning

    def submit(
        self, messages: Sequence[bytes], service: ServiceLevel, groups: tuple[str, ...]
    ) -> None:
        assert not groups, "a member has one group"
        self.driver.feed(Multicast(messages, service))

    def request(self, request: Request) -> None:
        self.driver.feed(request)

    def congested(self, on: bool) -> None:
        self.driver.feed(Congested(on))

    def leave(self) -> None:
        self.driver.feed(Leave())

    def fail(self, reason: str) -> None:
        self.driver.fail(reason, farewell=Leave())

    def close(self) -> None:
        self.finished = True
        self.driver.close()
        if self._watch is not None:
            self._watch.close()
        if self._trace is not None:
            self._trace.close()
            self._trace = None
        self._records.close()

    def counts(self) -> Counter[str]:
        found = Counter(self.core.counts)
        found.update(self.endpoint.counts)
        found["persist.unsaved"] += self._records.unsaved_count
        return found

    def describe(self) -> str:
        counts = self.counts()
        drops = [
            f"{n} {count}" for n, count in sorted(counts.items()) if n[:5] == "drop." and count
        ]
        texts = (*self.driver.warned, self._unread())
        warned = "".join(f"; {text}" for text in dict.fromkeys(texts) if text)
        return (
            f"tried {self._protocol} over {self.endpoint.where} as {self.core.me} at"
            f" {self.endpoint.address};"
            f" {counts['net.out.packets']} packets went out, {counts['net.in.packets']} came in,"
            f" drops: {', '.join(drops) or 'none'}{warned}"
        )

    # -- what the driver reports ------------------------------------------------------------------

    def install(self, view: View) -> None:
        if not self._is_in and len(view.members) == 1 and (unread := self._unread()):
            # It would found a second group beside one that it cannot read.
            self.driver.fail(unread, Cause.UNREADABLE)
            return
        self._is_in = True
        self._events.install(view)

    def _unread(self) -> str:
        """Which packets of our group come that we cannot read, if we can read none."""
        seal = self.endpoint.seal
        if seal is not None:
            return "" if seal.is_answered else seal.unread
        if not self.core.counts.get("drop.sealed"):
            return ""
        return "packets of this group come that are sealed: give key= the keyring of its members"

    def ended(self, reason: str | None) -> None:
        if reason is not None and self._trace is not None and not self.driver.ended_by_core:
            self._trace.stopped(reason)
        self.close()
        self._events.ended(reason)
