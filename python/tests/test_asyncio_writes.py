"""Bytes, order and errors of asyncio files that are written."""

import asyncio
import contextlib
import errno
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import HANG, evict_file, python
from nowait import asyncio_files
from writing import (
    ENOSPC,
    KIB,
    MIB,
    awaited,
    empty,
    fill,
    loop_that_ends,
    outcome,
    quiet,
    small_disks,
    unraisable,
)


@pytest.fixture
def small(tmp_path):
    with small_disks(tmp_path, 1) as mounts:
        yield mounts[0]


async def write_begins(file, data):
    """A task of a write that has begun."""
    task = asyncio.create_task(file.write(data))
    await asyncio.sleep(0)
    return task


async def suspended(path, data):
    """A file with a write that is under way, and its coroutine, which no task continues."""
    while True:
        file = await asyncio_files.open(path, "wb")
        write = file.write(data)
        try:
            write.send(None)
            return file, write
        except OSError:
            # The engine was faster.
            with contextlib.suppress(OSError):
                await file.close()


def left(path, data):
    """A file whose loop has ended while a write was under way, and what must stay alive with it."""
    with loop_that_ends() as loop:
        return loop.run_until_complete(suspended(path, data))


def test_what_is_written_without_the_loop_follows_the_write_that_is_under_way(tmp_path):
    path = tmp_path / "file"
    data = b"A" * 300_000

    async def detaches():
        for _ in range(50):
            file = await asyncio_files.open(path, "wb")
            task = await write_begins(file, data)
            await file.write(b"B" * 10)
            raw = file.detach()
            assert await task == len(data)
            raw.write(b"C")
            raw.close()
            assert path.read_bytes() == data + b"B" * 10 + b"C"

    asyncio.run(detaches())

    async def raw_writes():
        async with asyncio_files.open(path, "wb") as file:
            task = await write_begins(file, data)
            await file.write(b"B" * 10)
            file.raw.write(b"C")
            await file.write(b"D")
            await task
        assert path.read_bytes() == data + b"B" * 10 + b"CD"
        async with asyncio_files.open(path, "w") as text:
            await text.write("A")
            text.buffer.write(b"B")
            await text.write("C")
        assert path.read_bytes() == b"ABC"

    asyncio.run(raw_writes())


@quiet
def test_a_file_that_is_collected_after_its_loop_is_written_in_order(tmp_path):
    path = tmp_path / "file"

    async def main(files):
        files.append(await asyncio_files.open(path, "wb"))
        await write_begins(files[0], b"A" * 300_000)
        await files[0].write(b"B" * 10)

    for _ in range(50):
        files: list = []
        with loop_that_ends() as loop:
            loop.run_until_complete(main(files))
        files.clear()
        gc.collect()
        assert path.read_bytes() == b"A" * 300_000 + b"B" * 10


