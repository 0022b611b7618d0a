"""nowait.asyncio_files beside open()."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from helpers import evict_file
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nowait import asyncio_files


def outcome(call: Callable[[], Any]) -> Any:
    """The result of a call, or its exception."""
    try:
        return call()
    except (OSError, ValueError, TypeError) as error:
        return type(error), str(error)


async def awaited(call: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await call()
    except (OSError, ValueError, TypeError) as error:
        return type(error), str(error)


#: Methods of files that are read, with their arguments.
READS = st.one_of(
    st.tuples(st.just("read"), st.sampled_from([-1, 0, 1, 2, 5, 100, 5000, 100_000])),
    st.tuples(st.just("readline")),
    st.tuples(st.just("readline"), st.integers(-1, 40)),
    st.tuples(st.just("readlines"), st.sampled_from([-1, 0, 1, 3000])),
    st.tuples(st.just("seek"), st.integers(0, 20_000)),
    st.tuples(st.just("seek"), st.just(0), st.sampled_from([1, 2])),
    st.tuples(st.just("seek"), st.integers(-20, 20), st.just(2)),
    st.tuples(st.just("tell")),
    st.tuples(st.just("write"), st.just(1)),
)
BINARY_READS = st.one_of(
    READS,
    st.tuples(st.just("read1"), st.sampled_from([0, 1, 300])),
    st.tuples(st.just("seek"), st.integers(-300, 300), st.just(1)),
    st.tuples(st.just("readinto"), st.integers(0, 9000)),
    st.tuples(st.just("truncate")),
)
LINES = st.lists(st.text("aé€𝄞 \n", max_size=60), max_size=200).map("".join)
LINES_WITH_RETURNS = st.lists(st.sampled_from(["a", "é\r\n", "\r", "b\n"]), min_size=1).map("".join)


def with_buffer(calls: list[Any]) -> list[Any]:
    """Replaces the sizes of readinto() by buffers."""
    return [
        (name, bytearray(arguments[0])) if name == "readinto" else (name, *arguments)
        for name, *arguments in calls
    ]


async def compare(path: Path, calls: list[Any], cached: bool, *arguments: Any) -> None:
    """Makes the same calls of a file of ours and one of open()."""
    if not cached:
        evict_file(path)
    with open(path, *arguments) as theirs:
        async with asyncio_files.open(path, *arguments) as ours:
            for (name, *given), (_, *same) in zip(with_buffer(calls), with_buffer(calls)):
                expected = outcome(lambda: getattr(theirs, name)(*given))
                got = await awaited(lambda: getattr(ours, name)(*same))
                assert got == expected, (name, given)
                assert same == given
                if "ignore" in arguments:
                    # Before and after bytes that are ignored are the same position.
                    continue
                position = outcome(theirs.tell)
                if isinstance(position, int) and position >= 1 << 63:
                    # A position beside a carriage return has several numbers.
                    continue
                assert await awaited(ours.tell) == position, (name, given)


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=300), st.integers(1, 400), st.lists(BINARY_READS, max_size=30), st.booleans()
)
def test_binary_reads_are_those_of_open(
    tmp_path_factory: Any, data: bytes, times: int, calls: list[Any], cached: bool
) -> None:
    path = tmp_path_factory.mktemp("read") / "file"
    path.write_bytes(data * times)
    asyncio.run(compare(path, calls, cached, "rb"))


@settings(max_examples=300, deadline=None)
@given(
    LINES | LINES_WITH_RETURNS,
    st.lists(READS, max_size=30),
    st.sampled_from([None, None, "", "\n", "\r", "\r\n"]),
    st.sampled_from(["utf-8", "utf-8", "latin-1", "ascii", "utf-8-sig", "utf-16"]),
    st.sampled_from(["strict", "ignore", "replace", "surrogateescape", "backslashreplace"]),
)
def test_text_reads_are_those_of_open(
    tmp_path_factory: Any,
    text: str,
    calls: list[Any],
    newline: str | None,
    encoding: str,
    errors: str,
) -> None:
    path = tmp_path_factory.mktemp("read") / "file"
    data = text.encode(encoding, "ignore")
    # Bytes that are no characters.
    path.write_bytes(data if errors == "strict" else data.replace(b" ", b"\xff"))
    # A position within a character leads to other exceptions. After readlines(1), files of open()
    # refuse tell().
    plain = {("seek", 0), ("readlines", -1), ("readlines", 0)}
    calls = [call for call in calls if call[0] not in ("seek", "readlines") or call[:2] in plain]
    asyncio.run(compare(path, calls, True, "r", -1, encoding, errors, newline))


WRITES = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(["", "a", "é\n", "x" * 5000, "y" * 70_000])),
    st.tuples(st.just("writelines"), st.just(["a\n", "b"])),
    st.tuples(st.just("seek"), st.integers(0, 9000)),
    st.tuples(st.just("seek"), st.just(0), st.just(2)),
    st.tuples(st.just("tell")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("truncate"), st.integers(0, 9000)),
    st.tuples(st.just("truncate")),
    st.tuples(st.just("read"), st.just(10)),
    st.tuples(st.just("readline")),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(WRITES, max_size=20),
    st.sampled_from(["w", "a", "x", "r+", "w+", "a+"]),
    st.booleans(),
    st.sampled_from([-1, 1, 100, 10_000]),
)
# The buffer is full. It is written with the next byte.
@example([("seek", 0), ("write", "a"), ("write", "a")], "a", True, -1)
def test_writes_are_those_of_open(
    tmp_path_factory: Any, calls: list[Any], mode: str, binary: bool, buffering: int
) -> None:
    directory = tmp_path_factory.mktemp("write")
    paths = [directory / "theirs", directory / "ours"]
    for path in paths:
        if mode != "x":
            path.write_bytes(b"0123456789" * 100)
    arguments = (mode + "b", max(buffering, 2)) if binary else (mode, buffering, "utf-8")

    def encoded(data: Any) -> Any:
        if isinstance(data, list):
            return [encoded(item) for item in data]
        return data.encode() if binary and isinstance(data, str) else data

    async def compare() -> None:
        with open(paths[0], *arguments) as theirs:
            async with asyncio_files.open(paths[1], *arguments) as ours:
                for name, *given in calls:
                    given = [encoded(data) for data in given]
                    expected = outcome(lambda: getattr(theirs, name)(*given))
                    got = await awaited(lambda: getattr(ours, name)(*given))
                    assert got == expected, (name, given)
                assert await ours.tell() == theirs.tell()
                assert await awaited(ours.readline) == outcome(theirs.readline)

    asyncio.run(compare())
    assert paths[1].read_bytes() == paths[0].read_bytes()


def test_an_error_handler_may_make_several_characters(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xffabc\n" * 100)

    async def main() -> None:
        for encoding in ["utf-8", "ascii"]:
            for newline in [None, "\n"]:
                given = {"encoding": encoding, "errors": "backslashreplace", "newline": newline}
                with open(path, **given) as theirs:  # type: ignore[call-overload]
                    async with asyncio_files.open(path, "r", **given) as ours:
                        for n in [1, 2, 1, 3, 200]:
                            assert await ours.read(n) == theirs.read(n)

    asyncio.run(main())


def test_a_refused_call_leaves_the_buffer(tmp_path: Path) -> None:
    calls: list[Any] = [("seek", 5), ("write", "abc")]
    refused = [("read", 3), ("readline",), ("read1", 3), ("readinto", bytearray(3)), ("readlines",)]

    async def main() -> None:
        for mode in ["a", "ab"]:
            for name, *arguments in refused if mode == "ab" else refused[:2]:
                paths = [tmp_path / "theirs", tmp_path / "ours"]
                for path in paths:
                    path.write_bytes(b"0123456789" * 3)
                with open(paths[0], mode) as theirs:
                    async with asyncio_files.open(paths[1], mode) as ours:
                        for call, given in calls:
                            data = given.encode() if call == "write" and mode == "ab" else given
                            assert await getattr(ours, call)(data) == getattr(theirs, call)(data)
                        expected = outcome(lambda: getattr(theirs, name)(*arguments))
                        assert await awaited(lambda: getattr(ours, name)(*arguments)) == expected
                        assert await ours.tell() == theirs.tell(), (mode, name)
                assert paths[1].read_bytes() == paths[0].read_bytes()

    asyncio.run(main())


def test_arguments_that_are_no_int_are_those_of_io(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789\nab\n" * 10)

    class Five:
        def __index__(self) -> int:
            return 5

    calls = [("seek", 0.5), ("seek", Five()), ("read", 5.3), ("read", Five()), ("readline", 5.3)]
    calls += [("readline", Five()), ("readlines", 2.5), ("readlines", Five()), ("seek", 1 << 70)]
    calls += [("seek", 0), ("readline", True), ("read", "a"), ("seek", None), ("readlines", "a")]

    async def main() -> None:
        for mode in ["r", "rb"]:
            with open(path, mode) as theirs:
                async with asyncio_files.open(path, mode) as ours:
                    for name, argument in calls + [("read1", 2.5)] * (mode == "rb"):
                        expected = outcome(lambda: getattr(theirs, name)(argument))
                        got = await awaited(lambda: getattr(ours, name)(argument))
                        assert got == expected, (mode, name, argument)
        for mode in ["w", "wb"]:
            file = await asyncio_files.open(path, mode)
            await file.close()
            got = await awaited(lambda: file.writelines([]))
            assert isinstance(got, tuple) and got[0] is ValueError
        for file_and_mode in [(1 << 31, "rb"), (-1 << 40, "rb"), (str(path), "rwxa")]:
            expected = outcome(lambda: open(*file_and_mode))
            got = await awaited(lambda: asyncio_files.open(*file_and_mode).__aenter__())
            assert got == expected, file_and_mode

    asyncio.run(main())


def test_the_ends_of_lines_that_were_seen(tmp_path: Path) -> None:
    path = tmp_path / "file"
    cases = [b"a\n" + b"x" * 5000 + b"\r", b"a\n" + b"x" * 5000 + b"\r\nb\r", b"a\r", b"a\nb\n", b"a"]

    async def main() -> None:
        for data in cases:
            path.write_bytes(data)
            for newline in [None, "", "\n"]:
                with open(path, newline=newline) as theirs:
                    theirs.read()
                    for calls in [["read"], ["readline", "read"], ["readlines"]]:
                        async with asyncio_files.open(path, newline=newline) as ours:
                            for call in calls:
                                await getattr(ours, call)()
                            assert ours.newlines == theirs.newlines, (data, newline, calls)

    asyncio.run(main())


def test_the_raw_file_and_its_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")

    async def main() -> None:
        for mode in ["rb", "r+b", "ab"]:
            file = await asyncio_files.open(path, mode)
            assert file.raw.name == str(path)
            raw = file.detach()
            assert raw.name == str(path)
            raw.close()
        async with asyncio_files.open(path) as text:
            assert text.buffer.raw.name == str(path)
        with path.open("r+b", buffering=0) as theirs:
            for mode in ["rb", "r+b", "r", "wb"]:
                before = len(list(Path("/proc/self/fd").iterdir()))
                file = await asyncio_files.open(theirs.fileno(), mode, closefd=False)
                assert file.fileno() == theirs.fileno()
                assert len(list(Path("/proc/self/fd").iterdir())) == before
                if mode == "r+b":
                    assert await file.write_at(2, b"ab") == 2
                    assert await file.read_at(1, 100) == b"1ab456789"
                    buffer = bytearray(3)
                    assert await file.readinto_at(8, buffer) == 2 and buffer == b"89\0"
                    assert await file.read_ranges([(0, 1), (3, 2)]) == [b"0", b"b4"]
                    assert (await file.stat()).st_size == 10
                    await file.fsync()
                    await file.write(b"xy")
                    assert (await file.read_at(0, 3)) == b"xya"
                await file.close()
                assert theirs.seek(0) == 0

    asyncio.run(main())


def test_an_open_that_is_not_awaited_says_so(tmp_path):
    opening = asyncio_files.open(tmp_path / "file", "w")
    for name in ("read", "write", "close", "fileno", "name"):
        with pytest.raises(AttributeError, match="was not awaited"):
            getattr(opening, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        opening.nothing
