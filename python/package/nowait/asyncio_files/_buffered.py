"""The buffers of files that are only read, or only written."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Any

from .._nowait import Handle, pause, spend
from ._file import LARGE, Data, File, Opened, give_way

#: The size of the first read after a change of the position, and that of the largest read into the
#: buffer, in bytes.
FIRST, LARGEST = 4 << 10, 64 << 10

#: The number of bytes that are divided into lines at once.
LINES = 256 << 10


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
        if n > LARGE:
            # To join the two would copy all of it.
            have = b""
        data = have + await self.read_at(self._position() + len(have), n - len(have))
        self._forget(self._position() + len(data))
        self._size = LARGEST
        return data

    async def _rest(self) -> bytes:
        """The bytes up to the end of the file, which may grow. The position does not move. It is the
        caller's turn."""
        rest = self._buffer[self._at :]
        begin = self._position()
        more = await self.read_at(begin + len(rest), LARGE)
        if len(more) < LARGE:
            return rest + more
        # To join what was read and what follows would copy all of it.
        size = (await self.stat()).st_size - begin
        pieces, position = [], begin
        while piece := await self.read_at(position, max(size, LARGE)):
            pieces.append(piece)
            position += len(piece)
            size = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _line(self, limit: int) -> bytes:
        """The bytes of the next line, at most `limit`. It is the caller's turn."""
        searched = self._at
        while True:
            end = self._buffer.find(b"\n", searched) + 1
            rest = len(self._buffer) - self._at
            if not end and rest >= LARGE:
                return await self._long_line(rest, limit)
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

    async def _long_line(self, searched: int, limit: int) -> bytes:
        """The bytes of a line whose end is not among the first ones. It is the caller's turn."""
        position = self._position()
        size = searched
        while not 0 <= limit <= size and (piece := await self.read_at(position + size, LARGE)):
            self._check_bytes(piece)
            end = piece.find(b"\n") + 1
            size += end or len(piece)
            if end:
                break
        line = await self.read_at(position, min(size, limit) if limit >= 0 else size)
        self._forget(position + len(line))
        return line

    def _check_bytes(self, data: bytes) -> None:
        """Raises an exception for bytes that a subclass does not read."""

    def _split(self, data: bytes) -> list[Data]:
        """The lines of some bytes."""
        raise NotImplementedError

    async def _line_of(self, line: bytes) -> Data:
        """A line of its bytes."""
        raise NotImplementedError

    async def _all_lines(self, _: int = -1) -> list[Data]:
        """The lines up to the end of the file. It is the caller's turn."""
        lines: list[Data] = []
        position = self._position()
        try:
            is_last = False
            while not is_last:
                rest = self._buffer[self._at :]
                more = await self.read_at(self._position() + len(rest), LINES)
                self._check_bytes(more)
                is_last = len(more) < LINES
                data = rest + more
                end = len(data) if is_last else data.rfind(b"\n") + 1
                lines += self._split(data[:end])
                self._buffer, self._offset, self._at = data, self._position(), end
                if len(data) - end >= LARGE:
                    line = await self._long_line(len(data) - end, -1)
                    lines.append(await self._line_of(line))
            return lines
        except BaseException:
            self._forget(position)
            raise

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
        # The buffer. What is before it is not copied: each has the number of bytes that are written.
        self._pending = bytearray()
        self._before: deque[tuple[bytes, int]] = deque()
        self._limit = opened.buffering if opened.buffering > 1 else LARGEST
        # The write that is under way, with its bytes and the position where it has begun.
        self._writing: asyncio.Future[int] | None = None
        self._written = (b"", 0, 0)
        # True if the last write has failed: no more is taken than the buffer holds.
        self._has_failed = False
        # True if all must be written without another call.
        self._is_closing = False

    def _size(self) -> int:
        """The number of bytes that wait to be written."""
        return len(self._pending) + sum(len(data) - begin for data, begin in self._before)

    async def _add(self, data: Any, n: int) -> None:
        """Adds bytes to the buffer, and writes it if it is full."""
        self._check()
        if self._has_failed and self._size() >= self._limit:
            async with self._turn:
                await self._flush()
        self._pending += data
        if len(self._pending) >= self._limit:
            async with self._turn:
                await self._flush()
        elif not spend(n):
            await pause()

    async def _add_pieces(self, pieces: list[bytes]) -> None:
        """Adds much data, and writes it without a copy."""
        self._check()
        if self._has_failed and self._size() >= self._limit:
            async with self._turn:
                await self._flush()
        self._keep()
        self._before.extend((piece, 0) for piece in pieces)
        # Each is freed when it was written, and not all at once.
        pieces.clear()
        async with self._turn:
            await self._flush()

    def _keep(self) -> None:
        """Puts the buffer before what comes next."""
        if self._pending:
            self._before.append((bytes(self._pending), 0))
            self._pending.clear()

    async def _flush(self) -> None:
        while self._pending or self._before or self._writing:
            writing = self._begin()
            try:
                await asyncio.shield(writing)
            finally:
                if writing.done():
                    # The callback may not have been called yet.
                    self._has_written(writing)

    async def _prepare(self, name: str) -> None:
        # A read is refused. As in `io`, the buffer stays.
        if not name.startswith(("read", "peek")):
            await self._flush()

    def _begin(self) -> asyncio.Future[int]:
        """The write that is under way, or a new one."""
        if self._writing is None:
            if not self._before:
                self._keep()
            position = os.lseek(self.fileno(), 0, os.SEEK_CUR)
            self._writing = self.begin_write(*self._before[0])
            self._written = *self._before.popleft(), position
            self._writing.add_done_callback(self._has_written)
        return self._writing

    def _has_written(self, writing: asyncio.Future[int]) -> None:
        if writing is not self._writing:
            return
        self._writing = None
        data, begin, position = self._written
        self._written = b"", 0, 0
        if writing.cancelled() or self.closed:
            return
        self._has_failed = writing.exception() is not None
        if self._has_failed:
            # As in `io`, what was not written stays in the buffer.
            n = os.lseek(self.fileno(), 0, os.SEEK_CUR) - position
            self._before.appendleft((data, begin + max(0, n)))
            if self._is_closing:
                self._release()
        elif self._is_closing:
            if self._pending or self._before:
                self._begin()
            else:
                self._release()

    async def _finish(self) -> None:
        try:
            await self._flush()
        except asyncio.CancelledError:
            # It is closed after the last write.
            self._is_closing = True
            if self._pending or self._before or self._writing:
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
            return os.lseek(self.fileno(), 0, os.SEEK_CUR) + self._size()

    def _write_rest(self) -> None:
        """Writes the buffer in this thread."""
        self._keep()
        while self._before:
            data, begin = self._before.popleft()
            with memoryview(data) as view:
                while begin < len(view):
                    begin += os.write(self.fileno(), view[begin:])

    def detach(self) -> Any:
        self._check()
        self._write_rest()
        return super().detach()

    def __del__(self) -> None:
        super().__del__()
        if not self.closed:
            self._write_rest()
