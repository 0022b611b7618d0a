"""Files of nowait:// for asyncio, and other file systems of fsspec over nowait://."""

import gc
import inspect
import io
import os
import random
import tarfile
import zipfile

import pytest

try:
    import fsspec
    import fsspec.tests.abstract as abstract
    from fsspec.asyn import AbstractAsyncStreamedFile
    from fsspec.implementations.dirfs import DirFileSystem

    from nowait.fsspec import NowaitFileSystem, StreamedFile
except ImportError as error:
    if os.environ.get("NOWAIT_TEST_ALL") == "1":
        raise
    pytest.skip(f"{error.name} is not installed", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestDeprecationWarning")

DATA = random.Random(1).randbytes(300_000)


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self):
        return DirFileSystem("/", NowaitFileSystem(auto_mkdir=True))

    @pytest.fixture
    def fs_path(self, tmpdir):
        return str(tmpdir)


# DirFileSystem removes the slash from the end of a path, which these tests of directories need. They fail
# in the same way over LocalFileSystem.
class TestCopyBelow(abstract.AbstractCopyTests, Fixtures):
    test_copy_file_to_new_directory = None
    test_copy_directory_to_existing_directory = None


class TestGetBelow(abstract.AbstractGetTests, Fixtures):
    test_get_directory_to_existing_directory = None
    test_get_directory_to_new_directory = None
    test_get_directory_recursive = None


class TestPutBelow(abstract.AbstractPutTests, Fixtures):
    test_put_file_to_new_directory = None


class TestPipeBelow(abstract.AbstractPipeTests, Fixtures):
    pass


class TestOpenBelow(abstract.AbstractOpenTests, Fixtures):
    pass


@pytest.fixture
def path(tmp_path):
    (tmp_path / "file").write_bytes(DATA)
    return str(tmp_path / "file")


@pytest.fixture
def files():
    return NowaitFileSystem(asynchronous=True)


def test_the_same_methods_are_coroutines_as_in_fsspec():
    assert issubclass(StreamedFile, AbstractAsyncStreamedFile)
    # In fsspec they are no coroutines, and call the coroutine read() as if it were none.
    different = {"readinto", "readinto1", "readline", "readlines", "readuntil"}
    for name, theirs in inspect.getmembers(AbstractAsyncStreamedFile, inspect.isfunction):
        ours = getattr(StreamedFile, name)
        is_coroutine = inspect.iscoroutinefunction(theirs) or name in different
        assert inspect.iscoroutinefunction(ours) == is_coroutine, name


async def test_a_file_has_the_attributes_of_the_sync_one(files, path):
    with files.open(path) as theirs:
        async with await files.open_async(path) as file:
            assert (file.tell(), file.size, file.path, file.mode) == (0, len(DATA), path, "rb")
            assert (file.fs, file.info()["size"]) == (files, len(DATA))
            assert file.readable() and file.seekable() and not file.writable()
            assert (theirs.size, theirs.path) == (file.size, file.path)
            with pytest.raises(ValueError, match="write mode"):
                await file.write(b"a")
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        await file.read()
    await file.close()
    async with await files.open_async(path, "ab") as file:
        assert (file.tell(), file.seekable(), file.writable()) == (len(DATA), False, True)
        with pytest.raises(OSError):
            file.seek(0)
        with pytest.raises(ValueError, match="read mode"):
            await file.read()


async def test_reads_are_those_of_io_at_each_position(files, path):
    for seed in range(20):
        rng = random.Random(seed)
        theirs = io.BytesIO(DATA)
        async with await files.open_async(path) as ours:
            for _ in range(60):
                n = rng.choice([0, 1, 10, 5000, 70_000, 200_000])
                name = rng.choice(["read", "seek", "seek", "relative", "readline", "readinto", "end"])
                if name == "read":
                    assert await ours.read(n) == theirs.read(n)
                elif name == "seek":
                    assert ours.seek(n) == theirs.seek(n)
                elif name == "relative":
                    n = max(-theirs.tell(), rng.choice([-3, 3, -70_000, 70_000]))
                    assert ours.seek(n, 1) == theirs.seek(n, 1)
                elif name == "end":
                    assert ours.seek(-n, 2) == theirs.seek(-n, 2)
                elif name == "readline":
                    assert await ours.readline() == theirs.readline()
                else:
                    a, b = bytearray(n), bytearray(n)
                    assert (await ours.readinto(a), a) == (theirs.readinto(b), b)
                assert ours.tell() == theirs.tell()
            assert await ours.read() == theirs.read()
            ours.seek(7)
            assert await ours.readuntil(b"\n", 3) == DATA[7 : DATA.index(b"\n", 7) + 1]
            ours.seek(7)
            assert await ours.readlines() == io.BytesIO(DATA[7:]).readlines()
            ours.seek(7)
            assert b"".join([line async for line in ours]) == DATA[7:]


