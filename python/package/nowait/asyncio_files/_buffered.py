"""The buffers of files that are only read, or only written."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from .._nowait import Handle, Write, pause, spend
from ._file import LARGE, Data, File, Opened, give_way
from ._turn import Turn

#: The size of the first read after a change of the position, and that of the largest read into the
#: buffer, in bytes.
FIRST, LARGEST = 4 << 10, 64 << 10

#: A file that has less is read to its end at once, in bytes.
SMALL = 64 << 10

#: The number of bytes that are divided into lines at once.
LINES = 256 << 10


class Reader(File[Data]):
    """A regular file that is only read. Its buffer has bytes, and its positions are in bytes."""

    _is_whole = False

    # Nothing is buffered that a call at an offset needs.
    fsync = Handle.fsync
    stat = Handle.stat
    read_at = Handle.read_at
    readinto_at = Handle.readinto_at
    read_ranges = Handle.read_ranges
    write_at = Handle.write_at

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

    def _takes(self, buffer: bytes, begin: int, end: int) -> bool:
        """Moves the position from `begin` to `end` in the buffer, without a turn. False if a task has a turn, or another thread
        has used the file since `begin` was looked at.

        CPython changes threads at calls and loops. There is none between the comparison and the assignment.
        """
        if self._turns.holder is None and self._buffer is buffer and self._at == begin:
            self._at = end
            return True
        return False

    def _moves(self, position: int) -> bool:
        """Sets the position without a turn. False if a task has a turn. See `_takes`."""
        buffer = self._buffer
        n = len(buffer)
        if self._turns.holder is not None or self._buffer is not buffer:
            return False
        at = position - self._offset
        if 0 <= at <= n:
            self._at = at
        else:
            self._buffer, self._offset, self._at = b"", position, 0
            self._size = FIRST
        return True

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

    def _flush_now(self) -> None:
        if self._turns.is_taken:
            raise RuntimeError("a call of the file is under way: await it before")

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

    def _small_rest(self) -> bytes | None:
        """The bytes up to the end of the file, and moves the position there. None if they are not cached, or many, or
        if something is buffered or the file is in use."""
        turns, buffer, offset, at = self._turns, self._buffer, self._offset, self._at
        if turns.holder is not None or at < len(buffer):
            return None
        self._check()
        position = offset + at
        rest = self.try_read_at(position, SMALL)
        if rest is None:
            return None
        # If it is not all, the rest of the file follows.
        is_all = len(rest) < SMALL
        kept, begin = (b"", position + len(rest)) if is_all else (rest, position)
        # No call: see `_takes`.
        if turns.holder is None and self._buffer is buffer and self._offset == offset and self._at == at:
            self._buffer, self._offset, self._at = kept, begin, 0
            self._size = FIRST
            if is_all:
                return rest
        return None

    async def close(self) -> None:
        # Nothing is to be written. A close without a wait needs no turn of the task.
        is_idle = self._made is None and not self.closed and self._turns.holder is None
        if is_idle and self.closes_at_once:
            self._release()
            self._turns.report()
        else:
            await super().close()

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

    async def _next_line(self) -> Data:
        """The next line. It is the caller's turn."""
        raise NotImplementedError

    async def _lines(self, hint: int) -> list[Data]:
        """Lines up to the one that makes them longer than `hint`. It is the caller's turn."""
        lines: list[Data] = []
        position = self._position()
        try:
            while hint >= 0 and (line := await self._next_line()):
                lines.append(line)
                hint -= len(line)
            return lines
        except BaseException:
            self._move(position)
            raise

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

    The engine does one write at a time, which goes on if its task is cancelled or its event loop ends. It
    belongs to the file: the next call, in any loop, waits for it, and raises its error.
    """

    def __init__(self, handle: Handle, opened: Opened) -> None:
        super().__init__(handle, opened)
        # The buffer. What is before it is not copied: each has the number of bytes that are written.
        self._pending = bytearray()
        self._before: deque[tuple[bytes, int]] = deque()
        self._limit = opened.buffering if opened.buffering > 1 else LARGEST
        # The write in flight, and its item of `_before`.
        self._write: Write | None = None
        self._writing = (b"", 0)
        # True if the last write has failed: no more is taken than the buffer holds.
        self._has_failed = False
        # The number of bytes that were written or withdrawn.
        self._done = 0

    def _size(self) -> int:
        """The number of bytes that wait to be written."""
        return len(self._pending) + sum(len(data) - begin for data, begin in self._before)

    async def _add(self, data: Any, n: int) -> None:
        """Adds bytes to the buffer, and writes it if it is larger than its limit."""
        self._check()
        if self._has_failed and self._size() >= self._limit:
            await self.flush()
        begin = self._end()
        self._pending += data
        if len(self._pending) > self._limit:
            async with Turn(self._turns):
                await self._flush_added(begin, n)
        elif not spend(n):
            await pause()

    async def _add_pieces(self, pieces: list[bytes]) -> None:
        """Adds much data, and writes it without a copy."""
        self._check()
        if self._has_failed and self._size() >= self._limit:
            await self.flush()
        self._keep()
        begin = self._end()
        self._before.extend((piece, 0) for piece in pieces)
        # Each is freed when it was written, and not all at once.
        pieces.clear()
        n = self._end() - begin
        async with Turn(self._turns):
            await self._flush_added(begin, n)

    def _end(self) -> int:
        """The number of bytes that were accepted so far."""
        data, begin = self._writing
        return self._done + len(data) - begin + self._size()

    async def _flush_added(self, begin: int, n: int) -> None:
        """Writes the buffer after `n` bytes were added to it. It is the caller's turn.

        As in `io`, a call that raises has taken nothing, so that it can be repeated. If a part of the bytes
        was written, the rest stays in the buffer, and the error is raised only if the buffer is too small
        for it.
        """
        try:
            await self._flush()
        except OSError:
            if self._done <= begin:
                self._withdraw(begin - self._done, n)
            elif begin + n - self._done <= self._limit:
                return
            raise

    def _withdraw(self, at: int, n: int) -> None:
        """Removes `n` bytes from the buffer, after the first `at`. No write is in flight, and the calls that
        have added the first ones do not wait any more."""
        self._keep()
        data = b"".join(data[begin:] for data, begin in self._before)
        self._before.clear()
        if len(data) > n:
            self._before.append((data[:at] + data[at + n :], 0))
        self._done += n

    def _keep(self) -> None:
        """Puts the buffer before what comes next."""
        if self._pending:
            self._before.append((bytes(self._pending), 0))
            self._pending.clear()

    def _begin(self) -> Write | None:
        """The write in flight, or a new one. None if there is nothing to write."""
        if self._write is None and (self._before or self._pending):
            if self._made is not None and not self._made.closed:
                # The program may have written to it. The garbage collector may have closed it.
                self._made.flush()
            if not self._before:
                self._keep()
            self._write = Write(self, *self._before[0])
            self._writing = self._before.popleft()
        return self._write

    def _settle(self, write: Write) -> None:
        """Takes the outcome of a write that has ended, unless another call did, and raises its error."""
        if write is not self._write:
            return
        n, error = write.outcome()
        data, begin = self._writing
        self._write, self._writing = None, (b"", 0)
        self._done += n
        self._has_failed = error is not None
        if begin + n < len(data):
            # As in `io`, what was not written stays in the buffer.
            self._before.appendleft((data, begin + n))
        if error is not None:
            raise error

    # Each waits in its own way: a task, or a thread.

    async def _wait(self) -> None:
        """Waits for the write in flight. It is the caller's turn."""
        while (write := self._write) is not None:
            await write.ended()
            self._settle(write)

    def _wait_now(self) -> None:
        while (write := self._write) is not None:
            write.wait()
            self._settle(write)

    async def _flush(self) -> None:
        """Writes the buffer. It is the caller's turn."""
        while (write := self._begin()) is not None:
            await write.ended()
            self._settle(write)

    def _flush_rest(self) -> None:
        while (write := self._begin()) is not None:
            write.wait()
            self._settle(write)

    def _flush_now(self) -> None:
        if self._turns.in_thread:
            raise RuntimeError("a call of the file is under way: await it before")
        self._flush_rest()

    async def _finish(self) -> None:
        failed = None
        try:
            await self._wait()
        except OSError as error:
            # Of an earlier call. The rest may be written nevertheless.
            failed = error
        await self._flush()
        if failed is not None:
            raise failed

    def _finish_now(self) -> None:
        failed = None
        try:
            self._wait_now()
        except OSError as error:
            failed = error
        self._flush_rest()
        if failed is not None:
            raise failed

    async def _prepare(self, name: str) -> None:
        # A read is refused. As in `io`, the buffer stays.
        if not name.startswith(("read", "peek")):
            await self._flush()

    async def _written(self) -> None:
        self._check()
        if self._write is not None or self._before or self._pending:
            await self.flush()

    async def flush(self) -> None:
        async with Turn(self._turns):
            self._check()
            await self._flush()

    async def tell(self) -> int:
        async with Turn(self._turns):
            self._check()
            await self._wait()
            return os.lseek(self.fileno(), 0, os.SEEK_CUR) + self._size()
