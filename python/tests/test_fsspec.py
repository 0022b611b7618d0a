"""nowait:// for fsspec: its own tests, those of zarr, and the programs that read through it."""

import asyncio
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import HANG, evict, python

try:
    import fsspec
    import fsspec.tests.abstract as abstract
    import zarr
    from zarr.core.buffer import cpu
    from zarr.storage import FsspecStore
    from zarr.testing.store import StoreTests

    from nowait.fsspec import NowaitFileSystem
except ImportError as error:
    if os.environ.get("NOWAIT_TEST_ALL") == "1":
        raise
    pytest.skip(f"{error.name} is not installed", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestDeprecationWarning")


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self):
        return NowaitFileSystem(auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, tmpdir):
        return str(tmpdir)


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestZarrStore(StoreTests[FsspecStore, cpu.Buffer]):
    store_cls = FsspecStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, tmp_path):
        path = tmp_path / "store"
        path.mkdir()
        return {"fs": NowaitFileSystem(asynchronous=True, auto_mkdir=True), "path": str(path)}

    async def set(self, store, key, value):
        path = Path(store.path) / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value.to_bytes())

    async def get(self, store, key):
        return self.buffer_cls.from_bytes((Path(store.path) / key).read_bytes())

    def test_store_repr(self, store):
        assert "NowaitFileSystem" in str(store)

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing


