"""Files of a FUSE server that does not answer: the event loop goes on."""

import os

import pytest
from helpers import python

STOPPED = """
import asyncio, contextlib, os, signal, sys, time
from nowait import asyncio_files

path, server, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]

async def call(file):
    if what == "read":
        return await file.read_at(0, 1 << 20)
    if what == "all":
        return await file.read()
    opened = await asyncio_files.open(path if what == "open" else descriptor, "ab")
    # It is opened, and closed with the error of close(2).
    with contextlib.suppress(OSError):
        await opened.close()
    return b"bytes"

async def main():
    file = await asyncio_files.open(path, "rb")
    assert await file.read_at(0, 1) == b"b"
    global descriptor
    descriptor = os.open(path, os.O_WRONLY)
    os.kill(server, signal.SIGSTOP)
    # A signal is not there at once.
    while ") T " not in open(f"/proc/{server}/stat").read():
        time.sleep(0.001)
    task = asyncio.ensure_future(call(file))
    for _ in range(50):
        await asyncio.sleep(0.001)
    os.kill(server, signal.SIGCONT)
    assert await task == b"bytes"
    with contextlib.suppress(OSError):
        await file.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("what", ["read", "all", "open", "descriptor"])
def test_the_loop_goes_on_while_the_server_does_not_answer(served, what):
    folder, server = served("--fs", "flush")
    fd = os.open(folder / "file", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"bytes")
    with pytest.raises(OSError):
        os.close(fd)
    # The limit of this process ends an interpreter that waits for the server in its loop.
    done = python(STOPPED, folder / "file", server, what)
    assert done.returncode == 0, done.stderr
