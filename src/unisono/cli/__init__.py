"""The `unisono` command. What a command does is in a module of its own, imported when asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from unisono.errors import Stopped, UnisonoError

OK: Final = 0
BROKEN: Final = 1
"""A law is broken."""
BAD_INPUT: Final = 2
"""One line on standard error says what to write instead."""
STOPPED: Final = 3
"""The member is no longer in the group, or never came in."""
INTERRUPTED: Final = 130
TERMINATED: Final = 143
"""Ended by SIGTERM before its work was done."""
PIPE_CLOSED: Final = 141
"""Nobody reads what is printed: as if ended by SIGPIPE."""


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; the answer is the exit code."""
    try:
        from unisono.cli.app import app
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] == "unisono":
            raise
        return refuse(f"the command needs {missing.name}: pip install 'unisono[cli]'")
    try:
        code = app(list(arguments) or ["--help"], prog_name="unisono", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return pipe_closed()
    except SystemExit as ended:
        # The parser's own answer to a closed pipe would look like a broken law.
        if isinstance(ended.__context__, BrokenPipeError):
            return pipe_closed()
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except Stopped as stop:
        return refuse(stop.reason, STOPPED)
    except UnisonoError as error:
        return refuse(str(error))
    except Exception as error:
        # What the parser has against the arguments, whatever its class is called by now.
        if told := getattr(error, "format_message", None):
            return refuse(f"{told().rstrip('.')}: see `{_help_of(error)}`")
        if type(error).__name__ == "Abort":
            return INTERRUPTED
        raise
    return code if isinstance(code, int) else OK


def refuse(why: str, code: int = BAD_INPUT) -> int:
    """Say on one line of standard error why not."""
    print("unisono:", " ".join(why.split()), file=sys.stderr)
    return code


def pipe_closed() -> int:
    # The interpreter flushes once more at its end: let that go nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


def _help_of(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context is not None else 'unisono'} --help"
