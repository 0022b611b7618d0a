"""Binary files."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import Any

from .._nowait import spend
from ._buffered import Reader, Writer
from ._file import LARGE, LARGEST_OFFSET, File, give_way
from ._turn import Turn


class BinaryFile(File[bytes]):
    """A binary file with the interface of aiofiles: the methods of `io` as coroutines."""

    @property
    def mode(self) -> str:
        mode = str(self._file.mode)
        return mode.replace("w", "x") if "x" in self._opened.mode else mode

    @property
    def raw(self) -> Any:
        """The unbuffered file object of `io`."""
        return self._file.raw

    async def read1(self, n: int = -1, /) -> bytes:
        """Read at most `n` bytes, with at most one read of the file."""
        return await self._delegate("read1", n)  # type: ignore[no-any-return]

    async def readall(self) -> bytes:
        """Read up to the end of the file."""
        return await self.read()

    async def peek(self, n: int = 0, /) -> bytes:
        """Return bytes of the buffer, which is filled if it is empty. The position does not move."""
        return await self._delegate("peek", n)  # type: ignore[no-any-return]

    async def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer. Return the number of bytes."""
        return int(await self._delegate("readinto", buffer))

    async def readinto1(self, buffer: Any, /) -> int:
        """Read into a buffer, with at most one read of the file. Return the number of bytes."""
        return int(await self._delegate("readinto1", buffer))

    async def write(self, data: Any, /) -> int:
        """Write bytes. Return their number."""
        return int(await self._delegate("write", data))

    async def writelines(self, lines: Iterable[Any], /) -> None:
        """Write each item of an iterable."""
        await self._delegate("writelines", lines)


class BinaryReader(Reader[bytes], BinaryFile):
    """A regular binary file that is only read."""

    async def read(self, n: int | None = -1, /) -> bytes:
        if n is not None and type(n) is not int:
            return await super().read(n)
        if n and n > 0:
            buffer, begin = self._buffer, self._at
            end = begin + n
            if end <= len(buffer) and spend(n) and self._takes(buffer, begin, end):
                return buffer[begin:end]
        elif n is None or n == -1:
            rest = self._small_rest()
            if rest is not None:
                return rest
        async with Turn(self._turns):
            self._check()
            if n is None or n == -1:
                data = await self._rest()
                self._forget(self._position() + len(data))
                return data
            if n < 0:
                raise ValueError("read length must be non-negative or -1")
            return await self._bytes(n)

    async def read1(self, n: int = -1, /) -> bytes:
        if type(n) is not int:
            return await super().read1(n)
        async with Turn(self._turns):
            self._check()
            if self._at == len(self._buffer):
                await self._fill()
            rest = len(self._buffer) - self._at
            return await self._bytes(rest if n < 0 else min(n, rest))

    async def peek(self, n: int = 0, /) -> bytes:
        if type(n) is not int:
            return await super().peek(n)
        async with Turn(self._turns):
            self._check()
            if self._at == len(self._buffer):
                await self._fill()
            await give_way(0)
            return self._buffer[self._at :]

    async def readinto(self, buffer: Any, /) -> int:
        with memoryview(buffer) as view, view.cast("B") as to:
            async with Turn(self._turns):
                self._check()
                have = self._buffer[self._at : self._at + len(to)]
                to[: len(have)] = have
                n = len(have)
                if n < len(to):
                    n += await self.readinto_at(self._position() + n, to[n:])
                else:
                    await give_way(n)
                self._move(self._position() + n)
                return n

    async def readinto1(self, buffer: Any, /) -> int:
        return await self.readinto(buffer)

    async def readline(self, limit: int | None = -1, /) -> bytes:
        if limit is not None and type(limit) is not int:
            return await super().readline(limit)
        if limit is None or limit < 0:
            buffer, begin = self._buffer, self._at
            end = buffer.find(b"\n", begin) + 1
            if end and spend(end - begin) and self._takes(buffer, begin, end):
                return buffer[begin:end]
        async with Turn(self._turns):
            self._check()
            return await self._line(-1 if limit is None else limit)

    async def readlines(self, hint: int | None = -1, /) -> list[bytes]:
        if hint is not None and type(hint) is not int:
            return await super().readlines(hint)
        async with Turn(self._turns):
            self._check()
            if hint is not None and hint > 0:
                return await self._lines(hint)
            return await self._all_lines()

    async def _next_line(self) -> bytes:
        return await self._line(-1)

    def _split(self, data: bytes) -> list[bytes]:
        return io.BytesIO(data).readlines()

    async def _line_of(self, line: bytes) -> bytes:
        return line

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        wrong = type(offset) is not int or not abs(offset) <= LARGEST_OFFSET
        if wrong or whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            return await super().seek(offset, whence)
        if whence == os.SEEK_SET and offset >= 0:
            self._check()
            if self._moves(offset):
                return offset
        async with Turn(self._turns):
            self._check()
            return await self._seek(offset, whence)

    async def tell(self) -> int:
        self._check()
        return self._position()


class BinaryWriter(Writer[bytes], BinaryFile):
    """A regular binary file that is only written."""

    @property
    def raw(self) -> Any:
        # Its writes follow those that were accepted.
        self._flush_now()
        return super().raw

    async def write(self, data: Any, /) -> int:
        if type(data) is bytes:
            n = len(data)
            await (self._add(data, n) if n <= LARGE else self._add_pieces([data]))
            return n
        with memoryview(data) as view:
            n = view.nbytes
            if n <= LARGE or not view.c_contiguous:
                await self._add(view, n)
                return n
            pieces = []
            with view.cast("B") as all_bytes:
                for begin in range(0, n, LARGE):
                    await give_way(LARGE)
                    pieces.append(bytes(all_bytes[begin : begin + LARGE]))
        await self._add_pieces(pieces)
        return n

    async def writelines(self, lines: Iterable[Any], /) -> None:
        self._check()
        for line in lines:
            await self.write(line)