def test_a_call_in_a_thread_keeps_the_file(tmp_path):
    reader, writer = os.pipe()

    async def main():
        file = await asyncio_files.open(reader, "rb")
        read = asyncio.create_task(file.read(3))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="under way"):
            file.detach()
        os.write(writer, b"abc")
        os.close(writer)
        assert await read == b"abc"
        file.detach().close()

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b", "w+b", "w", "r+"])
def test_calls_without_a_position_see_what_was_written(tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(b"")
    text = "b" not in mode

    def data(letters):
        return letters if text else letters.encode()

    async def main():
        async with asyncio_files.open(path, mode) as file:
            await file.write(data("commit record"))
            await file.fsync()
            assert path.read_bytes() == b"commit record"
            await file.write(data(", more"))
            assert (await file.stat()).st_size == 19
            big = asyncio.create_task(file.write(data("x" * 2_000_000)))
            await asyncio.sleep(0.01)
            big.cancel()
            await asyncio.gather(big, return_exceptions=True)
            await file.fsync()
            whole = await file.tell()
            assert path.stat().st_size == whole
            await file.write(data("end"))
            if "+" in mode:
                assert await file.read_at(whole, 10) == b"end"
                buffer = bytearray(3)
                await file.write(data("1"))
                assert await file.readinto_at(whole + 1, buffer) == 3 and buffer == b"nd1"
                await file.write(data("2"))
                assert await file.read_ranges([(whole + 4, 1)]) == [b"2"]
            await file.seek(0)
            await file.write(data("COMMIT"))
            if mode != "ab":
                # Linux appends what is written at an offset to a file that is opened for appending.
                await file.write_at(3, b"xyz")
                await file.flush()
                assert path.read_bytes()[:7] == b"COMxyz "
            if mode == "r+b":
                await file.seek(0)
                assert await file.read(1) == b"C"
                await file.write_at(1, b"123")
                assert await file.read(3) == b"123"

    asyncio.run(main())


def test_an_appending_file_goes_on_where_its_write_has_failed(small):
    """Another writer has moved the end of the file meanwhile."""
    path = small / "file"
    data = b"".join(i.to_bytes(4, "little") for i in range(60_000))

    async def main():
        file = await asyncio_files.open(path, "ab")
        await file.write(b"a")
        await file.flush()
        with open(path, "ab") as other:
            other.write(b"x" * 100_000)
        fill(small, 90_000)
        with pytest.raises(OSError):
            await file.write(data)
        empty(small)
        await file.flush()
        await file.close()

    asyncio.run(main())
    assert path.read_bytes() == b"a" + b"x" * 100_000 + data


CALLS = [("flush",), ("tell",), ("fsync",), ("stat",), ("seek", 0), ("truncate",), ("detach",)]
CALLS += [("write", b"B" * 100_000), ("write_at", 0, b"B"), ("close",)]


@quiet
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
@pytest.mark.parametrize("loop_ends", [False, True])
def test_the_error_of_a_write_is_that_of_the_next_call_in_any_loop(small, call, loop_ends):
    path = small / "file"
    data = b"".join(i.to_bytes(4, "little") for i in range(50_000))
    name, *arguments = call

    async def cancelled():
        file, write = await suspended(path, data)
        with pytest.raises(asyncio.CancelledError):
            write.throw(asyncio.CancelledError)
        return file, write

    async def next_call(file):
        result = getattr(file, name)(*arguments)
        return result if name == "detach" else await result

    fill(small, 50_000)
    file, write = left(path, data) if loop_ends else asyncio.run(cancelled())
    with pytest.raises(OSError) as caught:
        asyncio.run(next_call(file))
    assert caught.value.errno == errno.ENOSPC
    empty(small)
    if name == "close":
        assert file.closed
        asyncio.run(file.close())
        # No byte follows the gap.
        assert data.startswith(path.read_bytes())
        return
    # The error is raised once.
    asyncio.run(file.flush())
    asyncio.run(file.close())
    assert path.read_bytes().startswith(data)
    write.close()


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("mode", ["wb", "ab", "w"])
@pytest.mark.parametrize("size", [1000, 30_000, 70_000, 2 * MIB])
async def test_a_write_that_raises_and_has_written_nothing_can_be_repeated(
    small, size, mode, at_once
):
    """It has taken nothing, as in `io`."""
    room = 100_000 if size < MIB else 0
    fill(small, room)
    letter = [chr(65 + i) * size for i in range(1 if size > MIB else 240_000 // size)]
    failures = 0

    async def write(file, data):
        nonlocal failures
        try:
            await file.write(data)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            failures += 1
            if size > MIB:
                # The disk is too small.
                return
            empty(small)
            await file.write(data)

    async with asyncio_files.open(small / "file", mode) as file:
        data = letter if mode == "w" else [text.encode() for text in letter]
        for begin in range(0, len(data), at_once):
            await asyncio.gather(*[write(file, it) for it in data[begin : begin + at_once]])
    assert failures
    written = (small / "file").read_text()
    if size > MIB:
        assert written == ""
    elif at_once == 1:
        assert written == "".join(letter)
    else:
        # Calls at the same time are repeated in any order.
        assert len(written) == size * len(letter)
        assert all(written.count(text[0]) == size for text in letter)


@quiet
def test_a_destructor_reports_the_error_that_no_call_has_raised(small):
    # Files of other tests.
    gc.collect()
    path = small / "file"
    data = b"A" * 200_000

    def run():
        file, write = left(path, data)
        asyncio.run(file.write(b"B" * 10))
        write.close()
        return [file]

    fill(small, 50_000)
    files = run()
    with unraisable() as errors, pytest.warns(ResourceWarning):
        files.clear()
        gc.collect()
    assert [error.errno for error in errors] == [errno.ENOSPC]
    assert data.startswith(path.read_bytes())
    # With room for the rest, all is written, and the error is reported nevertheless.
    empty(small)
    path.unlink()
    fill(small, 50_000)
    files = run()
    files[0]._write.wait()
    empty(small)
    with unraisable() as errors, pytest.warns(ResourceWarning):
        files.clear()
        gc.collect()
    assert [error.errno for error in errors] == [errno.ENOSPC]
    assert path.read_bytes() == data + b"B" * 10


@pytest.mark.parametrize("buffering", [0, -1])
def test_the_error_of_a_call_that_was_cancelled_in_its_thread_is_that_of_the_next(small, buffering):
    path = small / "file"
    path.write_bytes(b"")
    fill(small, 0)

    async def main():
        async with asyncio_files.open(path, "r+b", buffering) as file:
            begins, goes_on = threading.Event(), threading.Event()
            write = file._file.write

            class Slow:
                def write(self, data):
                    begins.set()
                    goes_on.wait()
                    return write(data)

                def __getattr__(self, name):
                    return getattr(whole, name)

            whole, file._made = file._file, Slow()
            task = asyncio.create_task(file.write(b"a" * MIB))
            await asyncio.get_running_loop().run_in_executor(None, begins.wait)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            goes_on.set()
            with pytest.raises(OSError) as caught:
                await file.tell()
            assert caught.value.errno == errno.ENOSPC
            assert await file.tell() == 0

    asyncio.run(main())


@quiet
@pytest.mark.parametrize("mode", ["wb", "r+b", "rb"])
def test_a_file_whose_loop_was_closed_in_the_middle_of_a_call_is_usable(tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(b"")
    goes_on = threading.Event()

    async def begins(executor):
        file = await asyncio_files.open(path, mode, executor=executor)
        # A call in a thread of the program, which the end of the loop does not wait for.
        executor.submit(goes_on.wait)
        waits = asyncio.create_task(file.truncate(3) if mode != "rb" else file.readline(5))
        others = [asyncio.create_task(file.tell()) for _ in range(3)]
        await asyncio.sleep(0.01)
        return file, waits, others

    with ThreadPoolExecutor(1) as executor:
        with loop_that_ends() as loop:
            file, *tasks = loop.run_until_complete(begins(executor))
        threading.Timer(0.05, goes_on.set).start()

        async def second():
            assert await file.seek(2) == 2
            assert await file.tell() == 2
            await file.close()

        asyncio.run(asyncio.wait_for(second(), HANG))
    del tasks
    gc.collect()
    assert path.stat().st_size == (0 if mode == "rb" else 3)


def test_a_file_of_a_loop_that_has_stopped(make):
    path = make("data", 8 * MIB)

    async def begins(mode, call):
        file = await asyncio_files.open(path, mode)
        if mode == "rb":
            evict_file(path)
        return file, asyncio.create_task(call(file))

    def stopped(mode, call):
        loop = asyncio.new_event_loop()

        async def main():
            file, task = await begins(mode, call)
            await asyncio.sleep(0)
            return file, task

        return loop, *loop.run_until_complete(main())

    loop, file, task = stopped("r+b", lambda file: file.write(b"a" * MIB))
    asyncio.run(file.flush())
    assert loop.run_until_complete(task) == MIB
    loop.run_until_complete(file.close())
    loop.close()
    loop, file, task = stopped("rb", lambda file: file.read(4 * MIB))
    if not task.done():
        # Its position is known when the first loop continues.
        with pytest.raises(RuntimeError, match="stopped"):
            asyncio.run(file.read(1))
    assert len(loop.run_until_complete(task)) == 4 * MIB
    loop.run_until_complete(file.close())
    loop.close()


def test_a_forked_child_does_not_wait_for_the_writes_of_its_parent(tmp_path):
    code = """if True:
        import asyncio, os, sys, warnings
        from nowait import asyncio_files
        warnings.simplefilter("ignore")
        path = sys.argv[1]
        data = b"A" * (64 << 20)
        async def main():
            file = await asyncio_files.open(path, "wb")
            task = asyncio.create_task(file.write(data))
            await asyncio.sleep(0)
            child = os.fork()
            if child == 0:
                asyncio._set_running_loop(None)
                asyncio.run(file.close())
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            await task
            await file.write(b"B")
            await file.close()
        asyncio.run(main())
        assert open(path, "rb").read() == data + b"B"
        print("done")
    """
    done = python(code, tmp_path / "file")
    assert done.stdout == "done\n", done.stderr


def test_close_on_a_full_disk_is_that_of_io(small):
    results = []
    for opens in [open, asyncio_files.open]:
        path = small / "file"
        fill(small, 8 * KIB)

        async def main():
            if opens is open:
                file = open(path, "wb", MIB)
                file.write(b"a" * 50_000)
                found = [outcome(file.close), file.closed]
                empty(small)
                return [*found, outcome(file.close)]
            file = await asyncio_files.open(path, "wb", MIB)
            await file.write(b"a" * 50_000)
            found = [await awaited(file.close), file.closed]
            empty(small)
            return [*found, await awaited(file.close)]

        results.append([*asyncio.run(main()), path.stat().st_size])
        path.unlink()
    assert results[0] == results[1] and results[0][:3] == [ENOSPC, True, None]


def test_readlines_that_are_cancelled_do_not_move_the_position(make):
    path = make("data", 0)
    path.write_text("".join(f"line {i}\n" for i in range(40_000)))

    async def main(mode):
        cancelled = 0
        async with asyncio_files.open(path, mode) as file:
            for pauses in range(1, 20):
                await file.seek(0)
                os.fsync(file.fileno())
                evict_file(path)
                task = asyncio.create_task(file.readlines(200_000))
                for _ in range(pauses):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                    continue
                cancelled += 1
                line = await file.readline()
                assert line in ("line 0\n", b"line 0\n"), pauses
        assert cancelled

    for mode in ["r", "rb"]:
        asyncio.run(main(mode))
