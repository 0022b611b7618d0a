"""read_ahead(), and the ranges of tensors."""

import errno
import gc
import json
import mmap
import os
import random
import signal
import struct
import threading
import time
import weakref
from pathlib import Path

import pytest
from helpers import (
    HANG,
    descriptors,
    evict,
    python,
    reclaimed,
    settles,
    skip,
    stop,
    threads,
    unless,
)

import nowait

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


def cached(path) -> int:
    return sum(end - start for start, end in nowait.residency(path).ranges)


def ended(reading, size: int) -> None:
    """Waits until the thread has read these bytes, or has left them out."""
    end = time.monotonic() + HANG
    while time.monotonic() < end:
        report = reading.report()
        if report.read_bytes + report.was_resident_bytes + report.not_read_bytes >= size:
            return
        time.sleep(0.01)
    raise AssertionError(report)


@unless(reclaimed)
def test_missing_parts_are_read_while_the_context_lasts(make, disk):
    first, second = make("b", 3 * MIB + 7), make("a", MIB)
    fd = os.open(first, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, MIB, MIB)
    before = cached(first)
    assert 0 < before < 3 * MIB
    with nowait.read_ahead([fd, second]) as reading:
        ended(reading, 4 * MIB + 7)
        assert cached(first) + cached(second) == 4 * MIB + 7
        assert first.read_bytes()[:10] == os.pread(fd, 10, 0)
    report = reading.report()
    assert report.read_bytes == 4 * MIB + 7 - before
    assert report.was_resident_bytes == before
    assert report.wasted_bytes == 0
    assert (report.not_read_bytes, report.not_read_reason) == (0, None)
    assert (report.failed, report.errors) == (0, [])
    os.close(fd)
    nowait.evict(disk)
    assert reading.report().wasted_bytes == report.read_bytes


@unless(reclaimed)
def test_nothing_is_read_of_cached_files(make):
    path = make("data", MIB, cached=True)
    with nowait.read_ahead(path) as reading:
        ended(reading, MIB)
        report = reading.report()
    assert (report.read_bytes, report.was_resident_bytes) == (0, MIB)


@unless(reclaimed)
def test_only_its_own_pages_are_evicted(make):
    path = make("data", 2 * MIB)
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), 4 * PAGE, MIB)
    before = nowait.residency(path).ranges
    with nowait.read_ahead(path, evict_after=True) as reading:
        ended(reading, 2 * MIB)
        assert cached(path) == 2 * MIB
    after = nowait.residency(path).ranges
    # The kernel reads ahead in large folios, and keeps those that reach beyond a range.
    assert cached(path) <= 2 * sum(end - start for start, end in before)
    for start, end in before:
        assert any(a <= start and end <= b for a, b in after), (before, after)


@pytest.mark.parametrize("is_evicted_before", [False, True])
def test_what_it_evicts_itself_is_not_wasted(make, is_evicted_before):
    size = 8 * MIB
    path = make("data", size)
    with nowait.read_ahead(path, evict_after=True) as reading:
        with open(path, "rb", buffering=0) as file:
            reads(reading, size - 64 * 1024)
            for at in range(0, size, MIB):
                # The program is not seen: pread(2) moves no position.
                os.pread(file.fileno(), MIB, at)
        if is_evicted_before:
            nowait.evict(path)
        before = reading.report()
    report = reading.report()
    assert cached(path) < MIB
    assert report.wasted_bytes == before.wasted_bytes
    assert report.wasted_bytes >= report.read_bytes - MIB if is_evicted_before else before.wasted_bytes == 0
    assert reading.report().wasted_bytes == report.wasted_bytes


def test_the_budget_is_kept(make):
    path = make("data", 4 * MIB)
    with nowait.read_ahead(path, budget=MIB) as reading:
        ended(reading, 4 * MIB)
        report = reading.report()
    assert report.read_bytes <= MIB and report.not_read_bytes >= 3 * MIB
    assert "budget" in report.not_read_reason
    with pytest.raises(ValueError):
        nowait.read_ahead(path, budget=-1)


def reads(reading, size: int) -> None:
    """Waits until these bytes were read. Another program may evict them meanwhile."""
    end = time.monotonic() + HANG
    while (report := reading.report()).read_bytes < size:
        assert time.monotonic() < end, report
        time.sleep(0.01)


