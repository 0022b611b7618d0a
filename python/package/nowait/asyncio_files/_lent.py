"""Files whose descriptor stays the program's: open() with closefd=False."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from ._binary import BinaryFile
from ._file import Data, File
from ._text import TextFile
from ._turn import Turn

T = TypeVar("T")


class Lent(File[Data]):
    """A file whose descriptor the program may close after close().

    All calls are made by threads, and each call waits for its turn, so that none is under way then: the
    engine would continue with what was opened by the same number meanwhile.
    """

    async def _in_order(self, function: Callable[[int], T]) -> T:
        """Calls a function with the descriptor in a thread, after what is buffered was written."""

        def flushed() -> T:
            self._file.flush()
            return function(self.fileno())

        async with Turn(self._turns) as turn:
            self._check()
            return await turn.call(self._opened.executor, flushed)  # type: ignore[no-any-return]

    async def fsync(self) -> None:
        await self._in_order(os.fsync)

    async def stat(self) -> os.stat_result:
        return await self._in_order(os.fstat)

    async def read_at(self, offset: int, n: int) -> bytes:
        return (await self.read_ranges([(offset, n)]))[0]

    async def readinto_at(self, offset: int, buffer: Any) -> int:
        with memoryview(buffer) as view, view.cast("B") as to:
            # A thread does not write into the buffer after a cancellation.
            data = await self.read_at(offset, len(to))
            to[: len(data)] = data
            return len(data)

    async def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        checked = [(_not_negative(offset), _not_negative(n)) for offset, n in ranges]
        return await self._in_order(lambda fd: [_read(fd, *item) for item in checked])

    async def write_at(self, offset: int, data: Any) -> int:
        _not_negative(offset)
        return await self._in_order(partial(_write, offset, bytes(data)))


class LentBinaryFile(Lent[bytes], BinaryFile):
    """A binary file."""


class LentTextFile(Lent[str], TextFile):
    """A text file."""


def _not_negative(n: int) -> int:
    if n < 0:
        raise ValueError("an offset or a length must not be negative")
    return n


def _read(fd: int, offset: int, n: int) -> bytes:
    pieces: list[bytes] = []
    while n > 0 and (piece := os.pread(fd, n, offset)):
        pieces.append(piece)
        offset += len(piece)
        n -= len(piece)
    return b"".join(pieces)


def _write(offset: int, data: bytes, fd: int) -> int:
    done = 0
    with memoryview(data) as view:
        while done < len(view):
            done += os.pwrite(fd, view[done:], offset + done)
    return done
