"""open() and scandir()."""

from __future__ import annotations

import asyncio
import errno
import io
import os
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Executor
from functools import lru_cache, partial
from stat import S_ISDIR as isdir
from typing import TYPE_CHECKING, Any, AnyStr, TypeVar, overload

from .._executor import run_in_executor
from .._nowait import Handle, open_handle, scandir_in_worker
from ._binary import BinaryFile, BinaryReader, BinaryWriter
from ._file import Opened
from ._lent import LentBinaryFile, LentTextFile
from ._text import DECODERS, HANDLERS, TextFile, TextReader, TextWriter, codec
from ._turn import Call

if TYPE_CHECKING:
    from _typeshed import OpenBinaryMode, OpenTextMode

    from .._nowait import ScandirIterator

FileT = TypeVar("FileT", BinaryFile, TextFile)
Path = str | bytes | int | os.PathLike[str] | os.PathLike[bytes]
Opener = Callable[[str, int], int]


class Opening(Awaitable[FileT]):
    """The result of open(): it is awaited, or used by `async with`."""

    __slots__ = ("_arguments", "_obj")

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._obj: Any = None

    def __await__(self) -> Generator[Any, Any, FileT]:
        if self._obj is None:
            self._obj = yield from _open(*self._arguments).__await__()
        return self._obj  # type: ignore[no-any-return]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Says what is missing if a method of a file is called."""
            if hasattr(BinaryFile, name) or hasattr(TextFile, name):
                message = (
                    f"open() was not awaited: use {name} of the file that "
                    "`await open(...)` returns, or `async with open(...) as file`"
                )
                raise AttributeError(message)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    async def __aenter__(self) -> FileT:
        return await self

    async def __aexit__(self, *exception: object) -> None:
        file, self._obj = self._obj, None
        if file is not None:
            await file.close()


@overload
def open(
    file: Path,
    mode: OpenTextMode = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    executor: Executor | None = None,
) -> Opening[TextFile]: ...
@overload
def open(
    file: Path,
    mode: OpenBinaryMode,
    buffering: int = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    executor: Executor | None = None,
) -> Opening[BinaryFile]: ...
@overload
def open(
    file: Path,
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    executor: Executor | None = None,
) -> Opening[Any]: ...
def open(
    file: Path,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    executor: Executor | None = None,
) -> Opening[Any]:
    """Open a file. The arguments are those of the built-in open().

    Args:
        executor: The threads for calls that the library has no other form for, such as those of files
            that are read and written, or of pipes. By default those of the event loop.

    Returns:
        An object to be awaited or to be used by `async with`: a `BinaryFile` or `TextFile`.

    Raises:
        OSError: When it is awaited, as open().
        RuntimeError: When it is awaited, if no asyncio event loop runs.
    """
    return Opening(file, mode, buffering, encoding, errors, newline, closefd, opener, executor)


async def _open(
    file: Path,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    closefd: bool,
    opener: Opener | None,
    executor: Executor | None,
) -> BinaryFile | TextFile:
    _check(mode, buffering, encoding, errors, newline)
    if not closefd and not isinstance(file, int):
        raise ValueError("Cannot use closefd=False with file name")
    if not isinstance(file, int) or not -(1 << 31) <= file < 1 << 31:
        # It refuses an int that is no descriptor, as open() does.
        file = os.fspath(file)  # type: ignore[arg-type]
    is_path = not isinstance(file, int)
    flags = _flags(mode)
    if not isinstance(file, int) and opener is None:
        handle = await open_handle(file, flags)
    else:
        handle = await _opened_in_thread(file, flags, closefd, opener, executor)
    if is_path and not handle.is_regular and isdir((await handle.stat()).st_mode):
        handle.release()
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file)
    if "a" in mode and handle.is_regular:
        # lseek(2) with SEEK_END may wait for a server.
        os.lseek(handle.fileno(), (await handle.stat()).st_size, os.SEEK_SET)
    opened = Opened(file, mode, buffering, encoding, errors, newline, closefd, executor)
    return _kind(handle, opened)(handle, opened)