def test_a_window_ahead_of_a_mapping_is_read(make):
    size = 64 * MIB
    path = make("data", size)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        # This process does not start the kernel's readahead.
        mapped.madvise(mmap.MADV_RANDOM)
        # The budget does not hold the file: a quarter of it is read ahead.
        with nowait.read_ahead(path, budget=16 * MIB) as reading:
            for number, at in enumerate([0, 32 * MIB, 8 * MIB], 1):
                assert mapped[at] >= 0
                reads(reading, number * 4 * MIB - 64 * 1024)
                assert reading.report().read_bytes <= number * 4 * MIB
            report = reading.report()
            assert report.not_read_bytes > 48 * MIB and "budget" in report.not_read_reason
            end = time.monotonic() + HANG
            while reading.report().not_read_bytes:
                assert sum(mapped[at] for at in range(0, size, MIB)) > 0
                assert time.monotonic() < end
    nowait.evict(path)
    report = reading.report()
    assert report.wasted_bytes <= 8 * MIB < report.read_bytes


def test_a_window_ahead_of_read_is_read(make):
    size = 64 * MIB
    path = make("data", size)
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        assert len(file.read(PAGE)) == PAGE
        with nowait.read_ahead(path, budget=16 * MIB) as reading:
            # The position is never 0, where a read is not seen.
            for at in range(0, size, MIB):
                file.read(at + MIB - file.tell())
                # The first read may have been earlier than the examination.
                reads(reading, min(at + 5 * MIB, size) - MIB - 64 * 1024)
                assert reading.report().read_bytes <= at + 6 * MIB
    nowait.evict(path)
    assert reading.report().wasted_bytes <= 16 * MIB


def test_failures(make, disk):
    path = make("data", PAGE)
    with pytest.raises(FileNotFoundError) as error:
        with nowait.read_ahead([path, disk / "missing"]):
            raise AssertionError
    assert error.value.filename == disk / "missing"
    with pytest.raises(KeyError, match="mine"):
        with nowait.read_ahead(path):
            raise KeyError("mine")
    reading = nowait.read_ahead(path)
    with reading:
        pass
    with pytest.raises(RuntimeError, match="once"):
        with reading:
            pass
    for wrong in [None, 1.5, [None]]:
        with pytest.raises(TypeError):
            nowait.read_ahead(wrong)
    with nowait.read_ahead(path):
        os.unlink(path)
    if os.geteuid() == 0:
        closed = make("closed", PAGE)
        closed.chmod(0)
        code = """if True:
            import os, sys, nowait
            os.setgroups([]); os.setuid(65534)
            with nowait.read_ahead(sys.argv[1]) as reading:
                while not reading.report().failed: pass
            [error] = reading.report().errors
            assert type(error) is PermissionError and error.filename == sys.argv[1], error
        """
        run = python(code, closed)
        assert run.returncode == 0, run.stderr


def test_nothing_is_left(make):
    path = make("data", MIB)
    with nowait.read_ahead(path):
        pass
    before = threads(), descriptors()
    for i in range(300):
        with nowait.read_ahead(path, evict_after=True) as reading:
            if i % 2:
                path.read_bytes()
        reading.report()
        nowait.read_ahead(path).__enter__()
        gc.collect()
    assert settles(before)


def test_a_cycle_of_references_is_collected(make):
    class Mine(os.PathLike):
        def __fspath__(self):
            return str(path)

    path = make("data", MIB)
    mine = Mine()
    mine.reading = nowait.read_ahead(mine)
    collected = weakref.ref(mine)
    with mine.reading:
        pass
    del mine
    gc.collect()
    assert collected() is None


@unless(reclaimed)
def test_a_forked_child(make):
    path = make("data", MIB)
    with nowait.read_ahead(path, evict_after=True) as reading:
        ended(reading, MIB)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                reading.__exit__(None, None, None)
                try:
                    reading.report()
                except RuntimeError as error:
                    code = 0 if "fork" in str(error) else 2
                del reading
                gc.collect()
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert cached(path) == MIB
        assert reading.report().read_bytes == MIB
    assert cached(path) < MIB


