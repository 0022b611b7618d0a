"""warm() and evict()."""

import os
import threading

import pytest
from helpers import descriptors, python, reclaimed, settles, skip, threads, unless

import nowait

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


def cached(path) -> int:
    answer = nowait.residency(path)
    assert answer.unknown is None
    return sum(end - start for start, end in answer.ranges)


@unless(reclaimed)
def test_missing_parts_are_read_and_evicted_again(make):
    path = make("data", 3 * MIB + 5)
    assert cached(path) == 0
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), MIB, MIB)
    before = cached(path)
    assert 0 < before < 3 * MIB
    result = nowait.warm(path)
    assert (result.files, result.bytes) == (1, 3 * MIB + 5)
    assert result.cached_before == before
    assert result.read_bytes == 3 * MIB + 5 - before
    assert result.cached_after == 3 * MIB + 5 == cached(path)
    assert (result.failed, result.errors, result.unknown) == (0, [], [])
    assert (result.not_read_bytes, result.not_read_reason) == (0, None)
    assert result.backend in ("uring", "threads") and result.seconds > 0
    evicted = nowait.evict(path)
    assert (evicted.files, evicted.stayed_bytes, evicted.stayed) == (1, 0, {})
    assert evicted.cached_bytes == evicted.evicted_bytes == 3 * MIB + PAGE
    assert cached(path) == 0


@unless(reclaimed)
def test_every_kind_of_argument(make, disk):
    first, second = make("tree/a\udcff", PAGE), make("tree/below/b", PAGE)
    other = make("other", PAGE)
    fd = os.open(other, os.O_RDONLY)
    folder = os.open(disk / "tree", os.O_RDONLY)
    try:
        for paths, files in [
            (disk, 3),
            (str(disk), 3),
            (bytes(disk), 3),
            ([first, bytes(second), fd], 3),
            (iter([disk / "tree", disk]), 3),
            (folder, 2),
            (fd, 1),
            ({first: 1}, 1),
            ([], 0),
        ]:
            assert nowait.evict(disk).stayed_bytes == 0
            result = nowait.warm(paths)
            assert (result.files, result.read_bytes) == (files, files * PAGE), paths
            again = paths if not hasattr(paths, "__next__") else [disk]
            assert nowait.evict(again).evicted_bytes == files * PAGE, paths
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
    finally:
        os.close(fd)
        os.close(folder)


def test_links_are_followed_only_if_they_are_given(make, disk):
    target = make("elsewhere/target", PAGE)
    (disk / "tree").mkdir()
    os.symlink(target, disk / "tree" / "link")
    assert nowait.warm(disk / "tree").files == 0
    assert nowait.warm(disk / "tree" / "link").files == 1


def test_the_budget_is_kept(make):
    path = make("data", 4 * MIB)
    result = nowait.warm(path, budget=MIB)
    assert result.read_bytes <= MIB and result.not_read_bytes >= 3 * MIB
    assert "budget" in result.not_read_reason
    assert cached(path) <= MIB
    assert nowait.warm(path, budget=0).read_bytes == 0
    assert nowait.warm(path, budget="0%").read_bytes == 0
    assert nowait.warm(path, budget="1M").not_read_bytes > 0
    assert nowait.warm(path, budget="100%").cached_after == 4 * MIB


def test_progress_is_reported_in_the_calling_thread(make):
    path = make("data", MIB)
    seen = []
    result = nowait.warm(
        path,
        rate="2M",
        progress=lambda progress: seen.append((threading.get_ident(), progress)),
    )
    assert result.read_bytes == MIB
    assert {thread for thread, _ in seen} == {threading.get_ident()}
    numbers = [progress.read_bytes for _, progress in seen]
    assert numbers == sorted(numbers) and numbers[-1] == MIB


