"""Functions that the tests share."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HANG = 300.0
"""A step of a test that takes so many seconds hangs. No limit is shorter: the machine may be busy."""


def skip(why: str) -> None:
    """Skips a test; with NOWAIT_TEST_ALL=1 it fails instead."""
    if os.environ.get("NOWAIT_TEST_ALL") == "1":
        pytest.fail(f"would be skipped: {why}")
    pytest.skip(why)


def python(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs code in another interpreter."""
    command = [sys.executable, "-X", "faulthandler", "-c", code, *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": HANG, **options}
    return subprocess.run(command, **options)  # type: ignore[call-overload]


def threads() -> int:
    """The number of threads of this process."""
    return len(os.listdir("/proc/self/task"))


def settles(before: tuple[int, int]) -> bool:
    """Waits until there are no more threads and descriptors. The workers of an engine end after it was dropped."""
    end = time.monotonic() + HANG
    while threads() > before[0] or descriptors() > before[1]:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def descriptors() -> int:
    """The number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def evict(directory: Path) -> None:
    """Writes the files below a directory, and evicts them. sync(2) would wait for all disks."""
    import nowait

    subprocess.run(["sync", "-f", directory], check=True)
    assert nowait.evict(directory).failed == 0


def evict_file(path: Path) -> None:
    """Evicts the clean pages of one file."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
