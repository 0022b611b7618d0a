"""residency() beside the kernel's own answers."""

import ctypes
import mmap
import os
import random
import socket
import stat

import pytest
from helpers import descriptors, python, reclaimed, skip, unless

import nowait

PAGE = os.sysconf("SC_PAGE_SIZE")


def mincore(path) -> list[bool]:
    """The resident pages of a file by mincore(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = os.stat(path).st_size
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        pages = (size + PAGE - 1) // PAGE
        vector = (ctypes.c_ubyte * pages)()
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), vector) == 0
        return [bool(byte & 1) for byte in vector]


@unless(reclaimed)
def test_ranges_are_those_of_mincore(make):
    path = make("data", 300 * PAGE - 7)
    chosen = random.Random(1)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for _ in range(30):
            os.pread(fd, 1, chosen.randrange(300) * PAGE)
        answer = nowait.residency(fd)
        expected = mincore(path)
        pages = [False] * 300
        for start, end in answer.ranges:
            assert 0 <= start < end <= answer.size
            for page in range(start // PAGE, (end + PAGE - 1) // PAGE):
                pages[page] = True
        assert pages == expected
        assert answer.cached_bytes == sum(expected) * PAGE
        assert answer.size == 300 * PAGE - 7
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
    finally:
        os.close(fd)


@unless(reclaimed)
def test_every_kind_of_path(make, disk, monkeypatch):
    path = make("data", 3 * PAGE, cached=True)
    surrogate = disk / "a\udcff\n"
    os.link(path, surrogate)
    names = [path, str(path), bytes(path), surrogate, os.fsencode(surrogate), os.fspath(surrogate)]
    for name in names:
        answer = nowait.residency(name)
        assert answer.ranges == [(0, 3 * PAGE)], name
        assert answer.unknown is None and answer.source in ("cachestat", "mincore")
    monkeypatch.chdir(disk)
    assert nowait.residency("data").size == 3 * PAGE


def test_dirty_pages_are_counted(disk):
    path = disk / "dirty"
    with open(path, "wb") as file:
        file.write(bytes(4 * PAGE))
        file.flush()
        answer = nowait.residency(file.fileno())
        if answer.source != "cachestat":
            skip("cachestat(2) is missing")
        assert answer.dirty_bytes + answer.writeback_bytes == 4 * PAGE
        os.fsync(file.fileno())
        answer = nowait.residency(file.fileno())
        assert answer.dirty_bytes == answer.writeback_bytes == 0


def test_empty_and_huge_files(disk):
    (disk / "empty").touch()
    assert nowait.residency(disk / "empty").ranges == []
    with open(disk / "huge", "wb") as file:
        file.truncate(2**43)
    answer = nowait.residency(disk / "huge")
    assert (answer.size, answer.cached_bytes, answer.ranges) == (2**43, 0, [])


def test_failures_are_those_of_open(disk):
    os.symlink("loop", disk / "loop")
    for name, kind in [
        ("missing", FileNotFoundError),
        ("loop", OSError),
        ("x" * 300, OSError),
    ]:
        path = disk / name
        with pytest.raises(kind) as of_open:
            open(path)
        with pytest.raises(kind) as ours:
            nowait.residency(path)
        assert type(ours.value) is type(of_open.value)
        assert ours.value.errno == of_open.value.errno
        assert ours.value.strerror == of_open.value.strerror
        assert ours.value.filename == path


def test_special_files_are_not_opened(disk, monkeypatch):
    os.mkfifo(disk / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(disk)
    listener.bind("socket")
    for name in ["fifo", "socket", "/dev/null", "/dev/tty"]:
        with pytest.raises(OSError) as error:
            nowait.residency(name)
        assert error.value.filename == name
    listener.close()
    left, right = os.pipe()
    with pytest.raises(OSError):
        nowait.residency(left)
    os.close(left)
    os.close(right)


def test_wrong_arguments():
    fd = os.open("/dev/null", os.O_RDONLY)
    os.close(fd)
    for wrong in [fd, -1, -(2**31)]:
        with pytest.raises(OSError) as error:
            nowait.residency(wrong)
        assert error.value.errno == 9 and error.value.filename == wrong
    for wrong in [2**31, 2**70, -(2**70)]:
        with pytest.raises(OverflowError):
            nowait.residency(wrong)
    for wrong in ["a\0b", b"\0"]:
        with pytest.raises(ValueError, match="null byte"):
            nowait.residency(wrong)
    for wrong in [None, 1.5, [], object(), bytearray(b"x")]:
        with pytest.raises(TypeError):
            nowait.residency(wrong)

    class Wrong:
        def __fspath__(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        nowait.residency(Wrong())


def test_files_of_others_are_unknown(make):
    if os.geteuid() != 0:
        skip("only root can become another user")
    path = make("data", PAGE, cached=True)
    path.chmod(0o644)
    for above in path.parents:
        if not os.stat(above).st_mode & stat.S_IXOTH:
            skip(f"{above} is closed for others")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setuid(65534)
            answer = nowait.residency(path)
            os.write(write, repr((answer.unknown is not None, answer.cached_bytes)).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"(True, None)"
    os.close(read)


def test_nothing_is_left_of_many_calls(make, disk):
    path = make("data", 8 * PAGE, cached=True)
    nowait.residency(path)
    before = descriptors()
    for i in range(20_000):
        nowait.residency(path)
        if i % 10 == 0:
            with pytest.raises(FileNotFoundError):
                nowait.residency(disk / "missing")
    assert descriptors() == before


def test_a_directory_is_the_sum_of_its_files(disk):
    (disk / "a" / "b").mkdir(parents=True)
    sizes = [1, 5000, 1 << 20]
    for i, size in enumerate(sizes):
        (disk / "a" / "b" / f"{i}").write_bytes(bytes(size))
    os.link(disk / "a" / "b" / "2", disk / "a" / "again")
    os.symlink("/usr", disk / "a" / "link")
    os.mkfifo(disk / "a" / "fifo")
    nowait.warm(disk / "a")
    answer = nowait.residency(disk / "a")
    each = [nowait.residency(disk / "a" / "b" / f"{i}") for i in range(3)]
    assert (answer.files, answer.size) == (3, sum(sizes))
    assert answer.cached_bytes == sum(one.cached_bytes for one in each) > 0
    assert (answer.ranges, answer.unknown) == (None, None)
    assert all(one.files == 1 for one in each)
    (disk / "empty").mkdir()
    answer = nowait.residency(disk / "empty")
    assert (answer.files, answer.size, answer.cached_bytes) == (0, 0, 0)
    fd = os.open(disk / "a", os.O_RDONLY)
    with pytest.raises(IsADirectoryError):
        nowait.residency(fd)
    os.close(fd)


def test_files_that_cannot_be_examined_are_named(disk):
    if os.geteuid() != 0:
        skip("only root can become another user")
    disk.chmod(0o755)
    for above in (disk, *disk.parents):
        if not os.stat(above).st_mode & stat.S_IXOTH:
            skip(f"{above} is closed for others")
    (disk / "a" / "below").mkdir(parents=True)
    (disk / "a" / "below").chmod(0)
    user = 65534
    os.chown(disk / "a", user, user)
    script = f"""
import os, nowait
os.setgroups([]); os.setgid({user}); os.setuid({user})
answer = nowait.residency({str(disk / "a")!r})
assert answer.files == 0 and answer.unknown.startswith("1 file: "), answer
try:
    nowait.residency({str(disk / "a" / "below")!r})
except PermissionError:
    print("refused")
"""
    done = python(script)
    assert done.stdout.strip() == "refused", done.stderr