def test_a_percentage_is_reported_when_the_total_was_counted(make, disk):
    (disk / "tree").mkdir()
    for i in range(64):
        make(f"tree/{i}", 16 * PAGE)
    os.link(disk / "tree/0", disk / "tree/other name")
    total = 64 * 16 * PAGE
    seen = []

    class Enough(Exception):
        pass

    def see(progress):
        seen.append(progress)
        percentages = {progress.percent for progress in seen} - {None}
        if len(percentages) > 2:
            raise Enough

    # At this rate the call takes a minute.
    with pytest.raises(Enough):
        nowait.warm([disk / "tree", disk / "tree/1"], rate=total // 60, progress=see)
    known = [progress for progress in seen if progress.total_bytes is not None]
    for progress in seen:
        if progress not in known:
            assert progress.percent is None
            assert "total_bytes=None, percent=None" in repr(progress)
    for progress in known:
        assert progress.total_bytes == total
        assert progress.percent == pytest.approx(100 * progress.done_bytes / total)
    percentages = [progress.percent for progress in known]
    assert percentages == sorted(percentages) and percentages[-1] < 100
    assert f"total_bytes={total}, percent={percentages[-1]:.1f}" in repr(known[-1])


def test_cached_bytes_are_done(make):
    path = make("data", MIB)
    nowait.warm(path)
    seen = []
    result = nowait.warm(path, progress=seen.append)
    # The kernel may reclaim pages.
    assert result.cached_before + result.read_bytes == MIB
    assert seen[-1].done_bytes == MIB and seen[-1].read_bytes == result.read_bytes


def test_an_exception_of_the_callback_ends_the_call(make):
    path = make("data", MIB)

    def fail(progress):
        raise KeyError("mine")

    before = threads(), descriptors()
    with pytest.raises(KeyError, match="mine"):
        nowait.warm(path, rate=PAGE, progress=fail)
    assert settles(before)


def test_failures_of_given_files_are_those_of_open(make, disk):
    good = make("good", PAGE)
    os.mkfifo(disk / "fifo")
    for function in [nowait.warm, nowait.evict]:
        for order in [[disk / "missing", good], [good, disk / "missing"]]:
            with pytest.raises(FileNotFoundError) as error:
                function(order)
            assert error.value.errno == 2
            assert error.value.filename == disk / "missing"
        with pytest.raises(FileNotFoundError) as error:
            function(bytes(disk / "missing"))
        assert error.value.filename == bytes(disk / "missing")
        with pytest.raises(NotADirectoryError):
            function(good / "below")
        with pytest.raises(OSError, match="FIFO") as error:
            function(disk / "fifo")
        assert error.value.filename == disk / "fifo"
        with pytest.raises(OSError, match="device"):
            function("/dev/null")


def test_failures_below_directories_are_collected(make, disk):
    if os.geteuid() != 0:
        skip("only root can become another user")
    make("tree/good", PAGE)
    closed = make("tree/closed\udcff", PAGE)
    closed.chmod(0)
    code = """if True:
        import os, sys, nowait
        os.setgroups([]); os.setuid(65534)
        for function in [nowait.warm, nowait.evict]:
            result = function(os.fsdecode(sys.argv[1]))
            assert result.files == 1, result
            assert result.failed == 1
            [error] = result.errors
            assert type(error) is PermissionError and error.errno == 13
            assert error.strerror == os.strerror(13)
            assert os.fsencode(error.filename).endswith(b"closed\\xff"), error
            try:
                function(error.filename)
            except PermissionError as same:
                assert same.filename == error.filename
            else:
                raise AssertionError
    """
    run = python(code, disk / "tree")
    assert run.returncode == 0, run.stderr


def test_wrong_arguments(make):
    path = make("data", PAGE)
    fd = os.open(path, os.O_RDONLY)
    os.close(fd)
    for wrong, error in [
        (fd, OSError),
        (-1, OSError),
        (2**40, OverflowError),
        ("a\0b", ValueError),
        ([path, b"\0"], ValueError),
        (None, TypeError),
        (1.5, TypeError),
        ([path, None], TypeError),
    ]:
        for function in [nowait.warm, nowait.evict]:
            with pytest.raises(error):
                function(wrong)
    for name in ["budget", "rate"]:
        for value, error in [
            (-1, ValueError),
            (2**64, ValueError),
            ("", ValueError),
            ("x", ValueError),
            ("101%", ValueError),
            ("-1", ValueError),
            ([], TypeError),
        ]:
            with pytest.raises(error):
                nowait.warm(path, **{name: value})
    with pytest.raises(TypeError):
        nowait.warm(path, budget=1.5)
    with pytest.raises(ValueError):
        nowait.warm(path, rate=0)
    with pytest.raises(TypeError):
        nowait.warm(path, progress=1)
    with pytest.raises(TypeError):
        nowait.warm(path, 1)


def test_an_exception_of_the_iterable_is_raised(make):
    path = make("data", PAGE)

    def paths():
        yield path
        raise KeyError("mine")

    for function in [nowait.warm, nowait.evict]:
        with pytest.raises(KeyError, match="mine"):
            function(paths())


def test_dirty_and_mapped_pages_stay(disk):
    import mmap

    path = disk / "data"
    with open(path, "w+b") as file:
        file.write(bytes(PAGE))
        file.flush()
        stayed = nowait.evict(file.fileno()).stayed
        if stayed:
            assert set(stayed) <= {"dirty", "writeback", "held", "mixed"}
        os.fsync(file.fileno())
        with mmap.mmap(file.fileno(), PAGE) as mapped:
            mapped[0]
            assert nowait.evict(path).stayed == {"mapped": PAGE}
    assert nowait.evict(path).stayed == {}


def test_files_that_shrink_meanwhile(make):
    path = make("data", 2 * MIB)

    def shrink(progress):
        os.truncate(path, MIB // 2)

    result = nowait.warm(path, rate="4M", progress=shrink)
    assert result.read_bytes <= 2 * MIB


def test_many_threads_at_once(make, disk):
    for i in range(8):
        make(f"{i}", MIB)
    failed = []

    def work():
        try:
            for _ in range(10):
                nowait.warm(disk)
                nowait.evict(disk)
                nowait.residency(disk / "0")
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failed == []


def test_nothing_is_left_of_many_calls(make, disk):
    path = make("data", PAGE, cached=True)
    nowait.warm(path)
    before = threads(), descriptors()
    for i in range(1000):
        nowait.warm(path)
        if i % 10 == 0:
            nowait.evict(path)
            with pytest.raises(FileNotFoundError):
                nowait.warm(disk / "missing")
    assert settles(before)


def test_open_files_are_arguments(disk):
    path = disk / "file"
    path.write_bytes(bytes(MIB))
    with open(path, "rb") as file:
        assert nowait.warm(file).bytes == MIB
        assert nowait.warm([file, path]).files == 1
        assert nowait.residency(file).size == MIB
        assert nowait.evict(file).files == 1
        assert file.tell() == 0
    for call in (nowait.warm, nowait.residency, nowait.evict):
        with pytest.raises(ValueError):
            call(file)
        with pytest.raises(TypeError):
            call(object())


def test_a_rate_may_be_a_float(disk):
    path = disk / "file"
    path.write_bytes(bytes(MIB))
    assert nowait.warm(path, rate=1e9).bytes == MIB
    for rate in (0.0, -1.0, 0.5, float("nan"), float("inf"), 2.0**64):
        with pytest.raises(ValueError, match="rate should be"):
            nowait.warm(path, rate=rate)
