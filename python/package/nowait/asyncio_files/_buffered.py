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
            return int(await self._in_thread(self._call, "seek", offset, whence))
        if position < 0:
            raise OSError(22, os.strerror(22))
        self._move(position)
        return position


class Writer(File[Data]):
    """A regular file that is only written. Its buffer has bytes."""

    def __init__(self, handle: Handle, opened: Opened) -> None:
        super().__init__(handle, opened)
        self._pending = bytearray()
        self._limit = opened.buffering if opened.buffering > 1 else LARGEST
        self._writing: asyncio.Future[int] | None = None

    async def _add(self, data: Any) -> None:
        """Adds bytes to the buffer, and writes it if it is full."""
        self._check()
        self._pending += data
        if len(self._pending) < self._limit:
            await give_way(len(data))
        else:
            async with self._turn:
                await self._flush()

    async def _flush(self) -> None:
        # A flush that was cancelled goes on in the engine: its bytes come first.
        await self._written()
        if self._pending:
            data = bytes(self._pending)
            self._pending.clear()
            self._writing = asyncio.ensure_future(self.write_next(data))
            await self._written()

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.shield(self._writing)
            self._writing = None

    async def flush(self) -> None:
        async with self._turn:
            self._check()
            await self._flush()

    async def tell(self) -> int:
        async with self._turn:
            self._check()
            await self._written()
            return os.lseek(self.fileno(), 0, os.SEEK_CUR) + len(self._pending)

    def detach(self) -> Any:
        self._check()
        with open(os.dup(self.fileno()), "wb") as file:
            file.write(self._pending)
        self._pending.clear()
        return super().detach()
