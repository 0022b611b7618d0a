"""Bytes, order and errors of asyncio files that are written: beside io, with writes that are cancelled, loops that end,
full disks and other writers."""

import asyncio
import contextlib
import errno
import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers import evict_file, python, skip
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nowait import asyncio_files

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


@pytest.fixture
def small(tmp_path):
    with small_disks(tmp_path, 1) as mounts:
        yield mounts[0]


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
    loop.run_until_complete(loop.shutdown_default_executor())
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


class Both:
    """A file of io and one of asyncio_files, which have the same calls."""

    def __init__(self, theirs, ours):
        self.theirs, self.ours = theirs, ours
        # True if a call of ours was left whose error is that of the next call.
        self.owes = False

    async def same(self, name, *arguments):
        expected = outcome(lambda: self.their(name)(*arguments))
        got = await awaited(lambda: getattr(self.ours, name)(*arguments))
        if self.owes and got == ENOSPC and name == "close":
            # It has the earlier error, and has written what it could.
            got = expected
        elif self.owes and got == ENOSPC:
            got = await awaited(lambda: getattr(self.ours, name)(*arguments))
        self.owes = False
        assert got == expected, (name, arguments)

    async def leaves(self, name, *arguments, cancels):
        """Ours is cancelled after it has begun, or left behind by the loop."""
        if self.owes:
            await self.same("tell")
        self.owes = outcome(lambda: self.their(name)(*arguments)) == ENOSPC
        task = asyncio.create_task(getattr(self.ours, name)(*arguments))
        await asyncio.sleep(0)
        if cancels:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def their(self, name):
        def fsync():
            self.theirs.flush()
            os.fsync(self.theirs.fileno())

        return fsync if name == "fsync" else getattr(self.theirs, name)


def steps(sizes):
    return st.lists(
        st.one_of(
            st.tuples(st.just("write"), sizes),
            st.tuples(st.just("write"), sizes),
            st.tuples(st.just("flush")),
            st.tuples(st.just("seek"), st.integers(0, 200 * KIB)),
            st.tuples(st.just("tell")),
            st.tuples(st.just("truncate"), st.none() | st.integers(0, 200 * KIB)),
            st.tuples(st.just("fsync")),
            st.tuples(st.just("cancelled write"), sizes),
            st.tuples(st.just("cancelled flush")),
            st.tuples(st.just("other"), st.integers(1, 9000)),
            st.tuples(st.just("fill"), st.integers(0, 100 * KIB)),
            st.tuples(st.just("empty")),
        ),
        max_size=10,
    )


async def run_steps(both, mounts, program, numbers):
    for name, *arguments in program:
        if name.endswith("write"):
            arguments = [letters(arguments[0], next(numbers))]
        if name.startswith("cancelled "):
            await both.leaves(name.split()[1], *arguments, cancels=True)
        elif name not in ("other", "fill", "empty"):
            await both.same(name, *arguments)
        else:
            # Both have written the same before.
            await both.same("flush")
            for mount in mounts:
                if name == "fill":
                    fill(mount, *arguments)
                elif name == "empty":
                    empty(mount)
                else:
                    with contextlib.suppress(OSError), open(mount / "file", "ab", 0) as other:
                        other.write(b"o" * arguments[0])


def run_program(mounts, mode, buffering, halves, ends):
    numbers = iter(range(1000))
    paths = [mount / "file" for mount in mounts]
    for path in paths:
        path.write_bytes(b"0123456789" * 100)
    both = Both(open(paths[0], mode, buffering), None)

    async def first():
        both.ours = await asyncio_files.open(paths[1], mode, buffering)
        await run_steps(both, mounts, halves[0], numbers)
        await both.leaves("write", letters(70_000, next(numbers)), cancels=False)

    async def second():
        await run_steps(both, mounts, halves[1], numbers)
        if ends == "close":
            await both.same("close")
            assert both.ours.closed

    with loop_that_ends() as loop:
        loop.run_until_complete(first())
    asyncio.run(second())
    if ends == "detach":
        if both.owes:
            asyncio.run(both.same("tell"))
        raws = [outcome(both.theirs.detach), outcome(both.ours.detach)]
        failed = [raw == ENOSPC for raw in raws]
        assert failed[0] == failed[1]
        for raw in raws if not failed[0] else []:
            with contextlib.suppress(OSError):
                raw.write(b"tail")
            raw.close()
    if ends != "close":
        for mount in mounts:
            empty(mount)
        both.theirs = None
        with unraisable() as errors:
            both.ours = None
            gc.collect()
        # The error that no call has raised.
        assert all(both.owes and error.errno == errno.ENOSPC for error in errors), errors
    assert paths[1].read_bytes() == paths[0].read_bytes()


ENDS = st.sampled_from(["close", "detach", "delete"])
#: Warnings of files that are not closed, and errors that __del__ reports.
quiet = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@quiet
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    mode=st.sampled_from(["wb", "ab"]),
    buffering=st.sampled_from([-1, 100_000]),
    halves=st.tuples(*[steps(st.sampled_from([1, 5000, 70_000, 200_000, MIB + 5]))] * 2),
    ends=ENDS,
)
def test_bytes_are_those_of_io(tmp_path_factory, mode, buffering, halves, ends):
    mounts = [tmp_path_factory.mktemp("bytes") for _ in range(2)]
    halves = [[step for step in half if step[0] not in ("fill", "empty")] for half in halves]
    run_program(mounts, mode, buffering, halves, ends)


@quiet
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    mode=st.sampled_from(["wb", "ab"]),
    halves=st.tuples(*[steps(st.sampled_from([1, 5000, 40_000]))] * 2),
    ends=ENDS,
)
def test_bytes_and_errors_of_a_full_disk_are_those_of_io(tmp_path_factory, mode, halves, ends):
    with small_disks(tmp_path_factory.mktemp("small"), 2) as mounts:
        # io keeps what a flush has not written, but not what a larger write has not written.
        run_program(mounts, mode, MIB, halves, ends)
