"""nowait.asyncio_files with more data than the loop's thread should copy at once."""

import asyncio
import contextlib
import gc
import io
import os

import pytest
from helpers import evict_file, preempted, python, unless
from nowait import asyncio_files

MIB = 1 << 20
#: More than the limit of one copy, and no multiple of it.
SIZE = 32 * MIB + 12_345


@contextlib.asynccontextmanager
async def turns(least):
    """Checks that other tasks had so many turns meanwhile."""
    count = 0

    async def counts():
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(counts())
    await asyncio.sleep(0)
    before = count
    yield
    seen = count - before
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen >= least, seen


def lines(size, word):
    line = word * 10 + "\n"
    text = line * (size // len(line.encode()))
    return text + "a" * (size - len(text.encode()))


def write(path, data):
    path.write_bytes(data)
    return data


@unless(preempted)
def test_large_cached_reads_leave_the_loop_to_other_tasks(disk):
    path = disk / "file"
    data = write(path, os.urandom(SIZE))

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            # A thread reads.
            async with turns(1):
                assert await file.read_at(3, SIZE) == data[3:]
            async with turns(1):
                assert await file.read(SIZE - 1) == data[:-1]
            assert await file.read() == data[-1:]
            await file.seek(0)
            assert await file.read(10) == data[:10]
            async with turns(1):
                assert await file.read() == data[10:]
            assert await file.read() == b"" and await file.tell() == SIZE
            for begin in [0, SIZE - 2 * MIB, SIZE - 5, SIZE + 1]:
                buffer = bytearray(SIZE)
                async with turns(1 if begin == 0 else 0):
                    n = await file.readinto_at(begin, buffer)
                assert n == max(0, SIZE - begin)
                assert buffer == data[begin:] + bytes(SIZE - n)
            await file.seek(1)
            assert await file.read(10) == data[1:11]
            async with turns(1):
                n = await file.readinto(buffer)
            assert buffer[:n] == data[11:] and n == SIZE - 11
            # The loop's thread reads, in parts of at most 4 MiB.
            ranges = [(begin, 100_000) for begin in range(0, SIZE, 100_000)]
            async with turns(2):
                pieces = await file.read_ranges(ranges)
            assert b"".join(pieces) == data
            ranges = [(0, SIZE), (5, 10), (SIZE - 5, 10), (SIZE, 3), (MIB, SIZE)]
            async with turns(1):
                pieces = await file.read_ranges(ranges)
            assert pieces == [data[begin : begin + n] for begin, n in ranges]

    asyncio.run(main())


def test_large_uncached_reads(make):
    path = make("file", SIZE)
    data = path.read_bytes()

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            evict_file(path)
            assert await file.read_at(0, SIZE) == data
            evict_file(path)
            buffer = bytearray(SIZE)
            assert await file.readinto_at(0, buffer) == SIZE
            assert buffer == data
            evict_file(path)
            ranges = [(begin, 5000) for begin in range(0, SIZE, 5000)]
            assert b"".join(await file.read_ranges(ranges)) == data
            evict_file(path)
            assert await file.read() == data

    asyncio.run(main())


@unless(preempted)
@pytest.mark.parametrize("word", ["hello ", "hé☃lo "])
def test_large_texts_leave_the_loop_to_other_tasks(disk, word):
    path = disk / "file"
    text = lines(SIZE, word)
    data = write(path, text.encode())

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            await file.readline()
            async with turns(4):
                found = await file.readlines()
            assert found == io.BytesIO(data).readlines()[1:]
            assert await file.tell() == len(data)
        async with asyncio_files.open(path) as file:
            assert await file.read(3) == text[:3]
            async with turns(4):
                assert await file.read() == text[3:]
            assert await file.read() == ""
            await file.seek(0)
            assert await file.read(3) == text[:3]
            async with turns(4):
                assert await file.read(len(text) - 5) == text[3:-2]
            assert await file.read() == text[-2:]
            await file.seek(0)
            async with turns(4):
                assert await file.readlines() == text.splitlines(keepends=True)
            assert file.newlines == "\n"

    asyncio.run(main())


@unless(preempted)
@pytest.mark.parametrize("letter", ["a", "é"])
def test_a_long_line_leaves_the_loop_to_other_tasks(disk, letter):
    path = disk / "file"
    long = letter * (SIZE // len(letter.encode()))
    text = f"one\n{long}\ntwo\n{long}"
    data = write(path, text.encode())

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            assert await file.readline() == b"one\n"
            async with turns(2):
                assert await file.readline() == f"{long}\n".encode()
            assert await file.readline() == b"two\n"
            assert await file.readline() == long.encode()
            assert await file.readline() == b""
            await file.seek(4)
            assert await file.readline(SIZE // 2) == data[4 : 4 + SIZE // 2]
            await file.seek(0)
            async with turns(2):
                assert await file.readlines() == io.BytesIO(data).readlines()
        async with asyncio_files.open(path) as file:
            assert await file.readline() == "one\n"
            async with turns(2):
                assert await file.readline() == long + "\n"
            async with turns(2):
                assert await file.readlines() == ["two\n", long]

    asyncio.run(main())


def test_large_texts_that_are_not_valid(disk):
    path = disk / "file"
    text = lines(SIZE, "hé☃lo ")
    data = write(path, text.encode() + b"\n\xff\n")

    async def main():
        async with asyncio_files.open(path) as file:
            for call in [file.read, file.readlines, lambda: file.read(SIZE)]:
                with pytest.raises(UnicodeDecodeError) as caught:
                    await call()
                await file.seek(0)
                if call == file.read:
                    assert caught.value.start == len(data) - 2
        for errors in ["ignore", "replace", "surrogateescape"]:
            wanted = data.decode(errors=errors)
            async with asyncio_files.open(path, errors=errors) as file:
                assert await file.read() == wanted
                await file.seek(0)
                assert "".join(await file.readlines()) == wanted
        # io translates a carriage return, also if it comes late.
        write(path, text.encode() + b"\r\n\r")
        async with asyncio_files.open(path) as file:
            for call in [file.read, file.readlines]:
                assert "".join(await call()) == text + "\n\n"
                await file.seek(0)
        async with asyncio_files.open(path, newline="\n") as file:
            assert "".join(await file.readlines()) == text + "\r\n\r"

    asyncio.run(main())


def test_large_calls_that_are_cancelled_do_not_move_the_position(disk):
    path = disk / "file"
    text = lines(SIZE, "hello ")
    data = write(path, text.encode())

    async def main():
        for mode, all in [("r", text), ("rb", data)]:
            async with asyncio_files.open(path, mode) as file:
                for name, *arguments in [("read", SIZE), ("read",), ("readlines",)]:
                    for pauses in range(6):
                        await file.seek(7)
                        task = asyncio.create_task(getattr(file, name)(*arguments))
                        for _ in range(pauses):
                            await asyncio.sleep(0)
                        task.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            await task
                            continue
                        assert await file.read(20) == all[7:27], (name, pauses)

    asyncio.run(main())


def test_nothing_writes_into_a_large_buffer_after_a_cancellation(disk):
    path = disk / "file"
    write(path, b"a" * SIZE)

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            for pauses in range(30):
                buffer = bytearray(SIZE)
                task = asyncio.create_task(file.readinto_at(0, buffer))
                for _ in range(pauses):
                    await asyncio.sleep(0.0001)
                if not task.done():
                    with pytest.raises(BufferError):
                        buffer.append(1)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                n = buffer.count(b"a")
                await asyncio.sleep(0.001)
                assert buffer.count(b"a") == n
                buffer.clear()

    asyncio.run(main())


@unless(preempted)
def test_large_writes_leave_the_loop_to_other_tasks(disk):
    path = disk / "file"
    data = os.urandom(SIZE)
    numbers = memoryview(bytearray(data[: SIZE // 4 * 4])).cast("I")

    async def main():
        async with asyncio_files.open(path, "wb") as file:
            wanted = b""
            for piece in [b"abc", data, bytearray(data), b"def", memoryview(data), numbers]:
                async with turns(1 if len(piece) > 3 else 0):
                    assert await file.write(piece) == memoryview(piece).nbytes
                wanted += bytes(piece)
                assert await file.tell() == len(wanted)
            with pytest.raises(TypeError):
                await file.write(memoryview(data)[::2])
            await file.writelines([b"x", data, b"y"])
            wanted += b"x" + data + b"y"
        assert path.read_bytes() == wanted
        for letter in ["a", "é", "☃"]:
            text = letter * (3 * MIB + 7)
            async with asyncio_files.open(path, "w", encoding="utf-8") as file:
                await file.write("one")
                async with turns(1):
                    assert await file.write(text) == len(text)
                assert await file.write("two") == 3
            assert path.read_text(encoding="utf-8") == f"one{text}two"
        async with asyncio_files.open(path, "w", encoding="ascii") as file:
            with pytest.raises(UnicodeEncodeError) as caught:
                await file.write("a" * (5 * MIB) + "é")
            assert caught.value.start == 5 * MIB
            await file.write("b")
        assert path.read_bytes() == b"b"
        async with asyncio_files.open(path, "r+b", 0) as file:
            for piece in [data, bytearray(data), numbers]:
                await file.truncate(0)
                async with turns(1):
                    n = await file.write_at(3, piece)
                assert n == memoryview(piece).nbytes
                assert path.read_bytes() == bytes(3) + bytes(piece)

    asyncio.run(main())


def test_large_writes_that_were_cancelled_come_first(disk):
    path = disk / "file"
    data = os.urandom(3 * MIB)

    async def main():
        async with asyncio_files.open(path, "wb") as file:
            for i in range(20):
                await file.write(b"%03d" % i)
                task = asyncio.create_task(file.write(data))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert path.read_bytes() == b"".join(b"%03d" % i + data for i in range(20))


def test_a_large_write_that_fails_is_tried_again(tmp_path):
    """RLIMIT_FSIZE is a disk that is full."""
    code = """if True:
        import asyncio, resource, signal, sys
        from nowait import asyncio_files
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        async def main():
            data = bytes(range(256)) * (5 << 12)
            async with asyncio_files.open(sys.argv[1], "wb") as file:
                resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, -1))
                await file.write(b"abc")
                try:
                    await file.write(data)
                    raise SystemExit("no exception")
                except OSError:
                    pass
                assert await file.tell() == 3 + len(data)
                try:
                    await file.write(data)
                    raise SystemExit("no exception")
                except OSError:
                    pass
                # The second one was not taken.
                assert await file.tell() == 3 + len(data)
                resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
                await file.write(b"def")
            assert open(sys.argv[1], "rb").read() == b"abc" + data + b"def"
        asyncio.run(main())
        print("done")
    """
    done = python(code, tmp_path / "file")
    assert done.stdout == "done\n", done.stderr


def test_the_memory_of_large_reads_is_freed(disk):
    path = disk / "file"
    write(path, bytes(SIZE))

    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def main():
        async with asyncio_files.open(path, "rb") as file:
            for i in range(40):
                task = asyncio.create_task(file.read_at(0, SIZE))
                await asyncio.sleep(0)
                if i % 2:
                    task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                del task

    asyncio.run(main())
    gc.collect()
    before = resident()
    asyncio.run(main())
    gc.collect()
    assert resident() < before + 4 * SIZE