async def test_each_mode_writes_as_the_sync_file_does(tmp_path):
    for auto_mkdir in [False, True]:
        files = NowaitFileSystem(asynchronous=True, auto_mkdir=auto_mkdir, skip_instance_cache=True)
        for mode in ["wb", "ab", "xb"]:
            path = str(tmp_path / f"{auto_mkdir}{mode}" / "new" / "file")
            if not auto_mkdir:
                with pytest.raises(FileNotFoundError):
                    await files.open_async(path, mode)
                os.makedirs(os.path.dirname(path))
            file = await files.open_async(path, mode)
            assert [await file.write(b"abc"), await file.write(bytearray(b"de"))] == [3, 2]
            assert file.tell() == 5
            await file.flush()
            assert files.cat_file(path) == b"abcde"
            await file.close()
    for mode in ["r", "w", "r+b", "w+b"]:
        with pytest.raises(NotImplementedError):
            await files.open_async(path, mode)
    for options in [{"compression": "gzip"}, {"autocommit": False}]:
        with pytest.raises(NotImplementedError):
            await files.open_async(path, "wb", **options)
    assert files.cat_file(path) == b"abcde"


async def test_a_pipe_has_no_position(files, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    other = os.open(tmp_path / "fifo", os.O_RDWR)
    os.write(other, b"bytes")
    async with await files.open_async(str(tmp_path / "fifo")) as file:
        assert not file.seekable()
        assert await file.read(5) == b"bytes"
    os.close(other)


async def test_a_file_that_is_not_closed_is_reported(files, path, recwarn):
    file = await files.open_async(path)
    del file
    gc.collect()
    assert [warning.category for warning in recwarn] == [ResourceWarning]


async def test_a_directory_of_nowait_has_the_same_files(path):
    directory, name = os.path.split(path)
    below = DirFileSystem(directory, NowaitFileSystem(asynchronous=True), asynchronous=True)
    async with await below.open_async(name) as file:
        file.seek(100)
        assert await file.read(10) == DATA[100:110]
    assert await below._cat_file(name, 5, 9) == DATA[5:9]
    assert await below._cat_ranges([name], [1], [3]) == [DATA[1:3]]
    await below._pipe_file("other", b"abc")
    assert sorted(await below._ls("", detail=False)) == ["file", "other"]
    await below._rm_file("other")
    assert not await below._exists("other")


@pytest.mark.parametrize("kind", ["simplecache", "filecache", "blockcache"])
def test_a_cache_over_nowait_has_the_same_bytes(kind, path, tmp_path):
    options = {"cache_storage": str(tmp_path / "cache")}
    target = {"target_protocol": "nowait", **options}
    cache = fsspec.filesystem(kind, **target, skip_instance_cache=True)
    for _ in range(2):
        with cache.open(path) as file:
            file.seek(123_456)
            assert file.read(1000) == DATA[123_456:124_456]
            file.seek(0)
            assert file.read() == DATA
            file.seek(5)
            assert file.read(4) == DATA[5:9]
        assert cache.info(path)["size"] == len(DATA)
        assert cache.ls(os.path.dirname(path), detail=False).count(path) == 1
    # fsspec's blockcache cannot close a file of LocalFileSystem in another way than by `with`.
    if kind != "blockcache":
        with fsspec.open(f"{kind}::nowait://{path}", **{kind: options}) as file:
            assert file.read() == DATA
        with fsspec.open(f"{kind}::nowait://{path}2", "wb", **{kind: options}) as file:
            file.write(b"abc")
        assert NowaitFileSystem().cat_file(f"{path}2") == b"abc"
        cache.pipe(f"{path}3", b"abcd")
        assert NowaitFileSystem().cat_file(f"{path}3") == b"abcd"


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_on_nowait_has_the_same_bytes(kind, path, tmp_path):
    archive = str(tmp_path / f"archive.{kind}")
    if kind == "zip":
        made = fsspec.filesystem("zip", fo=f"nowait://{archive}", mode="w")
        made.pipe("dir/file", DATA)
        made.close()
        with zipfile.ZipFile(archive) as read:
            assert read.read("dir/file") == DATA
    else:
        with tarfile.open(archive, "w") as made:
            made.add(path, "dir/file")
    opened = fsspec.filesystem(kind, fo=f"nowait://{archive}")
    assert opened.find("") == ["dir/file"]
    assert opened.cat("dir/file") == DATA
    with opened.open("dir/file") as file:
        file.seek(1000)
        assert file.read(10) == DATA[1000:1010]
    with fsspec.open(f"{kind}://dir/file::simplecache::nowait://{archive}") as file:
        assert file.read() == DATA


def test_an_error_of_close_is_raised(full_at_close):
    files = NowaitFileSystem()
    path = str(full_at_close / "file")
    with pytest.raises(OSError) as raised:
        files.pipe_file(path, b"abc")
    assert raised.value.errno == 122


async def test_an_error_of_close_is_raised_by_coroutines(full_at_close, files):
    path = str(full_at_close / "file")

    async def written():
        file = await files.open_async(path, "wb")
        await file.write(b"abc")
        try:
            await file.close()
        finally:
            assert file.closed

    for call in [files._pipe_file(path, b"abc"), written(), files._cat_file(path)]:
        with pytest.raises(OSError) as raised:
            await call
        assert raised.value.errno == 122
