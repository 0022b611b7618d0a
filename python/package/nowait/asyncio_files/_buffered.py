"""The buffers of files that are only read, or only written."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from .._nowait import Handle
from ._file import Data, File, Opened, give_way

#: The size of the first read after a change of the position, and that of the largest read into the
#: buffer, in bytes.
FIRST, LARGEST = 4 << 10, 64 << 10


class Reader(File[Data]):
    """A regular file that is only read. Its buffer has bytes, and its positions are in bytes."""

    def __init__(self, handle: Handle, opened: Opened) -> None:
        super().__init__(handle, opened)
        # The bytes from `_offset` on. The position is `_at` bytes after it.
        self._buffer = b""
        is_descriptor = isinstance(opened.name, int)
        self._offset = os.lseek(self.fileno(), 0, os.SEEK_CUR) if is_descriptor else 0
        self._at = 0
        # The size of the next read into the buffer.
        self._size = FIRST

    def _position(self) -> int:
        return self._offset + self._at

    def _move(self, position: int) -> None:
        """Sets the position. The buffer stays if it has it."""
        at = position - self._offset
        if 0 <= at <= len(self._buffer):
            self._at = at
        else:
            self._forget(position)

    def _forget(self, position: int) -> None:
        self._buffer, self._offset, self._at = b"", position, 0
        self._size = FIRST

    def _call(self, name: str, *arguments: Any) -> Any:
        self._file.seek(self._position())
        try:
            return super()._call(name, *arguments)
        finally:
            self._forget(self._file.tell())

    def _release(self) -> None:
        self._forget(0)
        super()._release()

    def detach(self) -> Any:
        position = self._position()
        raw = super().detach()
        raw.seek(position)
        return raw

    async def _fill(self) -> bool:
        """Appends the next bytes to the rest of the buffer. Returns false at the end of the file."""
        rest = self._buffer[self._at :]
        # A long line would be copied again and again by reads of the same size.
        more = await self.read_at(self._position() + len(rest), max(self._size, len(rest)))
        self._size = min(2 * self._size, LARGEST)
        self._buffer, self._offset, self._at = rest + more, self._position(), 0
        return bool(more)

    async def _bytes(self, n: int) -> bytes:
        """The next `n` bytes, or those up to the end of the file. It is the caller's turn."""
        have = self._buffer[self._at : self._at + n]
        if len(have) == n:
            await give_way(n)
            self._at += n
            return have
        if n - len(have) < self._size:
            await self._fill()
            have = self._buffer[:n]
            self._at = len(have)
            return have
        data = have + await self.read_at(self._position() + len(have), n - len(have))
        self._forget(self._position() + len(data))
        self._size = LARGEST
        return data

    async def _rest(self) -> bytes:
        """The bytes up to the end of the file, which may grow. It is the caller's turn."""
        rest = self._buffer[self._at :]
        pieces = [rest] if rest else []
        position = self._offset + len(self._buffer)
        size = max(LARGEST, (await self.stat()).st_size - position)
        while piece := await self.read_at(position, size):
            pieces.append(piece)
            position += len(piece)
            size = LARGEST
        self._forget(position)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _line(self, limit: int) -> bytes:
        """The bytes of the next line, at most `limit`. It is the caller's turn."""
        searched = self._at
        while True:
            end = self._buffer.find(b"\n", searched) + 1
            rest = len(self._buffer) - self._at
            if end or 0 <= limit <= rest or not await self._fill():
                break
            searched = rest
        end = end or len(self._buffer)
        if limit >= 0:
            end = min(end, self._at + limit)
        line = self._buffer[self._at : end]
        await give_way(len(line))
        self._at = end
        return line

    async def _lines(self, hint: int) -> list[Data]:
        """Lines up to the one that makes them longer than `hint`."""
        lines: list[Data] = []
        while hint >= 0 and (line := await self.readline()):
            lines.append(line)
            hint -= len(line)
        return lines

    async def _seek(self, offset: int, whence: int) -> int:
        """Sets the position, and returns it. It is the caller's turn."""
        if whence == os.SEEK_SET:
            position = offset
        elif whence == os.SEEK_CUR:
            position = self._position() + offset
        elif whence == os.SEEK_END:
            position = (await self.stat()).st_size + offset
        else:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if position < 0:
            raise OSError(22, os.strerror(22))
        self._move(position)
        return position


class Writer(File[Data]):
    """A regular file that is only written. Its buffer has bytes.

    A write goes on if its task is cancelled, or if asyncio.run() ends: the next one begins after it.
    """

    def __init__(self, handle: Handle, opened: Opened) -> None:
        super().__init__(handle, opened)
        self._pending = bytearray()
        self._limit = opened.buffering if opened.buffering > 1 else LARGEST
        # The write that is under way, with its bytes and the position where it has begun.
        self._writing: asyncio.Future[int] | None = None
        self._written = (b"", 0)
        # True if the last write has failed: no more is taken than the buffer holds.
        self._has_failed = False
        # True if all must be written without another call.
        self._is_closing = False

    async def _add(self, data: Any) -> None:
        """Adds bytes to the buffer, and writes it if it is full."""
        self._check()
        if self._has_failed and len(self._pending) >= self._limit:
            async with self._turn:
                await self._flush()
        self._pending += data
        if len(self._pending) < self._limit:
            await give_way(len(data))
        else:
            async with self._turn:
                await self._flush()

    async def _flush(self) -> None:
        while self._pending or self._writing:
            writing = self._begin()
            try:
                await asyncio.shield(writing)
            finally:
                if writing.done():
                    # The callback may not have been called yet.
                    self._has_written(writing)

    def _begin(self) -> asyncio.Future[int]:
        """The write that is under way, or a new one of the whole buffer."""
        if self._writing is None:
            self._written = bytes(self._pending), os.lseek(self.fileno(), 0, os.SEEK_CUR)
            self._pending.clear()
            self._writing = self.begin_write(self._written[0])
            self._writing.add_done_callback(self._has_written)
        return self._writing

    def _has_written(self, writing: asyncio.Future[int]) -> None:
        if writing is not self._writing:
            return
        self._writing = None
        data, begun = self._written
        self._written = b"", 0
        if writing.cancelled() or self.closed:
            return
        self._has_failed = writing.exception() is not None
        if self._has_failed:
            # As in `io`, what was not written stays in the buffer.
            n = os.lseek(self.fileno(), 0, os.SEEK_CUR) - begun
            self._pending[:0] = data[max(0, n) :]
            if self._is_closing:
                self._release()
        elif self._is_closing:
            if self._pending:
                self._begin()
            else:
                self._release()

    async def _finish(self) -> None:
        try:
            await self._flush()
        except asyncio.CancelledError:
            # It is closed after the last write.
            self._is_closing = True
            if self._pending or self._writing:
                self._begin()
            raise
        except OSError:
            self._release()
            raise

    async def flush(self) -> None:
        async with self._turn:
            self._check()
            await self._flush()

    async def tell(self) -> int:
        async with self._turn:
            self._check()
            if self._writing:
                await asyncio.shield(self._writing)
            return os.lseek(self.fileno(), 0, os.SEEK_CUR) + len(self._pending)

    def _write_rest(self) -> None:
        """Writes the buffer in this thread."""
        view = memoryview(bytes(self._pending))
        self._pending.clear()
        while view:
            view = view[os.write(self.fileno(), view) :]

    def detach(self) -> Any:
        self._check()
        self._write_rest()
        return super().detach()

    def __del__(self) -> None:
        super().__del__()
        if not self.closed:
            self._write_rest()
