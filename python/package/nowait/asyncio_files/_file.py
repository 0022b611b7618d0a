"""The parts that all files share."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import warnings
from collections.abc import Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar

from .._nowait import Handle, pause, spend
from ._turn import Turn, Turns

Data = TypeVar("Data", str, bytes)

#: The number of bytes or characters that the loop's thread copies, decodes or encodes at once. So many
#: take up to a millisecond.
LARGE = 1 << 20

#: The largest offset of a file. In larger positions of a text, `io` has more than a number of bytes.
LARGEST_OFFSET = (1 << 63) - 1


class Opened(NamedTuple):
    """The arguments of open() that a file remembers."""

    name: Any
    mode: str
    buffering: int
    encoding: str | None
    errors: str | None
    newline: str | None
    closefd: bool
    executor: Executor | None

    @property
    def is_binary(self) -> bool:
        return "b" in self.mode

    def io(self, descriptor: int, *, closefd: bool) -> Any:
        """The file object of `io` for an open descriptor. It neither creates nor truncates."""
        mode = self.mode.replace("x", "w")
        text = self.encoding, self.errors, self.newline
        # A file object for appending begins at the end.
        position = _position(descriptor) if "a" in mode else None
        file = io.open(descriptor, mode, self.buffering, *text, closefd=closefd)
        if position is not None:
            os.lseek(descriptor, position, os.SEEK_SET)
        # It is the last of the file objects that lie upon each other.
        raw: Any = getattr(file, "buffer", file)
        getattr(raw, "raw", raw).name = self.name
        return file


def _position(descriptor: int) -> int | None:
    """The position of a file that has one."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return None


