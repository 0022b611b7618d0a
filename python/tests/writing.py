"""Small disks, loops that end, and the errors of calls, for the tests of files that are written."""

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import skip

KIB, MIB = 1 << 10, 1 << 20
ENOSPC = (OSError, errno.ENOSPC)


@contextlib.contextmanager
def small_disks(folder, number):
    """Empty file systems of 512 KiB in memory."""
    if os.geteuid() != 0:
        skip("only root can mount a tmpfs")
    mounts = [folder / f"{i}" for i in range(number)]
    for mount in mounts:
        mount.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", mount], check=True)
    try:
        yield mounts
    finally:
        for mount in mounts:
            # A test that has failed may have open files.
            subprocess.run(["umount", "--lazy", mount], check=True)


def fill(mount: Path, room: int) -> None:
    """Fills a disk, but for so many bytes."""
    free = os.statvfs(mount)
    n = free.f_bavail * free.f_bsize - room
    if n > 0:
        with open(mount / "fill", "ab") as filler:
            filler.write(b"f" * n)


def empty(mount: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        (mount / "fill").unlink()


def letters(n: int, number: int) -> bytes:
    return bytes([65 + number % 26]) * n


@contextlib.contextmanager
def loop_that_ends():
    """A loop that is closed with its tasks, as one that a signal has ended."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    yield loop
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False
    loop.close()


@contextlib.contextmanager
def unraisable():
    """The exceptions of destructors."""
    errors, hook = [], sys.unraisablehook
    sys.unraisablehook = lambda unraisable: errors.append(
        unraisable.exc_value.with_traceback(None)
    )
    try:
        yield errors
    finally:
        sys.unraisablehook = hook


def outcome(call):
    try:
        return call()
    except (OSError, ValueError) as error:
        return type(error) if isinstance(error, ValueError) else (OSError, error.errno)


async def awaited(call):
    try:
        return await call()
    except (OSError, ValueError) as error:
        return type(error) if isinstance(error, ValueError) else (OSError, error.errno)


#: Warnings of files that are not closed, and errors that __del__ reports.
quiet = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