def test_the_protocol_is_known(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    with fsspec.open(f"nowait://{tmp_path}/a") as file:
        assert file.read() == b"abc"
    assert isinstance(fsspec.filesystem("nowait"), NowaitFileSystem)
    assert fsspec.filesystem("nowait") is fsspec.filesystem("nowait")


def test_ranges_are_slices(tmp_path):
    """fsspec documents them as `like usual python slices`; its memory file system is so."""
    path, data = str(tmp_path / "a"), bytes(range(20))
    (tmp_path / "a").write_bytes(data)
    limits = [None, 0, 1, 5, 6, 19, 20, 21, 30, -1, -5, -19, -20, -21, -30]
    ranges = [(start, end) for start in limits for end in limits]
    expected = [data[start:end] for start, end in ranges]
    fs, memory = fsspec.filesystem("nowait"), fsspec.filesystem("memory")
    memory.pipe("/a", data)
    starts, ends = [start for start, _ in ranges], [end for _, end in ranges]

    async def coroutines():
        fs = NowaitFileSystem(asynchronous=True)
        one_by_one = [await fs._cat_file(path, *limits) for limits in ranges]
        return one_by_one, await fs._cat_ranges([path] * len(ranges), starts, ends)

    assert asyncio.run(coroutines()) == (expected, expected)
    assert fs.cat_ranges([path] * len(ranges), starts, ends) == expected
    for start, end in ranges:
        assert memory.cat_file("/a", start, end) == data[start:end]
        assert fs.cat_file(path, start, end) == data[start:end], (start, end)
        assert fs.cat(path, start=start, end=end) == data[start:end], (start, end)


def test_calls_within_the_loop_of_fsspec(tmp_path):
    """As with all asynchronous file systems, coroutines are called there."""
    path = str(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"abc")
    fs = fsspec.filesystem("nowait")

    async def within():
        with pytest.raises(NotImplementedError, match="running loop"):
            fs.cat_ranges([path], [0], [1])
        with pytest.raises(NotImplementedError, match="running loop"):
            fs.cat(path)
        assert await fs._cat(path) == b"abc"
        return await fs._cat_ranges([path], [0], [1])

    assert fsspec.asyn.sync(fs.loop, within) == [b"a"]


def test_ranges_are_those_of_the_local_file_system(make, disk):
    for i in range(5):
        make(str(i), 100_000 * i)
    paths = [str(disk / str(i % 6)) for i in range(60)]
    starts = [-i * 7 if i % 3 == 0 else i * 1009 for i in range(60)]
    ends = [None if i % 3 < 2 else starts[i] + i * 900 for i in range(60)]
    starts[1:60:6], ends[1:60:6] = [0] * 10, [-i for i in range(1, 11)]
    ours, theirs = fsspec.filesystem("nowait"), fsspec.filesystem("file")
    expected = theirs.cat_ranges(paths, starts, ends)
    for cached in [False, True]:
        if not cached:
            evict(disk)
        assert [repr(piece) for piece in ours.cat_ranges(paths, starts, ends)] == [
            repr(piece) for piece in expected
        ]
    with pytest.raises(FileNotFoundError):
        ours.cat_ranges(paths, starts, ends, on_error="raise")
    for wrong in [(paths, [1], None), (paths, 0, [1, 2])]:
        with pytest.raises(ValueError):
            ours.cat_ranges(*wrong)
    with pytest.raises(TypeError):
        ours.cat_ranges("a", 0, 1)
    for path in paths[:5]:
        assert ours.cat_file(path) == theirs.cat_file(path)
        assert ours.cat(path, start=-5) == theirs.cat(path, start=-5)
    assert ours.cat(paths[:5]) == theirs.cat(paths[:5])


def test_listings_are_those_of_the_local_file_system(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a/b")
    (tmp_path / "broken").symlink_to("none")
    os.mkfifo(tmp_path / "fifo")
    ours, theirs = fsspec.filesystem("nowait"), fsspec.filesystem("file")

    def by_name(found):
        return sorted(found, key=lambda info: info["name"])

    for path in ["", "a", "a/b"]:
        path = str(tmp_path / path)
        assert by_name(ours.ls(path, detail=True)) == by_name(theirs.ls(path, detail=True))
        assert sorted(ours.ls(path)) == sorted(theirs.ls(path))
        assert ours.find(path) == theirs.find(path)
        assert asyncio.run(ours._find(path)) == theirs.find(path)
    assert ours.du(str(tmp_path / "a")) == theirs.du(str(tmp_path / "a"))
    assert ours.glob(str(tmp_path / "*")) == theirs.glob(str(tmp_path / "*"))
    with pytest.raises(FileNotFoundError):
        ours.ls(tmp_path / "none")


def test_coroutines_run_in_any_loop(tmp_path):
    async def main():
        files = NowaitFileSystem(asynchronous=True)
        path = str(tmp_path / "a")
        await files._pipe_file(path, b"0123456789")
        with pytest.raises(FileExistsError):
            await files._pipe_file(path, b"", mode="create")
        assert await files._cat_file(path, -3) == b"789"
        assert await files._exists(path) and not await files._exists(path + "b")
        assert (await files._info(path))["size"] == 10
        async with await files.open_async(path) as file:
            assert await file.read(2) == b"01"
        await files._rm_file(path)
        assert not await files._exists(path)
        (tmp_path / "b" / "c").mkdir(parents=True)
        await files._rm(str(tmp_path / "b"), recursive=True)
        assert not (tmp_path / "b").exists()
        assert await files._ls(str(tmp_path)) == []

    asyncio.run(main())
    asyncio.run(main())


def test_an_instance_is_pickled_and_works_after_a_fork(tmp_path):
    for i in range(10):
        (tmp_path / str(i)).write_bytes(bytes([i]))
    code = """if True:
        import os, pickle, sys
        import fsspec
        files = fsspec.filesystem("nowait")
        paths = [f"{sys.argv[1]}/{i}" for i in range(10)]
        expected = [bytes([i]) for i in range(10)]
        assert files.cat_ranges(paths, 0, 1) == expected
        child = os.fork()
        if child == 0:
            assert files.cat_ranges(paths, 0, 1) == expected
            assert fsspec.filesystem("nowait").cat_ranges(paths, 0, 1) == expected
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(pickle.loads(pickle.dumps(files)) is files)
    """
    done = python(code, tmp_path)
    assert done.stdout == "True\n", done.stderr
    files = fsspec.filesystem("nowait")
    with files.open(str(tmp_path / "1")) as file:
        assert pickle.loads(pickle.dumps(file)).read() == b"\x01"


def test_pandas_and_zarr_read_and_write(tmp_path):
    import numpy
    import pandas

    frame = pandas.DataFrame({"a": numpy.arange(1000), "b": ["x", "y"] * 500})
    frame.to_parquet(f"nowait://{tmp_path}/frame.parquet")
    frame.to_csv(f"nowait://{tmp_path}/frame.csv", index=False)
    pandas.testing.assert_frame_equal(
        pandas.read_parquet(f"nowait://{tmp_path}/frame.parquet", columns=["b"]), frame[["b"]]
    )
    pandas.testing.assert_frame_equal(pandas.read_csv(f"nowait://{tmp_path}/frame.csv"), frame)
    data = numpy.random.default_rng(1).random((200, 300))
    url = f"nowait://{tmp_path}/array"
    zarr.create_array(url, data=data, chunks=(32, 64), storage_options={"auto_mkdir": True})
    assert (zarr.open_array(url, mode="r")[:] == data).all()


def test_dask_reads_a_data_set_in_two_processes(tmp_path):
    code = """if True:
        import sys
        import dask.dataframe as dd
        import pandas
        from distributed import Client, LocalCluster
        def main():
            url = f"nowait://{sys.argv[1]}/set"
            cluster = LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None)
            with cluster, Client(cluster):
                frame = pandas.DataFrame({"k": [i % 7 for i in range(10_000)], "v": range(10_000)})
                parts = dd.from_pandas(frame, npartitions=8)
                parts.to_parquet(url, partition_on="k", storage_options={"auto_mkdir": True})
                read = dd.read_parquet(url, storage_options={"auto_mkdir": True})
                sums = read.groupby("k").v.sum().compute()
                expected = frame.groupby("k").v.sum()
                assert {int(k): int(v) for k, v in sums.items()} == expected.to_dict()
                assert len(read[read.k == 3].compute()) == (frame.k == 3).sum()
            print("done")
        if __name__ == "__main__":
            main()
    """
    script = tmp_path / "work.py"
    script.write_text(code)
    command = [sys.executable, script, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.stdout == "done\n", done.stderr
