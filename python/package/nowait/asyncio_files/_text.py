"""Text files."""

from __future__ import annotations

import codecs
import io
import locale
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from operator import index
from typing import Any, TypeVar

from .._nowait import Handle, Text, spend
from ._buffered import Reader, Writer
from ._file import LARGE, LARGEST_OFFSET, File, Opened, give_way
from ._turn import Turn

T = TypeVar("T")

#: The encodings whose characters do not depend on what was before, and whose line feed is one byte.
DECODERS: dict[str, Callable[[bytes, str, bool], tuple[str, int]]] = {
    "utf-8": codecs.utf_8_decode,
    "ascii": lambda data, errors, _: codecs.ascii_decode(data, errors),
    "iso8859-1": lambda data, errors, _: codecs.latin_1_decode(data, errors),
}

#: The error handlers that make at most one character of a byte.
HANDLERS = {None, "strict", "ignore", "replace", "surrogateescape"}


class TextFile(File[str]):
    """A text file with the interface of aiofiles: the methods of `io` as coroutines."""

    @property
    def buffer(self) -> Any:
        """The binary file object of `io`."""
        return self._file.buffer

    @property
    def encoding(self) -> str:
        """The name of the encoding."""
        return str(self._file.encoding)

    @property
    def errors(self) -> str:
        """The error handler of the encoding."""
        return str(self._file.errors)

    @property
    def newlines(self) -> str | tuple[str, ...] | None:
        """The ends of lines that were translated so far."""
        return self._file.newlines  # type: ignore[no-any-return]

    @property
    def line_buffering(self) -> bool:
        """True if each line is written at once."""
        return bool(self._file.line_buffering)

    async def write(self, text: str, /) -> int:
        """Write characters. Return their number."""
        return int(await self._delegate("write", text))

    async def writelines(self, lines: Iterable[str], /) -> None:
        """Write each item of an iterable."""
        await self._delegate("writelines", lines)


class CarriageReturn(Exception):
    """The buffer has a carriage return, which `io` translates or takes as the end of a line."""


