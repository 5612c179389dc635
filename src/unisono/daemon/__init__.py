"""The site process: one member of a ring, shared by the applications of its machine."""

from unisono.daemon.registry import Limits, Registry
from unisono.daemon.session import Bounds
from unisono.daemon.site import Daemon

__all__ = ["Bounds", "Daemon", "Limits", "Registry"]
