"""nowait.asyncio_files and its event loop: awaitables, fairness, cancellation, forks, shutdown."""

import asyncio
import collections.abc
import concurrent.futures
import contextlib
import errno
import gc
import os
import random
import subprocess
import sys
import threading
import time
import weakref

import pytest
from helpers import HANG, descriptors, evict_file, python, skip, threads
from nowait import asyncio_files
from nowait._nowait import open_handle

MIB = 1 << 20


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine in a new event loop."""
    if request.param == "asyncio":
        return asyncio.run
    try:
        import uvloop
    except ImportError:
        skip("uvloop is not installed")
    return uvloop.run


def test_an_awaitable_is_a_coroutine(make, run):
    path = make("data", MIB)
    data = path.read_bytes()

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            for cached in [False, True]:
                if not cached:
                    evict_file(path)
                one = file.read_at(1, 100_000)
                assert isinstance(one, collections.abc.Coroutine)
                assert await one == data[1:100_001]
                with pytest.raises(RuntimeError):
                    await one
                assert await asyncio.create_task(file.read_at(5, 6)) == data[5:11]
                assert await asyncio.wait_for(file.read_at(5, 6), HANG) == data[5:11]
                many = [file.read_at(i * 4096, 4096) for i in range(100)]
                assert b"".join(await asyncio.gather(*many)) == data[: 100 * 4096]
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(file.read_at(i, 1)) for i in range(10)]
                assert b"".join(task.result() for task in tasks) == data[:10]

    run(main())


def test_a_read_is_done_when_it_is_awaited(make, run):
    path = make("data", 4096)

    async def main():
        async with asyncio_files.open(path, "r+b", 0) as file:
            read = file.read_at(0, 4)
            write = file.write_at(0, b"abcd")
            await write
            assert await read == b"abcd"
            write = file.write_at(0, b"efgh")
            write.close()
            with pytest.raises(RuntimeError):
                await write
            assert await file.read_at(0, 4) == b"abcd"

    run(main())


def test_the_methods_of_a_coroutine(make):
    path = make("data", 4096, cached=True)
    path.read_bytes()

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            with pytest.raises(StopIteration) as stopped:
                file.read_at(0, 3).send(None)
            assert stopped.value.value == path.read_bytes()[:3]
            with pytest.raises(StopIteration):
                next(file.read_at(0, 3).__await__())
            for thrown in [
                (ValueError("a"),),
                (ValueError, "a"),
                (ValueError, ValueError("a"), None),
            ]:
                read = file.read_at(0, 3)
                with pytest.raises(ValueError, match="^a$"):
                    read.throw(*thrown)
                with pytest.raises(RuntimeError):
                    read.send(None)
            with pytest.raises(KeyError):
                file.read_at(0, 3).throw(KeyError)
            for wrong in [(), (1,), (int,), (1, 2, 3, 4)]:
                with pytest.raises(TypeError):
                    file.read_at(0, 3).throw(*wrong)
            read = file.read_at(0, 3)
            assert read.close() is None and read.close() is None

    asyncio.run(main())


def test_reads_into_a_buffer_and_of_ranges(make, run):
    path = make("data", MIB)
    data = path.read_bytes()

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            for cached in [False, True]:
                if not cached:
                    evict_file(path)
                buffer = bytearray(300_000)
                assert await file.readinto_at(MIB - 200_000, buffer) == 200_000
                assert buffer == data[MIB - 200_000 :] + bytes(100_000)
                if not cached:
                    evict_file(path)
                ranges = [(i * 10_007 % MIB, i) for i in range(200)]
                wanted = [data[begin : begin + n] for begin, n in ranges]
                assert await file.read_ranges(ranges) == wanted
            assert await file.read_ranges([]) == []
            assert await file.readinto_at(0, bytearray()) == 0
            buffer = bytearray(10)
            read = file.readinto_at(0, buffer)
            with pytest.raises(BufferError):
                buffer.clear()
            read.close()
            buffer.clear()
            with pytest.raises(ValueError):
                file.readinto_at(0, b"12")
            with pytest.raises(ValueError):
                file.readinto_at(0, memoryview(bytearray(10))[::2])
            with pytest.raises(TypeError):
                file.readinto_at(0, 1)
            for offset, n in [(-1, 1), (1, -1)]:
                with pytest.raises(ValueError):
                    file.read_at(offset, n)
                with pytest.raises(ValueError):
                    file.read_ranges([(offset, n)])
            for offset, n in [(1 << 64, 1), (1, 1 << 64)]:
                with pytest.raises(OverflowError):
                    file.read_at(offset, n)
            assert await file.read_at((1 << 63) - 1, 0) == b""
            assert await file.read_at(MIB - 5, (1 << 63) - 1) == data[-5:]
            with pytest.raises(OSError):
                await file.write_at(0, b"a")

    run(main())


def test_no_memory_is_an_exception(run):
    async def main():
        # A file that reports no size.
        async with asyncio_files.open("/proc/self/status", "rb") as file:
            with pytest.raises(MemoryError):
                await file.read_at(0, 1 << 60)
            assert b"Name:" in await file.read()

    run(main())


def test_a_timer_fires_beside_hits(make, run):
    path = make("data", MIB, cached=True)
    path.read_bytes()

    async def main():
        async with asyncio_files.open(path, "rb") as file:

            async def positional():
                while True:
                    await file.read_at(0, 4096)

            async def buffered():
                while True:
                    await file.seek(0)
                    await file.read(10)
                    await file.readline()

            async def stat():
                while True:
                    await file.stat()
                    await asyncio_files.stat(path)

            for forever in [positional, buffered, stat]:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(forever(), 0.05)
        async with asyncio_files.open(path.with_name("text"), "w") as file:

            async def write():
                while True:
                    await file.write("a")

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(write(), 0.05)

    run(main())


def test_each_task_has_its_turn(make, run):
    path = make("data", MIB, cached=True)
    path.read_bytes()

    async def main():
        counts = [0] * 200
        async with asyncio_files.open(path, "rb") as file:

            async def reads(number):
                while True:
                    await file.read_at(number * 4096, 4096)
                    counts[number] += 1

            tasks = [asyncio.create_task(reads(i)) for i in range(len(counts))]
            while min(counts) < 3:
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(main())


def test_a_loop_after_one_that_was_stopped_in_the_middle(make):
    path = make("data", MIB, cached=True)
    path.read_bytes()

    async def main(n):
        async with asyncio_files.open(path, "rb") as file:
            for _ in range(n):
                await file.read_at(0, 4096)

    for _ in range(10):
        loop = asyncio.new_event_loop()
        task = loop.create_task(main(10_000))
        loop.call_soon(loop.stop)
        loop.run_forever()
        asyncio.run(main(2000))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()


def test_two_loops_in_two_threads(make, run):
    path = make("data", 8 * MIB)
    data = path.read_bytes()
    failures = []

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            for _ in range(20):
                evict_file(path)
                reads = [file.read_at(i * 65536, 65536) for i in range(128)]
                assert b"".join(await asyncio.gather(*reads)) == data

    def thread():
        try:
            run(main())
        except BaseException as error:
            failures.append(error)

    both = [threading.Thread(target=thread) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert not failures


def test_cancelled_reads(make, run):
    path = make("data", 4 * MIB)

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            for i in range(100):
                evict_file(path)
                buffers = [bytearray(4096) for _ in range(32)]
                tasks = [
                    asyncio.create_task(file.readinto_at(i * 65536, buffer))
                    for i, buffer in enumerate(buffers)
                ]
                for _ in range(i % 4):
                    await asyncio.sleep(0)
                done = {i for i, task in enumerate(tasks) if task.done()}
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for i, buffer in enumerate(buffers):
                    # Nothing writes into the buffer of a read that was cancelled.
                    if i not in done and tasks[i].cancelled():
                        assert not any(buffer)
                    buffer.clear()
            assert await file.read_at(0, 10) == path.read_bytes()[:10]

    run(main())


def test_a_call_after_a_cancelled_one_has_the_next_bytes(make, run):
    path = make("data", 4 * MIB)
    data = path.read_bytes()

    async def main():
        for pauses in range(4):
            evict_file(path)
            async with asyncio_files.open(path, "rb") as file:
                task = asyncio.create_task(file.read(1000))
                for _ in range(pauses):
                    await asyncio.sleep(0)
                task.cancel()
                first = (await asyncio.gather(task, return_exceptions=True))[0]
                begin = 0 if isinstance(first, BaseException) else len(first)
                assert await file.read(5000) == data[begin : begin + 5000]

    run(main())


def test_tasks_share_a_file(make, run):
    path = make("data", 4 * MIB)
    data = path.read_bytes()

    async def main():
        evict_file(path)
        pieces = []
        async with asyncio_files.open(path, "rb") as file:

            async def reads():
                while piece := await file.read(3001):
                    pieces.append(piece)

            await asyncio.gather(*[reads() for _ in range(8)])
        assert sorted(pieces) == sorted(data[i : i + 3001] for i in range(0, len(data), 3001))

    run(main())


def test_a_task_that_is_cancelled_when_its_turn_has_come(make, run):
    path = make("data", 4 * MIB)

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            for _ in range(20):
                evict_file(path)
                await file.seek(0)

                async def reads():
                    await file.read(100_000)
                    # It is the second's turn now, which it does not know yet.
                    second.cancel()

                first = asyncio.create_task(reads())
                second = asyncio.create_task(file.read(100_000))
                third = asyncio.create_task(file.read(100_000))
                await asyncio.wait([first, second, third], timeout=HANG)
                assert first.done() and second.done() and third.done()

    run(main())


def test_writes_that_were_cancelled_come_first(disk, run):
    path = disk / "data"

    async def main():
        async with asyncio_files.open(path, "wb") as file:
            written = 0
            for i in range(50):
                piece = bytes([i]) * 100_000
                task = asyncio.create_task(file.write(piece))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                written += len(piece)
            assert await file.tell() == written

    run(main())
    assert path.read_bytes() == b"".join(bytes([i]) * 100_000 for i in range(50))


def test_a_loop_that_is_closed_with_reads_in_flight(make):
    path = make("data", 16 * MIB)
    before = descriptors()
    threads_before = threads()

    def once():
        async def main():
            file = await asyncio_files.open(path, "rb")
            evict_file(path)
            for i in range(64):
                asyncio.ensure_future(file.read_at(i * 65536, 65536))
            await asyncio.sleep(0)

        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()

    for _ in range(20):
        once()
    gc.collect()
    end = time.monotonic() + HANG
    # The engine of the process keeps some. Its workers end after five seconds without work.
    while (
        descriptors() > before + 8 or threads() > threads_before + 16
    ) and time.monotonic() < end:
        time.sleep(0.01)
    assert descriptors() <= before + 8
    assert threads() <= threads_before + 16


def test_nothing_is_left(make, run):
    path = make("data", MIB)

    async def main(n):
        for i in range(n):
            if i % 100 == 0:
                evict_file(path)
            async with asyncio_files.open(path, "rb") as file:
                file.read_at(0, 1)
                await file.read_at(i * 4096 % MIB, 4096)
                task = asyncio.ensure_future(file.read_at(0, 100))
                task.cancel()
                with pytest.raises(FileNotFoundError):
                    await asyncio_files.stat(path.with_name("none"))
            await asyncio.gather(task, return_exceptions=True)

    run(main(100))
    gc.collect()
    before = descriptors()
    objects = len(gc.get_objects())
    for _ in range(3):
        run(main(300))
    gc.collect()
    assert descriptors() <= before
    assert len(gc.get_objects()) < objects + 1000


def test_cycles_are_collected(disk):
    fifo = disk / "fifo"
    os.mkfifo(fifo)
    (disk / "data").write_bytes(bytes(8 * MIB))

    class Path(os.PathLike):
        def __init__(self, path):
            self.path = str(path)

        def __fspath__(self):
            return self.path

    class Buffer(bytearray):
        pass

    async def main():
        async with asyncio_files.open(disk / "data", "r+b", 0) as file:
            makes = [
                lambda: (it := Path(disk), asyncio_files.stat(it)),
                lambda: (it := Path(disk), asyncio_files.unlink(it)),
                lambda: (it := Path(disk), asyncio_files.rename(it, "a")),
                lambda: (it := Path(disk), asyncio_files.rename("a", it)),
                lambda: (it := Path(fifo), open_handle(it, os.O_RDONLY)),
                lambda: (it := Buffer(10), file.readinto_at(0, it)),
                lambda: (it := Buffer(8 * MIB), file.readinto_at(0, it)),
                lambda: (it := Buffer(8 * MIB), file.write_at(0, it)),
            ]
            for i, make in enumerate(makes):
                # Never awaited, and waiting.
                for begins in [False, True] if i in (4, 6, 7) else [False]:
                    it, awaitable = make()
                    it.awaitable = awaitable
                    if begins:
                        # A thread may have been faster.
                        with contextlib.suppress(StopIteration):
                            assert isinstance(awaitable.send(None), asyncio.Future)
                    is_alive = weakref.ref(it)
                    del it, awaitable
                    gc.collect()
                    assert is_alive() is None, (i, begins)
        # The open() that is under way ends.
        os.close(os.open(fifo, os.O_RDWR))

    asyncio.run(main())


def test_errors_are_those_of_open(disk, run):
    (disk / "directory").mkdir()
    (disk / "file").write_bytes(b"")
    cases = [
        ("none", "r"),
        ("none", "r+b"),
        ("directory", "rb"),
        ("directory", "w"),
        ("file", "x"),
        ("file/a", "r"),
        ("a\0b", "r"),
        ("file", "q"),
        ("file", "rw"),
        ("file", "rb", 0, "utf-8"),
        ("file", "r", 0),
        ("file", "r", -1, "none"),
        ("file", "r", -1, None, None, "x"),
        ("file", "w", -1, "none"),
        ("file", "rb", -1, None, None, None, False),
        (-1, "r"),
        (None, "r"),
        (1.5, "r"),
    ]

    async def main():
        for name, *arguments in cases:
            path = disk / name if isinstance(name, str) else name
            try:
                open(path, *arguments)
            except Exception as error:
                expected = error
            with pytest.raises(type(expected)) as caught:
                await asyncio_files.open(path, *arguments)
            same = ["errno", "strerror", "filename"]
            for field in same if isinstance(expected, OSError) else []:
                assert getattr(caught.value, field) == getattr(expected, field), (name, arguments)

    run(main())
    assert (disk / "file").read_bytes() == b""


def test_other_loops_are_refused():
    try:
        __import__("trio")
    except ImportError:
        skip("trio is not installed")
    code = """if True:
        import trio
        from nowait import asyncio_files
        async def main():
            await asyncio_files.open("/proc/self/exe", "rb")
        trio.run(main)
    """
    done = python(code)
    assert "RuntimeError: nowait.asyncio_files needs a running asyncio event loop" in done.stderr
    with pytest.raises(RuntimeError, match="asyncio"):
        asyncio_files.stat("/").send(None)


def test_a_forked_child_makes_its_own_loop(make):
    path = make("data", MIB)
    code = """if True:
        import asyncio, os, sys
        from nowait import asyncio_files
        path = sys.argv[1]
        def evict():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        async def main(file=None):
            file = file or await asyncio_files.open(path, "rb")
            evict()
            reads = await asyncio.gather(*[file.read_at(i * 4096, 4096) for i in range(256)])
            assert b"".join(reads) == open(path, "rb").read()
            return file
        file = asyncio.run(main())
        for _ in range(5):
            child = os.fork()
            if child == 0:
                asyncio.run(main())
                # A file of the parent has no thread of it.
                asyncio.run(main(file))
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        async def forks():
            file = await asyncio_files.open(path, "rb")
            evict()
            reads = [asyncio.ensure_future(file.read_at(i * 4096, 4096)) for i in range(256)]
            await asyncio.sleep(0)
            child = os.fork()
            if child == 0:
                os._exit(0)
            await asyncio.gather(*reads)
            assert os.waitpid(child, 0)[1] == 0
        asyncio.run(forks())
        print("done")
    """
    done = python(code, path)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("end", ["pass", "os._exit(0)", "raise SystemExit", "sys.exit()"])
def test_the_interpreter_ends_with_reads_in_flight(make, end):
    path = make("data", 16 * MIB)
    code = f"""if True:
        import asyncio, os, sys
        from nowait import asyncio_files
        async def main():
            global file, tasks
            file = await asyncio_files.open(sys.argv[1], "rb")
            tasks = [asyncio.ensure_future(file.read_at(i * 65536, 65536)) for i in range(256)]
            await asyncio.sleep(0)
            {end}
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
    """
    for _ in range(3):
        evict_file(path)
        done = python(code, path)
        assert done.returncode == 0, done.stderr


def test_functions(disk, run):
    path = disk / "a"

    async def main():
        async with asyncio_files.open(path, "w") as file:
            await file.write("abc")
        for follow in [True, False]:
            os.symlink("a", disk / f"link{follow}")
            link = disk / f"link{follow}"
            assert await asyncio_files.stat(link, follow_symlinks=follow) == os.stat(
                link, follow_symlinks=follow
            )
        await asyncio_files.rename(path, disk / "b")
        names = {entry.name for entry in await asyncio_files.scandir(disk)}
        assert names == {"b", "linkTrue", "linkFalse"}
        for given in [disk / "b", str(disk / "b"), os.fsencode(disk / "b")]:
            assert (await asyncio_files.stat(given)).st_size == 3
        await asyncio_files.unlink(disk / "b")
        with pytest.raises(FileNotFoundError) as caught:
            await asyncio_files.unlink(disk / "b")
        assert caught.value.filename == disk / "b"
        with pytest.raises(FileNotFoundError) as caught:
            await asyncio_files.rename(disk / "b", disk / "c")
        assert (caught.value.filename, caught.value.filename2) == (disk / "b", disk / "c")

    run(main())


def test_a_reader_of_two_loops_in_two_threads_returns_each_byte_once(disk):
    path = disk / "file"
    path.write_bytes(random.randbytes(48_000))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(300):
            file = asyncio.run(opened(path))
            start = threading.Barrier(2)

            def pieces(read, found):
                async def main():
                    start.wait()
                    while piece := await read():
                        found.append(piece)

                asyncio.run(main())

            small, large = [], []
            small_pieces = threading.Thread(target=pieces, args=(lambda: file.read1(400), small))
            small_pieces.start()
            pieces(file.read, large)
            small_pieces.join()
            assert sum(map(len, small + large)) == 48_000
            asyncio.run(file.close())
    finally:
        sys.setswitchinterval(interval)


def test_a_child_that_was_forked_while_a_thread_reads_uses_the_file(disk):
    path = disk / "file"
    path.write_text("a line\n" * 20_000)
    code = """if True:
        import asyncio, os, sys, threading
        from nowait import asyncio_files

        sys.setswitchinterval(1e-4)
        file = asyncio.run(asyncio_files.open(sys.argv[1], "rb").__aenter__())
        done = threading.Event()

        async def lines():
            while not done.is_set():
                if not await file.readline():
                    await file.seek(0)

        thread = threading.Thread(target=asyncio.run, args=(lines(),))
        thread.start()
        for _ in range(50):
            child = os.fork()
            if child == 0:
                asyncio.run(file.readline())
                asyncio.run(file.read())
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        done.set()
        thread.join()
        asyncio.run(file.close())
    """
    done = python(code, path)
    assert done.returncode == 0, done.stderr


async def opened(path):
    return await asyncio_files.open(path, "rb")


def test_scandir(disk, run, monkeypatch):
    (disk / "file").write_text("abc")
    (disk / "directory").mkdir()
    (disk / "link").symlink_to("directory")
    monkeypatch.chdir(disk)
    descriptor = os.open(disk, os.O_RDONLY)

    def facts(entry):
        kinds = entry.is_dir(), entry.is_file(), entry.is_symlink()
        stats = entry.stat(), entry.stat(follow_symlinks=False)
        return entry.name, entry.path, entry.inode(), kinds, stats

    async def main():
        for given in [None, str(disk), os.fsencode(disk), disk, descriptor]:
            for stat in [False, True]:
                with os.scandir(given) as theirs, await asyncio_files.scandir(given, stat=stat) as ours:
                    assert set(map(facts, ours)) == set(map(facts, theirs))
        with await asyncio_files.scandir(disk) as entries:
            next(entries)
        assert list(entries) == []
        # The longest path has 4,095 bytes.
        longest = (str(disk) + "/" * 4095)[:4094] + "."
        assert {entry.name for entry in await asyncio_files.scandir(longest)} == set(os.listdir(disk))
        with pytest.raises(OSError) as caught:
            await asyncio_files.scandir(1_000_000)
        assert caught.value.errno == errno.EBADF
        for given, error in [("none", FileNotFoundError), ("file", NotADirectoryError)]:
            with pytest.raises(error) as caught:
                await asyncio_files.scandir(given)
            assert caught.value.filename == given
        with pytest.raises(TypeError):
            await asyncio_files.scandir(1.5)

        # It was listed when it was awaited, and has no descriptor.
        before = len(os.listdir("/proc/self/fd"))
        entries = await asyncio_files.scandir(disk, stat=True)
        assert len(os.listdir("/proc/self/fd")) == before
        (disk / "file").unlink()
        assert {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries}["file"] == 3
        for i in range(3000):
            (disk / f"directory/{i}").touch()
        assert len(list(await asyncio_files.scandir("directory"))) == 3000

    run(main())
    os.close(descriptor)


def test_pipes_and_descriptors(disk, run):
    async def main():
        reader, writer = os.pipe()
        async with asyncio_files.open(reader, "rb") as source:
            async with asyncio_files.open(writer, "wb") as sink:
                await sink.write(b"one\ntwo\n")
            assert await source.readline() == b"one\n"
            assert await source.read() == b"two\n"
            with pytest.raises(OSError):
                await source.read_at(0, 1)
        path = disk / "data"
        path.write_bytes(b"0123456789")
        with open(path, "rb", buffering=0) as file:
            file.seek(3)
            async with asyncio_files.open(file.fileno(), "rb", closefd=False) as same:
                assert await same.read(2) == b"34"
                assert same.fileno() == file.fileno()
            # The position is that of io, which has filled a buffer.
            assert file.tell() == 10

    run(main())


def test_a_full_disk_loses_nothing_that_was_accepted(tmp_path, run):
    if os.geteuid() != 0:
        skip("only root can mount a tmpfs")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=True)
    try:
        (tmp_path / "other").write_bytes(bytes(MIB // 2))

        async def main():
            file = await asyncio_files.open(tmp_path / "file", "wb")
            accepted = 0
            with pytest.raises(OSError) as caught:
                while True:
                    await file.write(b"a" * 10_000)
                    accepted += 10_000
            assert caught.value.errno == errno.ENOSPC
            with pytest.raises(OSError):
                await file.flush()
            os.unlink(tmp_path / "other")
            await file.flush()
            # The call that has failed was in the buffer as well.
            assert await file.tell() - accepted in (0, 10_000)
            await file.write(b"b")
            await file.close()
            assert (tmp_path / "file").stat().st_size - accepted in (1, 10_001)
            # An error of the last write is that of close().
            (tmp_path / "other").write_bytes(bytes(MIB // 2 - 65536))
            file = await asyncio_files.open(tmp_path / "last", "wb", buffering=MIB)
            await file.write(bytes(MIB - 1))
            with pytest.raises(OSError):
                await file.close()
            assert file.closed

        run(main())
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_the_end_of_the_program_loses_no_write(disk, run):
    path = disk / "file"

    async def main():
        begun = asyncio.Event()

        async def writes():
            async with asyncio_files.open(path, "wb") as file:
                await file.write(b"a" * 1000)
                begun.set()
                await file.write(bytes(32 * MIB))

        task = asyncio.create_task(writes())
        await begun.wait()
        return task

    run(main())
    assert path.stat().st_size in (1000, 1000 + 32 * MIB)


def test_a_cancelled_close_writes_all(disk, run):
    path = disk / "file"

    async def main():
        for pauses in range(4):
            file = await asyncio_files.open(path, "wb")
            write = asyncio.create_task(file.write(bytes(8 * MIB)))
            await asyncio.sleep(0)
            write.cancel()
            await file.write(b"tail")
            close = asyncio.create_task(file.close())
            for _ in range(pauses):
                await asyncio.sleep(0)
            close.cancel()
            await asyncio.gather(write, close, return_exceptions=True)
            await file.close()
            assert file.closed and path.stat().st_size == 8 * MIB + 4

    run(main())


def test_a_file_that_is_not_closed_warns_and_is_written(disk, run):
    path = disk / "file"

    async def main():
        file = await asyncio_files.open(path, "w")
        await file.write("hello")
        del file
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed file"):
        run(main())
    assert path.read_text() == "hello"


def test_closing_a_pipe_does_not_block_the_loop(run):
    async def main():
        reader, writer = os.pipe()
        file = await asyncio_files.open(reader, "rb")
        for call in [file.read(10), file.close()]:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call, 0.1)
        os.write(writer, b"0123456789")
        os.close(writer)
        await file.close()
        assert file.closed

    run(main())


def test_cancelled_calls_in_a_thread_keep_their_turn(disk, run):
    path = disk / "file"
    path.write_bytes(b"".join(b"%07d" % i for i in range(10_000)))

    async def main():
        async with asyncio_files.open(path) as file:
            for _ in range(50):
                line = asyncio.create_task(file.readline(700))
                await asyncio.sleep(0)
                line.cancel()
                first, second = await file.read(7), await file.read(7)
                assert int(second or "0") in (int(first or "0") + 1, 0), (first, second)
                await asyncio.gather(line, return_exceptions=True)

    run(main())


def test_a_cancelled_call_that_has_not_begun_is_not_made(disk, run):
    path = disk / "file"
    path.write_bytes(b"0123456789")
    opened = []

    def opener(path, flags):
        opened.append(path)
        return os.open(path, flags)

    async def main():
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            async with asyncio_files.open(path, "r+b", executor=executor) as file:
                goes_on = threading.Event()
                executor.submit(goes_on.wait)
                calls = [
                    file.write(b"abc"),
                    asyncio_files.open(path, opener=opener, executor=executor),
                ]
                for call in calls:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(call, 0.05)
                # It is the next one's turn.
                read = asyncio.create_task(file.read(3))
                await asyncio.sleep(0.05)
                goes_on.set()
                assert await read == b"012"
                executor.submit(goes_on.clear).result()
                executor.submit(goes_on.wait)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(file.close(), 0.05)
                goes_on.set()
        # It was closed nevertheless.
        assert file.closed

    run(main())
    assert path.read_bytes() == b"0123456789" and not opened


def test_an_exception_in_the_loop_wakes_the_other_tasks(make):
    path = make("data", 4 * MIB)
    loop = asyncio.new_event_loop()
    call_soon, interrupts = loop.call_soon, []

    def interrupted(callback, *arguments, **options):
        handle = call_soon(callback, *arguments, **options)
        if interrupts and "wakeup" in repr(callback):
            raise interrupts.pop()
        return handle

    loop.call_soon = interrupted

    async def main():
        file = await asyncio_files.open(path, "rb")
        evict_file(path)
        return file, [asyncio.create_task(file.read_at(i * 40_960, 4096)) for i in range(100)]

    file, tasks = loop.run_until_complete(main())
    interrupts.append(KeyboardInterrupt())
    try:
        loop.run_until_complete(asyncio.wait(tasks, timeout=HANG))
    except KeyboardInterrupt:
        pass
    loop.run_until_complete(asyncio.wait(tasks, timeout=HANG))
    assert all(task.done() for task in tasks)
    loop.run_until_complete(file.close())
    loop.close()


def test_descriptors_of_open_calls_that_fail(disk, run):
    async def main():
        fd = os.open(disk, os.O_RDONLY)
        with pytest.raises(IsADirectoryError):
            await asyncio_files.open(fd, "rb")
        os.close(fd)
        (disk / "file").write_bytes(b"a")
        before = descriptors()

        def opener(path, flags):
            time.sleep(0.1)
            return os.open(path, flags)

        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio_files.open(disk / "file", opener=opener), 0.01)
        with pytest.raises(ValueError, match="opener returned -1"):
            await asyncio_files.open(disk / "file", opener=lambda path, flags: -1)
        async with asyncio_files.open(disk / "file", opener=opener) as file:
            assert not os.get_inheritable(file.fileno())
        while descriptors() > before:
            await asyncio.sleep(0.01)

    # The loop and the executor have descriptors of their own.
    run(asyncio.wait_for(main(), HANG))


def test_a_length_is_that_of_the_file_when_it_is_read(disk, run):
    path = disk / "file"
    path.write_bytes(bytes(70_000))

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            read = file.read_at(0, 200_000)
            with path.open("ab") as more:
                more.write(bytes(130_000))
            assert len(await read) == 200_000

    run(main())
