"""Ships this package to the machines of a cluster, so that tasks run the driver's code.

It holds Python only: compiled dependencies (pyarrow and pandas) must be in the
environment of the tasks. `docs/SPARK.md` says how.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unisono.spark.java import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive, so that the same code gives the same archive."""


def ship(session: SparkSession) -> None:
    """Give every task of this session the package, with precedence over an installed one."""
    if (archive := packed()) is not None:
        session.sparkContext.addPyFile(str(archive))


def packed() -> Path | None:
    """The package as an archive that Python imports from; None when it is in one already."""
    package = Path(__file__).parents[1]
    if not package.is_dir():
        return None
    files = {
        path.relative_to(package.parent).as_posix(): path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    name = f"unisono-{digest.hexdigest()[:16]}.zip"
    try:
        return _written(cache_folder() / name, files)
    except OSError:
        # No home directory, or a read-only one.
        return _written(Path(tempfile.mkdtemp(prefix="unisono-ship-")) / name, files)


def _written(archive: Path, files: dict[str, bytes]) -> Path:
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=archive.parent)
    with (
        os.fdopen(handle, "wb") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped,
    ):
        for name, content in files.items():
            zipped.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)
    Path(draft).chmod(0o644)
    Path(draft).replace(archive)
    return archive