class File(Handle, Generic[Data]):
    """An open file. It is the base of `BinaryFile` and `TextFile`.

    `read_at`, `readinto_at`, `read_ranges` and `write_at` take an offset, and neither use nor move the
    file's position. Calls that have no other form go to a file object of `io` with the same
    descriptor, in a thread of the executor.

    `fileno`, and what is done with the descriptor, does not wait for what is buffered or under way: await
    flush() before.
    """

    #: False if a subclass changes its buffer in several steps with awaits between them.
    _is_whole = True

    def __new__(cls, handle: Handle, opened: Opened) -> Self:
        return super().__new__(cls, handle)

    def __init__(self, handle: Handle, opened: Opened) -> None:
        self._opened = opened
        # A call without a wait is not interrupted, and needs no turn.
        self._turns = Turns(is_whole=self._is_whole)
        self._made: Any = None
        # True if the file object of `io` may have bytes that are not written.
        self._is_dirty = False
        self._is_detached = False
        self._is_closing = False

    @property
    def _file(self) -> Any:
        """The file object of `io`."""
        if self._made is None:
            self._made = self._opened.io(self.fileno(), closefd=False)
        return self._made

    async def _delegate(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the file object of `io` in a thread."""
        async with Turn(self._turns) as turn:
            self._check()
            await self._prepare(name)
            self._check()
            return await self._in_thread(turn, name, *arguments)

    async def _in_thread(self, turn: Turn, name: str, *arguments: Any) -> Any:
        """The same, in the caller's turn."""
        self._is_dirty = self._is_dirty or name in ("write", "writelines")
        return await turn.call(self._opened.executor, partial(self._call, name, *arguments))

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._file, name)(*arguments)

    async def _prepare(self, name: str) -> None:
        """Called before a method of the file object of `io`. It is the caller's turn."""

    async def _written(self) -> None:
        """Waits until all that was written is in the page cache, before a call that needs no position."""
        self._check()
        if self._is_dirty:
            async with Turn(self._turns) as turn:
                self._check()
                if self._opened.buffering != 0:
                    await self._in_thread(turn, "flush")
                self._is_dirty = False

    def _check(self) -> None:
        self._check_open()
        self._turns.report()

    def _check_open(self) -> None:
        if self._is_detached:
            raise ValueError("underlying buffer has been detached")
        if self.closed or self._is_closing:
            raise ValueError("I/O operation on closed file.")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    def detach(self) -> Any:
        """Separate the raw file from its buffer, and return it. This file cannot be used afterwards.

        What is buffered is written in the calling thread, after a write that is under way.

        Raises:
            OSError: A write has failed. The file is not detached.
            RuntimeError: A call of the file is under way, and is no write to a buffer.
        """
        self._check()
        self._flush_now()
        closes = self._opened.closefd
        descriptor = self.take_descriptor() if closes else self.fileno()
        file = self._opened.io(descriptor, closefd=closes)
        self._is_detached = True
        self._release()
        return file.detach()

    def _flush_now(self) -> None:
        """Writes what is buffered, in the calling thread."""
        if self._turns.is_taken:
            raise RuntimeError("a call of the file is under way: await it before")
        if self._made is not None:
            self._made.flush()

    async def close(self) -> None:
        """Write what is buffered, and close the file. A second call has no effect.

        If a write fails, the exception is raised, and the file is closed: what was not written is lost, as
        with a file of open(). Await flush() before, to be able to write it later. The same holds for an
        error of close(2): NFS, FUSE and quotas may report only then that data could not be written.
        """
        if self._is_detached:
            raise ValueError("underlying buffer has been detached")
        if self.closed and self._turns.holder is None:
            self._turns.report()
            return
        async with Turn(self._turns) as turn:
            if not self.closed:
                await self._close(turn)
            self._turns.report()

    async def _close(self, turn: Turn) -> None:
        executor, failed = self._opened.executor, None
        self._is_closing = True
        try:
            await self._finish()
        except asyncio.CancelledError:
            # It is closed nevertheless.
            with contextlib.suppress(RuntimeError):
                turn.begin(executor, self._close_now)
            raise
        except Exception as error:
            failed = error
        try:
            if self.closed or self._made is None and self.closes_at_once:
                self._release()
            else:
                # close(2) of such a file may write, or wait for a server.
                await turn.call(executor, self._release, takes_back=False)
        except Exception as error:
            failed = failed or error
        except BaseException:
            self._turns.keep(failed)
            raise
        if failed is not None:
            raise failed

    async def _finish(self) -> None:
        """Writes what a subclass has buffered before the file is closed. It is the caller's turn."""

    def _finish_now(self) -> None:
        """The same in the calling thread."""

    def _close_now(self) -> None:
        try:
            self._finish_now()
        finally:
            self._release()

    def __del__(self) -> None:
        if not self.closed:
            if self._opened.closefd:
                warnings.warn(f"unclosed file {self!r}", ResourceWarning, source=self, stacklevel=2)
            self._close_now()

    def _release(self) -> None:
        try:
            if self._made is not None:
                self._made.close()
        finally:
            self.release()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        self._check_open()
        return self

    @property
    def name(self) -> Any:
        """The path or the descriptor that was given to open()."""
        return self._opened.name

    @property
    def mode(self) -> str:
        """The mode, as the file objects of `io` have it."""
        return self._opened.mode

    @property
    def _is_read_only(self) -> bool:
        return self._opened.mode in ("r", "rb")

    def readable(self) -> bool:
        """True if the file can be read."""
        self._check_open()
        return "r" in self._opened.mode or "+" in self._opened.mode

    async def writable(self) -> bool:
        """True if the file can be written."""
        self._check_open()
        return not self._is_read_only

    async def seekable(self) -> bool:
        """True if the file has a position."""
        self._check_open()
        return self.is_regular or bool(self._file.seekable())

    async def isatty(self) -> bool:
        """True for a terminal."""
        self._check_open()
        return os.isatty(self.fileno())

    async def fsync(self) -> None:
        """Write what is buffered, and the file's data and metadata to the disk: fsync(2)."""
        await self._written()
        await super().fsync()

    async def stat(self) -> os.stat_result:
        """Write what is buffered to the page cache, and return the file's metadata."""
        await self._written()
        return await super().stat()

    async def read_at(self, offset: int, n: int) -> bytes:
        await self._written()
        return await super().read_at(offset, n)

    async def readinto_at(self, offset: int, buffer: Any) -> int:
        await self._written()
        return await super().readinto_at(offset, buffer)

    async def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        await self._written()
        return await super().read_ranges(ranges)

    async def write_at(self, offset: int, data: Any) -> int:
        if self._made is None or "+" not in self._opened.mode:
            await self._written()
            return await super().write_at(offset, data)
        async with Turn(self._turns) as turn:
            self._check()
            # The bytes that were read ahead are dropped, too.
            await self._in_thread(turn, "flush")
            return await super().write_at(offset, data)

    async def flush(self) -> None:
        """Write what is buffered to the page cache."""
        await self._delegate("flush")

    async def tell(self) -> int:
        """The position."""
        return int(await self._delegate("tell"))

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the position, and return it."""
        return await self._delegate("seek", offset, whence)  # type: ignore[no-any-return]

    async def truncate(self, size: int | None = None, /) -> int:
        """Set the size of the file, to that of the position without an argument. Return it."""
        return int(await self._delegate("truncate", size))

    async def read(self, n: int | None = -1, /) -> Data:
        """Read `n` bytes or characters, or up to the end of the file."""
        return await self._delegate("read", n)  # type: ignore[no-any-return]

    async def readline(self, limit: int = -1, /) -> Data:
        """Read one line with its end, or at most `limit` bytes or characters of it."""
        return await self._delegate("readline", limit)  # type: ignore[no-any-return]

    async def readlines(self, hint: int | None = -1, /) -> list[Data]:
        """Read all lines, or at least `hint` bytes or characters."""
        return await self._delegate("readlines", hint)  # type: ignore[no-any-return]

    async def __anext__(self) -> Data:
        line = await self.readline()
        if line:
            return line
        raise StopAsyncIteration

    def __repr__(self) -> str:
        kind = type(self)
        return f"<{kind.__module__}.{kind.__qualname__} name={self.name!r} mode={self.mode!r}>"


async def give_way(n: int) -> None:
    """Gives way to the other tasks of the loop, if calls that need no wait have spent its budget."""
    if not spend(n):
        await pause()
