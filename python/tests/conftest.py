"""Fixtures of the tests."""

import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Path:
    """A folder on a disk: /tmp may be in memory."""
    directory = tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".tmp-")
    request.addfinalizer(directory.cleanup)
    os.chmod(directory.name, 0o755)
    return Path(directory.name)


@pytest.fixture
def make(disk: Path):
    """Makes a file of random bytes that is written to the disk, and evicts it."""

    def make(name: str, size: int, cached: bool = False) -> Path:
        path = disk / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            for begin in range(0, size, 1 << 20):
                file.write(os.urandom(min(1 << 20, size - begin)))
            file.flush()
            os.fsync(file.fileno())
            if not cached:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return path

    return make