async def _opened_in_thread(
    file: Path, flags: int, closefd: bool, opener: Opener | None, executor: Executor | None
) -> Handle:
    """The file of a descriptor or of an opener, as `io.FileIO` has it."""
    if isinstance(file, int):
        if file < 0:
            raise ValueError("negative file descriptor")
        # A server may keep a call that asks for the kind of the file.
        return await _in_thread(executor, partial(_of_descriptor, file, closefd), Handle.take_descriptor)
    assert opener is not None
    return await _in_thread(executor, partial(_of_opener, opener, file, flags), Handle.release)


async def _in_thread(
    executor: Executor | None, opens: Callable[[], Handle], undo: Callable[[Handle], object]
) -> Handle:
    """Opens a file in a thread. A cancelled open() is undone."""
    call = Call(opens)

    def give_up(failed: BaseException | None) -> None:
        if failed is None:
            undo(call.result())

    loop = asyncio.get_running_loop()
    run_in_executor(loop, executor, call).add_done_callback(call.has_run)
    try:
        await call.ended()
    except BaseException:
        if not call.take_back():
            call.add_done_callback(give_up)
        raise
    return call.result()  # type: ignore[no-any-return]


def _of_descriptor(file: int, closefd: bool) -> Handle:
    if isdir(os.fstat(file).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file)
    return Handle.of_descriptor(file, closefd)


def _of_opener(opener: Opener, file: Path, flags: int) -> Handle:
    descriptor = opener(file, flags)  # type: ignore[arg-type]
    if not isinstance(descriptor, int):
        raise TypeError("expected integer from opener")
    if descriptor < 0:
        raise ValueError(f"opener returned {descriptor}")
    os.set_inheritable(descriptor, False)
    return Handle.of_descriptor(descriptor)


def _kind(handle: Handle, opened: Opened) -> type[BinaryFile] | type[TextFile]:
    mode = opened.mode
    has_own = handle.is_regular and "+" not in mode
    reads = "r" in mode
    if not opened.closefd:
        return LentBinaryFile if opened.is_binary else LentTextFile
    if opened.is_binary:
        if not has_own or opened.buffering == 0:
            return BinaryFile
        return BinaryReader if reads else BinaryWriter
    has_own = has_own and opened.buffering != 1 and opened.newline in (None, "", "\n")
    if not has_own or codec(opened.encoding) not in DECODERS or opened.errors not in HANDLERS:
        return TextFile
    return TextReader if reads else TextWriter


def _flags_of(mode: str) -> int:
    """The flags of open(2) for a mode that was checked."""
    access = os.O_RDWR if "+" in mode else os.O_RDONLY if "r" in mode else os.O_WRONLY
    how = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL}
    base = next(letter for letter in mode if letter in "rwxa")
    return access | how.get(base, os.O_CREAT | os.O_APPEND) | os.O_CLOEXEC


#: They are made once for the same mode.
_flags = lru_cache(_flags_of)


def _try(
    mode: str, buffering: int, encoding: str | None, errors: str | None, newline: str | None
) -> None:
    """Checks the arguments as open() does, before a file is created or truncated."""
    arguments = buffering, encoding, errors, newline
    try:
        io.open(os.devnull, mode, *arguments).close()
    except FileExistsError:
        # The mode is one with "x", and right.
        io.open(os.devnull, mode.replace("x", "w"), *arguments).close()


#: The check is made once for the same arguments.
_check = lru_cache(_try)


@overload
async def scandir(path: None = None, *, stat: bool = False) -> ScandirIterator[str]: ...
@overload
async def scandir(path: int, *, stat: bool = False) -> ScandirIterator[str]: ...
@overload
async def scandir(
    path: AnyStr | os.PathLike[AnyStr], *, stat: bool = False
) -> ScandirIterator[AnyStr]: ...
async def scandir(path: Any = None, *, stat: bool = False) -> Any:
    """List a directory, as os.scandir() does.

    A worker reads the directory to its end in one call.

    Args:
        path: The directory: str, bytes, os.PathLike or an open descriptor.
        stat: Read the metadata of each entry, too. entry.stat() then needs no system call.

    Returns:
        An iterator of `nowait.DirEntry`, which is also a context manager.

    Raises:
        OSError: As os.scandir() and its iterator.
        RuntimeError: No asyncio event loop runs.
    """
    return await scandir_in_worker(path, stat)
