"""The daemon: one member of a ring, shared by the applications of its machine."""

from unisono.daemon.registry import Registry, RegistryLimits
from unisono.daemon.session import SessionLimits
from unisono.daemon.site import Daemon

__all__ = ["Daemon", "Registry", "RegistryLimits", "SessionLimits"]
