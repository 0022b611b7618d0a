"""The parts that all files share."""

from __future__ import annotations

import asyncio
import io
import os
import warnings
from concurrent.futures import Executor
from functools import partial
from typing import Any, Callable, Generic, NamedTuple, Self, TypeVar

from .._nowait import Handle, pause, spend
from ._turn import Turn

Data = TypeVar("Data", str, bytes)

#: The number of bytes or characters that the loop's thread copies, decodes or encodes at once. So many
#: take up to a millisecond.
LARGE = 1 << 20


class Opened(NamedTuple):
    """The arguments of open() that a file remembers."""

    name: Any
    mode: str
    buffering: int
    encoding: str | None
    errors: str | None
    newline: str | None
    executor: Executor | None

    @property
    def is_binary(self) -> bool:
        return "b" in self.mode

    def io(self, descriptor: int, *, closefd: bool) -> Any:
        """The file object of `io` for an open descriptor. It neither creates nor truncates."""
        mode = self.mode.replace("x", "w")
        text = self.encoding, self.errors, self.newline
        return io.open(descriptor, mode, self.buffering, *text, closefd=closefd)


class Call:
    """A call for a thread. It can be taken back before it begins."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        # The thread takes it out, or the task that was cancelled.
        self._calls = [partial(call, *arguments)]

    def __call__(self) -> Any:
        try:
            call = self._calls.pop()
        except IndexError:
            return None
        return call()

    def take_back(self) -> bool:
        """True if the call will not be made."""
        try:
            self._calls.pop()
        except IndexError:
            return False
        return True


class File(Handle, Generic[Data]):
    """An open file. It is the base of `BinaryFile` and `TextFile`.

    `read_at`, `readinto_at`, `read_ranges` and `write_at` take an offset, and neither use nor move the
    file's position. Calls that have no other form go to a file object of `io` with the same
    descriptor, in a thread of the executor.
    """

    def __new__(cls, handle: Handle, opened: Opened) -> Self:
        return super().__new__(cls, handle)

    def __init__(self, handle: Handle, opened: Opened) -> None:
        self._opened = opened
        # A call without a wait is not interrupted, and needs no turn.
        self._turn = Turn()
        self._made: Any = None
        self._is_detached = False

    @property
    def _file(self) -> Any:
        """The file object of `io`."""
        if self._made is None:
            self._made = self._opened.io(self.fileno(), closefd=False)
        return self._made

    async def _in_turn(self, call: Callable[[], Any]) -> Any:
        """Calls a function in a thread of the executor. The turn lasts until the function has returned,
        also if the task is cancelled. It is the caller's turn."""
        loop = asyncio.get_running_loop()
        try:
            called = loop.run_in_executor(self._opened.executor, call)
        except BaseException:
            self._turn.release()
            raise
        called.add_done_callback(self._has_returned)
        try:
            return await asyncio.shield(called)
        except asyncio.CancelledError:
            if isinstance(call, Call) and call.take_back():
                called.remove_done_callback(self._has_returned)
                self._turn.release()
            raise

    def _has_returned(self, called: asyncio.Future[Any]) -> None:
        if not called.cancelled():
            # Of a call whose task was cancelled, the exception is dropped.
            called.exception()
        self._turn.release()

    async def _delegate(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the file object of `io` in a thread."""
        await self._turn.take()
        try:
            self._check()
            await self._prepare(name)
        except BaseException:
            self._turn.release()
            raise
        return await self._in_turn(Call(self._call, name, *arguments))

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._file, name)(*arguments)

    async def _prepare(self, name: str) -> None:
        """Called before a method of the file object of `io`. It is the caller's turn."""

    def _check(self) -> None:
        if self._is_detached:
            raise ValueError("underlying buffer has been detached")
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def detach(self) -> Any:
        """Separate the raw file from its buffer, and return it. This file cannot be used afterwards."""
        self._check()
        file = self._opened.io(self.take_descriptor(), closefd=True)
        self._is_detached = True
        self._release()
        return file.detach()

    async def close(self) -> None:
        """Write what is buffered, and close the file. A second call has no effect.

        If the write fails, the exception is raised, and the file is closed. The same holds for an error
        of close(2): NFS, FUSE and quotas may report only then that data could not be written.
        """
        if self._is_detached:
            raise ValueError("underlying buffer has been detached")
        if self.closed:
            return
        await self._turn.take()
        try:
            if not self.closed:
                await self._finish()
        except BaseException:
            self._turn.release()
            raise
        if self.closed or self._made is None and self.closes_at_once:
            self._turn.release()
            self._release()
        else:
            # close(2) of such a file may write, or wait for a server.
            await self._in_turn(self._release)

    async def _finish(self) -> None:
        """Writes what a subclass has buffered before the file is closed. It is the caller's turn."""

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"unclosed file {self!r}", ResourceWarning, source=self, stacklevel=2)

    def _release(self) -> None:
        try:
            if self._made is not None:
                self._made.close()
        finally:
            self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
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
        self._check()
        return "r" in self._opened.mode or "+" in self._opened.mode

    async def writable(self) -> bool:
        """True if the file can be written."""
        self._check()
        return not self._is_read_only

    async def seekable(self) -> bool:
        """True if the file has a position."""
        self._check()
        return self.is_regular or bool(self._file.seekable())

    async def isatty(self) -> bool:
        """True for a terminal."""
        self._check()
        return os.isatty(self.fileno())

    async def flush(self) -> None:
        """Write what is buffered to the page cache."""
        await self._delegate("flush")

    async def tell(self) -> int:
        """The position."""
        return int(await self._delegate("tell"))

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the position, and return it."""
        return int(await self._delegate("seek", offset, whence))

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
