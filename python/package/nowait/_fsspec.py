"""The file system `nowait://` for fsspec, and its files for asyncio."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterable
from functools import partial
from typing import Any

from fsspec.asyn import (  # type: ignore[import-untyped]
    AbstractAsyncStreamedFile,
    AsyncFileSystem,
    get_loop,
    sync,
)
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from . import DirEntry, asyncio_files, scandir
from ._executor import run_in_executor


class NowaitFileSystem(LocalFileSystem, AsyncFileSystem):  # type: ignore[misc]
    """Local files for fsspec, synchronous and with asyncio.

    Args:
        auto_mkdir: Make the directories of a file that is opened for writing.
        asynchronous: The coroutines are called, and not the methods without an underscore.

    An instance works in a forked child.
    """

    protocol = ("nowait",)
    _pid: int
    # The methods without an underscore are those of LocalFileSystem.
    mirror_sync_methods = False

    def __init__(self, auto_mkdir: bool = False, **options: Any) -> None:
        super().__init__(auto_mkdir=auto_mkdir, **options)

    @property
    def fsid(self) -> str:
        return "local"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of fsspec's thread, which a forked child starts anew."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            if not self.asynchronous:
                self._loop = get_loop()
        return self._loop  # type: ignore[no-any-return]

    # Many files at the same time.

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any
    ) -> Any:
        return sync(self.loop, self._cat, path, recursive=recursive, on_error=on_error, **options)

    def cat_ranges(
        self,
        paths: Any,
        starts: Any,
        ends: Any,
        max_gap: Any = None,
        on_error: str = "return",
        **options: Any,
    ) -> Any:
        given = (paths, starts, ends, max_gap)
        return sync(self.loop, self._cat_ranges, *given, on_error=on_error, **options)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        if end is None:
            return super().cat_file(path, start, **options)  # type: ignore[no-any-return]
        # If the end is before the start, LocalFileSystem reads up to the end of the file, or raises
        # ValueError. By fsspec's documentation, a range is a slice.
        with self.open(path, "rb", **options) as file:
            is_counted = (start or 0) < 0 or end < 0
            begin, n = _slice(start, end, file.seek(0, os.SEEK_END) if is_counted else end)
            file.seek(begin)
            return file.read(n)  # type: ignore[no-any-return]

    def ls(self, path: Any, detail: bool = False, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            entries = scandir(path, stat=detail)
        except NotADirectoryError:
            info = self.info(path)
            return [info if detail else info["name"]]
        found = []
        with entries:
            for entry in entries:
                try:
                    found.append(self.info(entry) if detail else self._strip_protocol(entry.path))
                except FileNotFoundError:
                    pass
        return found

    def info(self, path: Any, **options: Any) -> dict[str, Any]:
        if not isinstance(path, DirEntry):
            return super().info(path, **options)  # type: ignore[no-any-return]
        own = path.stat(follow_symlinks=False)
        is_link = path.is_symlink()
        info = {
            "name": self._strip_protocol(path.path),
            "size": own.st_size,
            "type": "other",
            "created": own.st_ctime,
            "islink": is_link,
        }
        if path.is_dir(follow_symlinks=False):
            info["type"] = "directory"
        elif path.is_file(follow_symlinks=False):
            info["type"] = "file"
        for field in ["mode", "uid", "gid", "mtime", "ino", "nlink"]:
            info[field] = getattr(own, f"st_{field}")
        if is_link:
            info["destination"] = os.readlink(path.path)
            try:
                info["size"] = path.stat().st_size
            except OSError:
                info["size"] = 0
        return info

    # Coroutines.

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        async with asyncio_files.open(self._strip_protocol(path), "rb") as file:
            if start is None and end is None:
                return await file.read()
            begin, size = await _range(file, start, end)
            return await file.read_at(begin, size)

    async def _cat_ranges(
        self,
        paths: Any,
        starts: Any,
        ends: Any,
        max_gap: Any = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        if max_gap is not None:
            raise NotImplementedError
        if not isinstance(paths, list):
            raise TypeError
        starts = starts if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = ends if isinstance(ends, Iterable) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError
        ranges: dict[str, list[tuple[int, int | None, int | None]]] = {}
        for number, (path, start, end) in enumerate(zip(paths, starts, ends)):
            ranges.setdefault(path, []).append((number, start, end))
        results: list[Any] = [None] * len(paths)

        async def read(path: str, wanted: list[tuple[int, int | None, int | None]]) -> None:
            try:
                async with asyncio_files.open(self._strip_protocol(path), "rb") as file:
                    places = [await _range(file, start, end) for _, start, end in wanted]
                    pieces: list[Any] = list(await file.read_ranges(places))
            except Exception as error:
                pieces = [error] * len(wanted)
            for (number, _, _), piece in zip(wanted, pieces):
                results[number] = piece

        await _each([partial(read, *item) for item in ranges.items()], batch_size)
        if on_error != "return":
            for result in results:
                if isinstance(result, Exception):
                    raise result
        return results

    async def _pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", **options: Any
    ) -> None:
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            await self._makedirs(self._parent(path), exist_ok=True)
        async with asyncio_files.open(path, "xb" if mode == "create" else "wb") as file:
            await file.write(value)

    async def _info(self, path: Any, **options: Any) -> dict[str, Any]:
        return await _in_thread(self.info, path, **options)  # type: ignore[no-any-return]

    async def _exists(self, path: Any, **options: Any) -> bool:
        try:
            await asyncio_files.stat(self._strip_protocol(path))
        except (OSError, ValueError):
            return False
        return True

    async def _ls(self, path: Any, detail: bool = True, **options: Any) -> list[Any]:
        return await _in_thread(self.ls, path, detail, **options)  # type: ignore[no-any-return]

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: Any = None,
        **options: Any,
    ) -> None:
        await _in_thread(self.rm, path, recursive=recursive, maxdepth=maxdepth)

    async def open_async(
        self,
        path: Any,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        compression: Any = None,
        **options: Any,
    ) -> StreamedFile:
        """Open a file for asyncio, in one of the modes "rb", "wb", "ab" and "xb".

        Raises:
            NotImplementedError: For other modes, with compression, and without autocommit.
        """
        if mode not in ("rb", "wb", "ab", "xb") or compression or not autocommit:
            text = "open_async has the modes rb, wb, ab and xb, no compression, and only autocommit"
            raise NotImplementedError(text)
        path = self._strip_protocol(path)
        if self.auto_mkdir and mode != "rb":
            await self._makedirs(self._parent(path), exist_ok=True)
        file = await asyncio_files.open(path, mode)
        try:
            size, is_seekable = (await file.stat()).st_size, await file.seekable()
            return StreamedFile(self, path, mode, file, size, is_seekable)
        except BaseException:
            await file.close()
            raise


class StreamedFile(AbstractAsyncStreamedFile):  # type: ignore[misc]
    """A binary file for asyncio: that of `NowaitFileSystem.open_async`.

    As in fsspec's other files for asyncio, `seek` and `tell` are no coroutines, `size` is that of the
    file when it was opened for reading, and a file that is written has no `seek`. Each method that
    reads or writes is a coroutine.
    """

    def __init__(
        self,
        fs: NowaitFileSystem,
        path: str,
        mode: str,
        file: asyncio_files.BinaryFile,
        size: int,
        is_seekable: bool,
    ) -> None:
        super().__init__(fs, path, mode, cache_type="none", size=size)
        self._file = file
        self._is_seekable = is_seekable
        self.loc = size if mode == "ab" else 0
        # The position of `_file`, which follows that of `seek` with the next read.
        self._at = self.loc

    def seekable(self) -> bool:
        """True if the file is open for reading and has a position."""
        return self._is_seekable and bool(self.readable())

    async def _reads(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the file that reads."""
        if self.mode != "rb":
            raise ValueError("File not in read mode")
        if self._at != self.loc and not self.closed:
            self._at = await self._file.seek(self.loc)
        return await getattr(self._file, name)(*arguments)

    def _moved(self, n: int) -> None:
        self._at += n
        self.loc += n

    async def read(self, length: int | None = -1) -> bytes:
        """Read so many bytes, or up to the end of the file."""
        data: bytes = await self._reads("read", -1 if length is None or length < 0 else length)
        self._moved(len(data))
        return data

    async def readinto(self, b: Any) -> int:
        """Read into a buffer. Return the number of bytes."""
        n: int = await self._reads("readinto", b)
        self._moved(n)
        return n

    readinto1 = readinto

    async def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        """Read up to these bytes and with them, or up to the end of the file."""
        begin, data = self.loc, bytearray()
        while part := await self.read(blocks or self.blocksize):
            # The bytes may be in two parts.
            begins = max(0, len(data) - len(char) + 1)
            data += part
            if (found := data.find(char, begins)) >= 0:
                del data[found + len(char) :]
                break
        self.seek(begin + len(data))
        return bytes(data)

    async def readline(self) -> bytes:
        """Read one line with its end."""
        line: bytes = await self._reads("readline")
        self._moved(len(line))
        return line

    async def readlines(self) -> list[bytes]:
        """Read all lines."""
        lines: list[bytes] = await self._reads("readlines")
        self._moved(sum(map(len, lines)))
        return lines

    def __aiter__(self) -> StreamedFile:
        return self

    async def __anext__(self) -> bytes:
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def write(self, data: Any) -> int:
        """Write bytes. Return their number."""
        if self.mode == "rb":
            raise ValueError("File not in write mode")
        n = await self._file.write(data)
        self.loc += n
        return n

    async def flush(self, force: bool = False) -> None:
        """Write what is buffered to the page cache."""
        await self._file.flush()

    async def close(self) -> None:
        """Write what is buffered, and close the file. See `nowait.asyncio_files`."""
        try:
            await self._file.close()
        finally:
            self.closed = self._file.closed

    def __del__(self) -> None:
        """The file of `nowait.asyncio_files` warns if it was not closed."""

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")