def test_the_end_of_the_interpreter(make):
    path = make("data", 8 * MIB)
    code = """if True:
        import sys, nowait
        reading = nowait.read_ahead(sys.argv[1])
        reading.__enter__()
    """
    for _ in range(5):
        nowait.evict(path)
        run = python(code, path)
        assert (run.returncode, run.stderr) == (0, "")


def write(path, tensors, text=None, length=None, data=None):
    """Writes a safetensors file of tensors of bytes."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, size in tensors.items():
        offsets = [offset, offset + size]
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": offsets}
        offset += size
    text = json.dumps(header).encode() if text is None else text
    length = len(text) if length is None else length
    with open(path, "wb") as file:
        file.write(
            struct.pack("<Q", length) + text + (os.urandom(offset) if data is None else data)
        )
        os.fsync(file.fileno())
    return 8 + len(text)


@unless(reclaimed)
def test_only_the_chosen_tensors_are_read(disk):
    path = disk / "model.safetensors"
    begin = write(path, {"a": MIB, "b": MIB, "c": MIB, "empty": 0})
    for names, at in [(["b"], [(MIB, 2 * MIB)]), (["c", "a"], [(0, MIB), (2 * MIB, 3 * MIB)])]:
        nowait.evict(path)
        with nowait.read_ahead.safetensors(path, names) as reading:
            ended(reading, len(names) * MIB)
            report = reading.report()
        resident = nowait.residency(path).ranges
        for start, end in at:
            inside = [(a, b) for a, b in resident if a <= begin + start and begin + end <= b]
            assert inside, (resident, at)
        assert report.read_bytes + report.was_resident_bytes == len(names) * MIB
        assert cached(path) < len(names) * MIB + MIB // 2
    nowait.evict(path)
    with nowait.read_ahead.safetensors(path) as reading:
        ended(reading, path.stat().st_size)
    assert cached(path) == path.stat().st_size
    with nowait.read_ahead.safetensors(path, ["empty"]), nowait.read_ahead.safetensors(path, []):
        pass
    with pytest.raises(KeyError, match="missing"):
        nowait.read_ahead.safetensors(path, ["a", "missing"])
    for wrong in [[1], "a", 1]:
        with pytest.raises(TypeError):
            nowait.read_ahead.safetensors(path, wrong)


def test_a_model_in_several_files(disk):
    write(disk / "1.safetensors", {"a": MIB})
    write(disk / "2.safetensors", {"b": MIB, "c": MIB})
    index = disk / "model.safetensors.index.json"
    weights = {"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"}
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weights}))
    nowait.evict(disk)
    with nowait.read_ahead.safetensors(index, ["b"]) as reading:
        ended(reading, MIB)
    assert cached(disk / "1.safetensors") == 0
    assert MIB <= cached(disk / "2.safetensors") < 2 * MIB
    with nowait.read_ahead.safetensors(index) as reading:
        ended(reading, 3 * MIB)
    assert cached(disk / "1.safetensors") > MIB
    for wrong in ["../1.safetensors", "/etc/passwd", "", "..", "a\0b"]:
        index.write_text(json.dumps({"weight_map": {"a": wrong}}))
        with pytest.raises(ValueError):
            nowait.read_ahead.safetensors(index)
    for text in ["", "[]", "{", '{"weight_map": 1}', "[" * 10_000, '{"weight_map": {"a": 1}}']:
        index.write_text(text)
        with pytest.raises(ValueError):
            nowait.read_ahead.safetensors(index)
    index.write_text(json.dumps({"weight_map": {"a": "missing.safetensors"}}))
    with pytest.raises(FileNotFoundError) as error:
        nowait.read_ahead.safetensors(index)
    assert error.value.filename == str(disk / "missing.safetensors")


def test_hostile_headers(disk):
    path = disk / "model.safetensors"
    good = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    for text, length, data in [
        (b"", 0, b""),
        (b"{}", 3, b""),
        (b"{}", 2**63, b""),
        (b"{}", 2**64 - 1, b""),
        (b"{}", 100_000_001, b""),
        (b"[1]", None, b""),
        (b"{" * 50_000, None, b""),
        (b"\xff\xfe", None, b""),
        (b'{"a": 1}', None, b""),
        (b'{"a": {}}', None, b""),
        (b'{"a": {"dtype": "U8"}}', None, b""),
        (json.dumps({"a": {**good, "data_offsets": [0, 5]}}).encode(), None, b"1234"),
        (json.dumps({"a": {**good, "data_offsets": [4, 0]}}).encode(), None, b"1234"),
        (json.dumps({"a": {**good, "data_offsets": [-1, 4]}}).encode(), None, b"1234"),
        (json.dumps({"a": {**good, "data_offsets": [0, 2**64]}}).encode(), None, b"1234"),
        (json.dumps({"a": {**good, "data_offsets": [0, 1, 2]}}).encode(), None, b"1234"),
        (json.dumps({"a": {**good, "data_offsets": [0, 2**64 - 1]}}).encode(), None, b"1234"),
    ]:
        write(path, {}, text, length, data)
        for names in [None, ["a"]]:
            with pytest.raises(ValueError) as error:
                nowait.read_ahead.safetensors(path, names)
            assert str(path) in str(error.value)
    path.write_bytes(b"1234567")
    with pytest.raises(ValueError, match="truncated"):
        nowait.read_ahead.safetensors(path)
    os.mkfifo(disk / "fifo")
    for name, kind in [("missing", FileNotFoundError), ("fifo", OSError), ("", OSError)]:
        with pytest.raises(kind):
            nowait.read_ahead.safetensors(disk / name)
    chosen = random.Random(3)
    write(path, {"a": 100, "b": 100})
    whole = path.read_bytes()
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(chosen.randrange(1, 4)):
            damaged[chosen.randrange(len(damaged) - 200)] = chosen.randrange(256)
        path.write_bytes(damaged[: chosen.randrange(1, len(damaged) + 1)])
        try:
            nowait.read_ahead.safetensors(path, ["a"])
        except (ValueError, KeyError):
            pass


def test_a_loader(disk):
    try:
        import numpy
        import safetensors.numpy
    except ImportError:
        skip("safetensors is not installed")
    path = disk / "model.safetensors"
    tensors = {f"{i}": numpy.random.rand(64, 1024) for i in range(20)}
    safetensors.numpy.save_file(tensors, path)
    evict(disk)
    with nowait.read_ahead(path, evict_after=True) as reading:
        loaded = safetensors.numpy.load_file(path)
    assert all((loaded[name] == tensors[name]).all() for name in tensors)
    assert reading.report().failed == 0


def test_a_descriptor_may_be_closed_and_its_number_used_again(make, disk):
    path, other = make("data", 8 * MIB), disk / "other"
    other.write_bytes(bytes(8 * MIB))
    evict(disk)
    fd = os.open(path, os.O_RDONLY)
    reading = nowait.read_ahead(fd)
    os.close(fd)
    again = os.open(other, os.O_RDONLY)
    try:
        assert again == fd
        with reading:
            while reading.report().read_bytes < 8 * MIB:
                time.sleep(0.01)
    finally:
        os.close(again)
    assert nowait.residency(other).cached_bytes == 0


@unless(reclaimed)
def test_pages_that_may_have_been_cached_before_stay(make):
    if os.geteuid() != 0:
        skip("only root can become another user")
    path = make("data", 8 * MIB, cached=True)
    path.chmod(0o644)
    code = """if True:
        import os, sys, time, nowait
        os.setgroups([]); os.setuid(65534)
        assert nowait.residency(sys.argv[1]).unknown
        with nowait.read_ahead(sys.argv[1], evict_after=True) as reading:
            while reading.report().read_bytes < 8 << 20: time.sleep(0.01)
        report = reading.report()
        assert (report.read_bytes, report.wasted_bytes) == (8 << 20, 0), report
        [unknown] = report.unknown
        assert (unknown.files, unknown.bytes) == (1, 8 << 20) and unknown.reason, unknown
    """
    run = python(code, path)
    assert run.returncode == 0, run.stderr
    assert cached(path) == 8 * MIB


def test_a_mapping_whose_use_is_not_seen(make):
    if os.geteuid() != 0:
        skip("only root can become another user")
    path = make("data", 64 * MIB)
    path.chmod(0o644)
    code = """if True:
        import mmap, os, sys, time, nowait
        # The kernel then does not let the process read its own page table.
        os.setgroups([]); os.setuid(65534)
        try:
            open("/proc/self/pagemap", "rb")
        except PermissionError:
            pass
        else:
            raise AssertionError
        with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            # The budget is read, as without a mapping, and not a window of a quarter of it.
            with nowait.read_ahead(sys.argv[1], budget=16 << 20) as reading:
                while reading.report().read_bytes < 15 << 20: time.sleep(0.01)
    """
    run = python(code, path)
    assert run.returncode == 0, run.stderr


def test_files_that_the_program_has_overtaken_do_not_end_the_work(make, disk):
    # Each of them is still open, until its descriptor is needed.
    paths = [make(f"{i:03}", MIB) for i in range(120)]
    code = """if True:
        import mmap, os, resource, sys, time, nowait
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        paths = sorted(os.path.join(sys.argv[1], name) for name in os.listdir(sys.argv[1]))
        mapped = []
        with nowait.read_ahead(paths, budget=8 << 20) as reading:
            # The window of a quarter of the budget ends before the next file.
            for i in range(0, len(paths), 4):
                with open(paths[i], "rb") as file:
                    mapped.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
                mapped[-1].madvise(mmap.MADV_RANDOM)
                mapped[-1][0]
                end = time.monotonic() + 250
                while nowait.residency(paths[i + 1]).cached_bytes < 1 << 20:
                    assert time.monotonic() < end, (i, reading.report())
                    time.sleep(0.01)
            report = reading.report()
        left = [path for path in paths if nowait.residency(path).cached_bytes < 1 << 19]
        assert len(left) > 30, len(left)
        assert report.not_read_bytes >= len(left) << 19 and "budget" in report.not_read_reason, report
    """
    run = python(code, disk)
    assert run.returncode == 0, run.stderr


def test_descriptors_and_pipes_are_left_for_the_program(slow):
    # Many reads are in flight.
    mount, _ = slow("30ms", "700M")
    path = mount / "data"
    path.write_bytes(os.urandom(MIB) * 500)
    code = """if True:
        import fcntl, os, resource, sys, nowait
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
        os.setgroups([]); os.setuid(65534)
        highest, report = 0, None
        with nowait.read_ahead(sys.argv[1]) as reading:
            while reading.report().read_bytes < 450 << 20:
                highest = max(highest, len(os.listdir("/proc/self/fd")))
                pipe = os.pipe()
                # A user who has many pages in pipes gets smaller pipes.
                assert fcntl.fcntl(pipe[0], 1032) >= 65536
                os.close(pipe[0]), os.close(pipe[1])
        assert highest <= int(sys.argv[2]) * 3 // 4, highest
    """
    for limit in [64, 1024]:
        evict(mount)
        run = python(code, path, limit)
        assert run.returncode == 0, (limit, run.stdout, run.stderr)


def test_the_failure_of_one_path_does_not_end_the_others(make, disk):
    if os.geteuid() != 0:
        skip("only root can become another user")
    names = ["closed", "second", "good", "third"]
    paths = [make(name, MIB) for name in names]
    for path, mode in zip(paths, [0, 0, 0o644, 0]):
        path.chmod(mode)
    code = """if True:
        import os, sys, time, nowait
        os.setgroups([]); os.setuid(65534)
        with nowait.read_ahead(sys.argv[1:]) as reading:
            while reading.report().failed < 3 or reading.report().read_bytes < 1 << 20: time.sleep(0.01)
        report = reading.report()
        assert [type(error) for error in report.errors] == [PermissionError] * 3
        assert sorted(error.filename for error in report.errors) == sorted(
            [sys.argv[1], sys.argv[2], sys.argv[4]])
    """
    run = python(code, *paths)
    assert run.returncode == 0, run.stderr


def test_a_lower_limit_of_the_cgroup_is_noticed(slow, tmp_path):
    root = Path("/sys/fs/cgroup")
    v1 = (root / "memory" / "memory.limit_in_bytes").exists()
    if not v1 and "memory" not in (root / "cgroup.controllers").read_text():
        skip("no memory cgroup can be made")
    mount, server = slow("0ms", "512M")
    path = mount / "data"
    path.write_bytes(os.urandom(256 * MIB))
    group = (root / "memory" if v1 else root) / f"nowait-test-{os.getpid()}"
    group.mkdir()
    limit = group / ("memory.limit_in_bytes" if v1 else "memory.max")
    # With this status the program has read too much before the device has stopped.
    late = 3
    try:
        code = """if True:
            import os, sys, time
            path, group, limit, server = sys.argv[1:]
            open(group + "/cgroup.procs", "w").write(str(os.getpid()))
            import nowait
            with nowait.read_ahead(path) as reading:
                while not reading.report().read_bytes: pass
                os.kill(int(server), 19)
                while ") T " not in open(f"/proc/{server}/stat").read(): pass
                is_late = reading.report().read_bytes > 64 << 20
                open(limit, "w").write(str(100 << 20))
                os.kill(int(server), 18)
                if is_late: sys.exit(3)
                end = time.monotonic() + 250
                while not reading.report().not_read_reason:
                    assert time.monotonic() < end, reading.report()
                    time.sleep(0.01)
                report = reading.report()
                assert report.read_bytes < 200 << 20 and report.not_read_bytes > 50 << 20, report
        """
        for _ in range(20):
            evict(mount)
            limit.write_text(str(600 * MIB))
            run = python(code, path, group, limit, server)
            if run.returncode != late:
                break
        assert run.returncode == 0, run.stderr
    finally:
        group.rmdir()


def test_pages_are_evicted_when_a_slow_device_has_answered(slow):
    mount, server = slow("0ms", "256M")
    path = mount / "data"
    path.write_bytes(os.urandom(100 * MIB))
    evict(mount)
    before = threads(), descriptors()
    fd = os.open(path, os.O_RDONLY)
    thread = threading.Timer(0.3, os.kill, [server, signal.SIGCONT])
    with nowait.read_ahead(fd, evict_after=True) as reading:
        reads(reading, MIB)
        os.kill(server, signal.SIGSTOP)
        thread.start()
    # __exit__ has waited for the reads in flight, also if the device did not answer for a while.
    read = reading.report().read_bytes
    assert cached(path) < read
    # The kernel has read ahead of the reads, which is not known.
    assert cached(path) <= max(16 * MIB, 100 * MIB - read)
    thread.join()
    os.close(fd)
    del reading
    assert settles(before)


def test_an_interrupted_eviction_is_done_when_the_device_answers(stalled):
    mount, server = stalled

    class Mine(Exception):
        pass

    def handler(number, frame):
        # If the signal came before __exit__, the next one comes while that waits.
        signal.setitimer(signal.ITIMER_REAL, 10)
        raise Mine

    fds = [os.open(mount / f"{i}", os.O_RDONLY) for i in range(20)]
    before = threads(), descriptors()
    old = signal.signal(signal.SIGALRM, handler)
    stop(server)
    try:
        with pytest.raises(Mine):
            with nowait.read_ahead(fds, evict_after=True):
                time.sleep(0.2)
                signal.setitimer(signal.ITIMER_REAL, 0.2)
        # The object is gone. Its thread has duplicates of the descriptors.
        gc.collect()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        os.kill(server, signal.SIGCONT)
    assert settles(before)
    assert sum(nowait.residency(fd).cached_bytes for fd in fds) == 0
    for fd in fds:
        os.close(fd)


def test_headers_of_safetensors_that_cannot_be_read(disk):
    # Address 0 of a process cannot be read.
    with pytest.raises(OSError) as error:
        nowait.read_ahead.safetensors("/proc/self/mem")
    assert (error.value.errno, error.value.filename) == (errno.EIO, "/proc/self/mem")
    path = disk / "model.safetensors"
    good = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    # The metadata are texts with any names.
    write(
        path,
        {},
        json.dumps({"__metadata__": {"data_offsets": "x"}, "a": good}).encode(),
        data=b"1234",
    )
    nowait.read_ahead.safetensors(path, ["a"])
    # The last of two tensors of a name counts, as for json of Python.
    text = f'{{"a": {json.dumps(good)}, "a": {json.dumps({**good, "data_offsets": [1, 2]})}}}'
    write(path, {}, text.encode(), data=b"1234")
    nowait.read_ahead.safetensors(path, ["a"])
