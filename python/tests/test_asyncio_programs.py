"""Random programs of writes: the bytes and the errors of asyncio files beside those of io, with calls that are
cancelled, loops that end, full disks and other writers."""

import asyncio
import contextlib
import errno
import gc
import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nowait import asyncio_files
from writing import (
    ENOSPC,
    KIB,
    MIB,
    awaited,
    empty,
    fill,
    letters,
    loop_that_ends,
    outcome,
    quiet,
    small_disks,
    unraisable,
)


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