class TextReader(Reader[str], TextFile):
    """A regular text file that is only read, in one of the encodings of `DECODERS`.

    From the first carriage return on, the file object of `io` reads the file.
    """

    def __init__(self, handle: Handle, opened: Opened) -> None:
        super().__init__(handle, opened)
        self._decode = DECODERS[codec(opened.encoding)]
        self._how = opened.errors or "strict"
        # True if a carriage return is a character like others.
        self._is_plain = opened.newline == "\n"
        self._has_lines = False
        self._is_delegated = False
        # The position at which the file object of `io` begins.
        self._begin_at: int | None = None

    @property
    def newlines(self) -> str | tuple[str, ...] | None:
        if self._is_plain:
            return None
        theirs = super().newlines if self._is_delegated else None
        seen = {theirs} if isinstance(theirs, str) else set(theirs or ())
        if self._has_lines:
            seen.add("\n")
        ends = tuple(end for end in ("\r", "\n", "\r\n") if end in seen)
        return ends if len(ends) > 1 else ends[0] if ends else None

    def _call(self, name: str, *arguments: Any) -> Any:
        if not self._is_delegated:
            result = super()._call(name, *arguments)
            if self._offset > LARGEST_OFFSET:
                self._delegate_all()
            return result
        if self._begin_at is not None:
            self._file.seek(self._begin_at)
            self._begin_at = None
        return TextFile._call(self, name, *arguments)

    def _delegate_all(self) -> None:
        """Leaves all to the file object of `io`."""
        self._begin_at = self._position()
        self._is_delegated = True
        self._forget(0)

    async def _fill(self) -> bool:
        has_more = await super()._fill()
        self._check_bytes(self._buffer)
        return has_more

    def _check_bytes(self, data: bytes) -> None:
        if b"\r" in data and not self._is_plain:
            raise CarriageReturn

    async def _either(self, name: str, size: int, method: Callable[[int], Awaitable[T]]) -> T:
        """Calls a method of this class, or that of the file object of `io`."""
        async with Turn(self._turns) as turn:
            self._check()
            if not self._is_delegated:
                try:
                    return await method(size)
                except CarriageReturn:
                    self._delegate_all()
            return await self._in_thread(turn, name, size)  # type: ignore[no-any-return]

    async def read(self, n: int | None = -1, /) -> str:
        if n is not None and type(n) is not int:
            return await super().read(n)
        if n is None or n < 0:
            return await self._either("read", -1, self._text)
        return await self._either(
            "read", n, self._characters if n <= LARGE else self._many_characters
        )

    async def _text(self, _: int) -> str:
        position = self._position()
        part = self._buffer[self._at :]
        end = position + len(part)
        text, is_last = Text(), False
        try:
            while not is_last:
                more = await self.read_at(end, LARGE)
                self._check_bytes(more)
                end += len(more)
                part += more
                is_last = len(more) < LARGE
                self._has_lines = self._has_lines or b"\n" in part
                piece, consumed = self._decode(part, self._how, is_last)
                text.append(piece)
                part = part[consumed:]
        except UnicodeDecodeError:
            # The exception has the position in all bytes.
            data = await self._rest()
            self._forget(position + len(data))
            return self._decode(data, self._how, True)[0]
        self._forget(end)
        return text.join()

    def _split(self, data: bytes) -> list[str]:
        self._has_lines = self._has_lines or b"\n" in data
        text = self._decode(data, self._how, True)[0]
        return io.StringIO(text, newline="\n").readlines()

    async def _line_of(self, line: bytes) -> str:
        if len(line) <= LARGE:
            return self._decode(line, self._how, True)[0]
        text, begin = Text(), 0
        while begin < len(line):
            end = begin + LARGE
            piece, consumed = self._decode(line[begin:end], self._how, end >= len(line))
            text.append(piece)
            await give_way(consumed)
            begin += consumed
        return text.join()

    async def _many_characters(self, n: int) -> str:
        position = self._position()
        text = Text()
        try:
            while n > 0 and (piece := await self._characters(min(n, LARGE))):
                text.append(piece)
                n -= len(piece)
        except BaseException:
            self._forget(position)
            raise
        return text.join()

    async def _characters(self, n: int) -> str:
        """The next `n` characters, or those up to the end of the file."""
        pieces: list[str] = []
        used = 0
        while n:
            begin = self._at + used
            text, consumed = self._first(begin, n)
            if not consumed and not await self._fill():
                # Bytes that are no whole character.
                text, consumed = self._decode(self._buffer[self._at + used :], self._how, True)
                pieces.append(text)
                used += consumed
                break
            pieces.append(text)
            used += consumed
            n -= len(text)
        await give_way(used)
        data = self._buffer[self._at : self._at + used]
        self._has_lines = self._has_lines or b"\n" in data
        self._at += used
        return "".join(pieces)

    def _first(self, begin: int, n: int) -> tuple[str, int]:
        """At most `n` characters of the buffer, with their number of bytes."""
        end = begin + n
        while True:
            text, consumed = self._decode(self._buffer[begin:end], self._how, False)
            if consumed or end >= len(self._buffer):
                return text, consumed
            # The bytes are the beginning of one character.
            end += 1

    async def readline(self, limit: int = -1, /) -> str:
        if type(limit) is not int:
            return await super().readline(limit)
        if limit < 0:
            buffer, begin = self._buffer, self._at
            end = buffer.find(b"\n", begin) + 1
            if end and self._turns.holder is None and spend(end - begin):
                line = self._decode(buffer[begin:end], self._how, True)[0]
                if self._takes(buffer, begin, end):
                    self._has_lines = True
                    return line
        if limit < 0:
            return await self._either("readline", limit, self._text_line)
        return str(await self._delegate("readline", limit))

    async def _text_line(self, _: int) -> str:
        position = self._position()
        line = await self._line(-1)
        self._has_lines = self._has_lines or line.endswith(b"\n")
        try:
            return await self._line_of(line)
        except BaseException:
            self._move(position)
            raise

    async def readlines(self, hint: int | None = -1, /) -> list[str]:
        if hint is not None and type(hint) is not int:
            if not hasattr(hint, "__index__"):
                return await super().readlines(hint)
            # tell() of io fails after its readlines().
            hint = index(hint)
        if hint is not None and hint > 0:
            return await self._either("readlines", hint, self._lines)
        return await self._either("readlines", -1, self._all_lines)

    async def _next_line(self) -> str:
        return await self._text_line(-1)

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        wrong = type(offset) is not int or not 0 <= offset <= LARGEST_OFFSET
        if wrong or whence != os.SEEK_SET or self._is_delegated:
            return await super().seek(offset, whence)
        async with Turn(self._turns):
            self._check()
            return await self._seek(offset, whence)

    async def tell(self) -> int:
        if self._is_delegated:
            return await super().tell()
        self._check()
        return self._position()


class TextWriter(Writer[str], TextFile):
    """A regular text file that is only written, in one of the encodings of `DECODERS`."""

    def __init__(self, handle: Handle, opened: Opened) -> None:
        super().__init__(handle, opened)
        self._codec = codec(opened.encoding)
        self._how = opened.errors or "strict"

    @property
    def buffer(self) -> Any:
        # Its writes follow those that were accepted.
        self._flush_now()
        return super().buffer

    async def write(self, text: str, /) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if len(text) <= LARGE:
            pieces = [text.encode(self._codec, self._how)]
        else:
            pieces = await self._encoded(text)
        if len(pieces) == 1 and len(pieces[0]) <= LARGE:
            await self._add(pieces[0], len(pieces[0]))
        else:
            await self._add_pieces(pieces)
        return len(text)

    async def _encoded(self, text: str) -> list[bytes]:
        """The bytes of much text. Other tasks have their turn between parts."""
        pieces = []
        for begin in range(0, len(text), LARGE):
            await give_way(LARGE)
            try:
                pieces.append(text[begin : begin + LARGE].encode(self._codec, self._how))
            except UnicodeEncodeError:
                # The exception has the position in all characters.
                text.encode(self._codec, self._how)
                raise
        return pieces

    async def writelines(self, lines: Iterable[str], /) -> None:
        self._check()
        for line in lines:
            await self.write(line)

    async def tell(self) -> int:
        # The position of a file that is appended to is known after the write.
        await self.flush()
        return await super().tell()


def codec(encoding: str | None) -> str:
    """The name of an encoding as open() takes it."""
    if encoding is None and sys.flags.utf8_mode:
        return "utf-8"
    if encoding is None or encoding == "locale":
        encoding = locale.getencoding()
    return codecs.lookup(encoding).name