def _threaded(name: str) -> Any:
    """A coroutine that calls a method of LocalFileSystem in a thread."""

    async def call(self: NowaitFileSystem, *arguments: Any, **options: Any) -> Any:
        return await _in_thread(getattr(self, name), *arguments, **options)

    call.__name__ = f"_{name}"
    return call


for _name in [
    "isfile",
    "isdir",
    "mkdir",
    "makedirs",
    "rmdir",
    "rm_file",
    "cp_file",
    "get_file",
    "put_file",
    "mv",
    "touch",
    "created",
    "modified",
    "link",
    "symlink",
    "islink",
    "lexists",
]:
    setattr(NowaitFileSystem, f"_{_name}", _threaded(_name))


async def _in_thread(call: Any, *arguments: Any, **options: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await run_in_executor(loop, None, partial(call, *arguments, **options))


async def _range(
    file: asyncio_files.BinaryFile, start: int | None, end: int | None
) -> tuple[int, int]:
    """The offset and length of a range of cat_file(), whose limits may count from the end."""
    if (start or 0) < 0 or end is None or end < 0:
        return _slice(start, end, (await file.stat()).st_size)
    return _slice(start, end, end)


def _slice(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """The offset and length of a slice of so many bytes."""
    begin, end, _ = slice(start, end).indices(size)
    return begin, max(0, end - begin)


async def _each(calls: list[Any], limit: int | None) -> None:
    """Awaits all calls, at most `limit` at the same time."""
    # Each call opens a file.
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limit = limit or min(256, max(8, descriptors // 4))
    for begin in range(0, len(calls), limit):
        await asyncio.gather(*[call() for call in calls[begin : begin + limit]])
