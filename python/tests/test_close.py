"""Errors of close(2): files of a FUSE directory return EDQUOT when they are closed."""

import errno
import os

import pytest
from helpers import python

from nowait import asyncio_files

#: The mode and the further arguments of open().
OPENED = [
    *[(mode,) for mode in ["r", "w", "a", "x", "r+", "w+", "a+", "x+"]],
    *[(mode,) for mode in ["rb", "wb", "ab", "xb", "r+b", "w+b", "a+b", "x+b"]],
    # A file object of `io` reads and writes these.
    *[("rb", 0), ("wb", 0), ("r", -1, "utf-16-le"), ("w", -1, "utf-16-le"), ("w", 1)],
]


@pytest.fixture
def path(full_at_close):
    """A file with bytes."""
    fd = os.open(full_at_close / "file", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"bytes")
    with pytest.raises(OSError):
        os.close(fd)
    return full_at_close / "file"


async def refused(awaitable):
    with pytest.raises(OSError) as raised:
        await awaitable
    assert raised.value.errno == errno.EDQUOT


def is_open(path):
    """True if this process has a descriptor for a file."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return str(path) in [os.readlink(link) for link in links if os.path.lexists(link)]


async def use(file):
    """Reads or writes a file, so that it is as used files are."""
    if file.mode.startswith("r"):
        await file.read(2)
    else:
        await file.write(b"abc" if "b" in file.mode else "abc")


@pytest.mark.parametrize("opened", OPENED, ids=str)
async def test_close_raises_and_the_file_is_closed(path, opened):
    new = path.with_name("new") if "x" in opened[0] else path
    for is_used in [False, True]:
        file = await asyncio_files.open(new, *opened)
        if is_used:
            await use(file)
        await refused(file.close())
        assert file.closed and not is_open(new)
        # A second call has no effect, as in `io`.
        await file.close()

        async def within():
            async with asyncio_files.open(new, *opened) as file:
                await use(file)

        if "x" in opened[0]:
            new.unlink()
        await refused(within())
        assert not is_open(new)
        if "x" in opened[0]:
            new.unlink()


async def test_close_raises_while_an_operation_uses_the_descriptor(path):
    file = await asyncio_files.open(path, "rb")
    sync = file.fsync()
    # The awaitable has the file until it ends.
    await refused(file.close())
    assert is_open(path)
    await sync
    del sync
    assert not is_open(path)


async def test_detach_closes_nothing(path):
    for mode in ["rb", "wb", "r+b"]:
        file = await asyncio_files.open(path, mode)
        await use(file)
        raw = file.detach()
        assert file.closed and is_open(path)
        with pytest.raises(OSError) as raised:
            raw.close()
        assert raised.value.errno == errno.EDQUOT
        assert not is_open(path)


@pytest.mark.parametrize("mode", ["rb", "wb", "r+b"])
def test_a_server_that_does_not_answer_does_not_stop_the_loop(served, mode):
    directory, server = served("--fs", "flush")
    with pytest.raises(OSError):
        (directory / "file").write_bytes(b"bytes")
    code = """if True:
        import asyncio, os, signal, sys, threading
        from nowait import asyncio_files
        path, server, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]

        async def main():
            file = await asyncio_files.open(path, mode)
            os.kill(server, signal.SIGSTOP)
            while ") T " not in open(f"/proc/{server}/stat").read():
                pass
            closing = asyncio.create_task(file.close())
            try:
                for _ in range(100):
                    await asyncio.sleep(0)
                assert not closing.done()
            finally:
                os.kill(server, signal.SIGCONT)
            try:
                await closing
            except OSError as error:
                print(error.errno)

        again = threading.Timer(300, os.kill, [server, signal.SIGCONT])
        again.start()
        asyncio.run(main())
        again.cancel()
    """
    done = python(code, directory / "file", server, mode)
    assert (done.returncode, done.stdout) == (0, f"{errno.EDQUOT}\n"), done.stderr
