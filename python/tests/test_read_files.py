"""read_files() beside open()."""

import gc
import os
import random
import signal
import threading
import weakref

import pytest
from helpers import descriptors, evict, python, settles, skip, threads

import nowait

MIB = 1 << 20


@pytest.fixture
def many(disk):
    """Files of random sizes and their contents."""
    chosen = random.Random(7)
    contents = {}
    for i in range(500):
        size = chosen.choice([0, 1, 100, 4096, 5000, 70_000])
        path = disk / f"{i}"
        contents[path] = chosen.randbytes(size)
        path.write_bytes(contents[path])
    big = disk / "big"
    contents[big] = chosen.randbytes(40 << 20)
    big.write_bytes(contents[big])
    return contents


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("cold", [False, True])
def test_bytes_are_those_of_open(many, disk, ordered, cold):
    if cold:
        evict(disk)
    got = list(nowait.read_files(many, ordered=ordered))
    assert len(got) == len(many)
    assert dict(got) == many
    if ordered:
        assert [path for path, _ in got] == list(many)


def test_the_path_is_the_given_object(disk):
    path = disk / "a\udcff"
    path.write_bytes(b"x")
    objects = [path, str(path), bytes(path), str(path)]
    for ordered in [True, False]:
        got = [path for path, _ in nowait.read_files(objects, ordered=ordered)]
        assert sorted(map(id, got)) == sorted(map(id, objects))


def test_a_failure_does_not_end_the_iterator(disk):
    (disk / "good").write_bytes(b"good")
    (disk / "directory").mkdir()
    os.mkfifo(disk / "fifo")
    names = ["missing", "good", "directory", "fifo", "good"]
    files = nowait.read_files([disk / name for name in names], ordered=True)
    seen = []
    while True:
        try:
            path, data = next(files)
            seen.append((path, data))
        except StopIteration:
            break
        except OSError as error:
            seen.append((error.filename, type(error)))
    assert seen == [
        (disk / "missing", FileNotFoundError),
        (disk / "good", b"good"),
        (disk / "directory", IsADirectoryError),
        (disk / "fifo", OSError),
        (disk / "good", b"good"),
    ]
    with pytest.raises(StopIteration):
        next(files)
    with pytest.raises(FileNotFoundError) as error:
        list(nowait.read_files([bytes(disk / "missing")]))
    assert error.value.errno == 2 and error.value.strerror == os.strerror(2)
    assert error.value.filename == bytes(disk / "missing")


def test_permission(disk):
    if os.geteuid() != 0:
        skip("only root can become another user")
    path = disk / "closed"
    path.write_bytes(b"x")
    path.chmod(0)
    code = """if True:
        import os, sys, nowait
        os.setgroups([]); os.setuid(65534)
        try:
            list(nowait.read_files([sys.argv[1]]))
        except PermissionError as error:
            assert error.filename == sys.argv[1]
        else:
            raise AssertionError
    """
    run = python(code, path)
    assert run.returncode == 0, run.stderr


def test_paths_are_taken_as_needed(disk):
    (disk / "a").write_bytes(b"a")
    taken = 0

    def paths():
        nonlocal taken
        while True:
            taken += 1
            yield disk / "a"

    files = nowait.read_files(paths())
    assert taken == 0
    for _ in range(10_000):
        assert next(files)[1] == b"a"
    assert taken < 10_000 + 2000


def test_exceptions_of_the_iterable(disk):
    (disk / "a").write_bytes(b"a")

    def paths():
        for _ in range(200):
            yield disk / "a"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(nowait.read_files(paths()))
    for wrong, error in [
        ([None], TypeError),
        ([disk / "a", 1.5], TypeError),
        (["a\0b"], ValueError),
    ]:
        with pytest.raises(error):
            list(nowait.read_files(wrong))
    for wrong in [None, 1, 1.5]:
        with pytest.raises(TypeError):
            nowait.read_files(wrong)


def test_no_file_is_lost_at_an_exception_of_the_iterable(many):
    paths = list(many)
    taken = []

    def some():
        for path in paths:
            taken.append(path)
            yield path
            if len(taken) == 150:
                raise KeyError("mine")

    files = nowait.read_files(some())
    got, errors = [], []
    while True:
        try:
            got.append(next(files))
        except StopIteration:
            break
        except KeyError as error:
            errors.append(error)
    assert len(errors) == 1
    assert sorted(path for path, _ in got) == sorted(taken) == sorted(paths[:150])
    assert all(data == many[path] for path, data in got)


def test_objects_that_are_no_paths_do_not_end_the_iterator(many):
    class Mine(os.PathLike):
        def __fspath__(self):
            raise OSError("mine")

    paths = list(many)
    wrong = [None, "a\0b", 1.5, b"\0"]
    for ordered in [False, True]:
        given = paths[:70] + wrong[:2] + paths[70:100] + wrong[2:] + paths[100:200]
        seen = everything(nowait.read_files(given, ordered=ordered))
        good = [item for item in seen if isinstance(item, tuple)]
        assert sorted(good) == sorted((path, many[path]) for path in paths[:200])
        kinds = [type(item) for item in seen if not isinstance(item, tuple)]
        assert sorted(kinds, key=str) == [TypeError, TypeError, ValueError, ValueError]
        if ordered:
            places = [i for i, item in enumerate(seen) if not isinstance(item, tuple)]
            assert places == [70, 71, 102, 103]
    # An exception of a path's own code is one of the iterable.
    seen = everything(nowait.read_files([*paths[:10], Mine(), *paths[10:]]))
    assert [str(item) for item in seen if isinstance(item, OSError)] == ["mine"]
    assert sum(isinstance(item, tuple) for item in seen) == 10


def everything(files):
    """The pairs and the exceptions."""
    seen = []
    while True:
        try:
            seen.append(next(files))
        except StopIteration:
            return seen
        except Exception as error:
            seen.append(error)


def test_signals_within_the_iterable(many):
    class Mine(Exception):
        pass

    def handler(number, frame):
        # Elsewhere an exception may come between next() and append().
        if frame.f_code is takes_time.__code__:
            raise Mine

    paths = [path for path, data in many.items() if len(data) < MIB]
    raised = 0
    before = signal.signal(signal.SIGALRM, handler)
    try:
        while raised < 50:
            taken = []
            files = nowait.read_files(slowly(paths, taken))
            signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
            got, ended = [], False
            while not ended:
                try:
                    for item in files:
                        got.append(item)
                    ended = True
                except Mine:
                    raised += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert sorted(path for path, _ in got) == sorted(taken)
            assert all(many[path] == data for path, data in got)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def takes_time():
    for _ in range(100):
        pass


def slowly(paths, taken):
    """The paths, by a generator that takes time and records each."""
    for path in paths:
        takes_time()
        taken.append(path)
        yield path


def test_a_file_without_memory_is_a_memory_error(disk):
    with open(disk / "huge", "wb") as file:
        file.truncate(2**43)
    (disk / "good").write_bytes(b"good")
    files = nowait.read_files([disk / "huge", disk / "good"], ordered=True)
    with pytest.raises(MemoryError):
        next(files)
    assert next(files) == (disk / "good", b"good")


def test_an_iterable_that_uses_the_iterator(disk):
    (disk / "a").write_bytes(b"a")

    def paths():
        yield disk / "a"
        next(files)

    files = nowait.read_files(paths())
    with pytest.raises(ValueError, match="already executing"):
        list(files)

    class Paths:
        def __iter__(self):
            return self

        def __next__(self):
            return disk / "a"

    cycle = Paths()
    cycle.files = nowait.read_files(cycle)
    next(cycle.files)
    gone = weakref.ref(cycle)
    del cycle
    gc.collect()
    assert gone() is None


def test_one_thread_at_a_time(many):
    files = nowait.read_files(list(many) * 4)
    got, refused = [], []

    def work():
        while True:
            try:
                got.append(next(files))
            except StopIteration:
                return
            except ValueError as error:
                refused.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(got) == 4 * len(many)
    for path, data in got:
        assert many[path] == data


def test_nothing_is_left_of_dropped_iterators(many):
    list(nowait.read_files(many))
    before = descriptors()
    for _ in range(200):
        files = nowait.read_files(many)
        next(files)
        del files
    # A worker may still have files of a dropped iterator.
    assert settles((200, before))


def test_a_forked_child(many):
    files = nowait.read_files(many)
    next(files)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                next(files)
            except RuntimeError as error:
                assert "fork" in str(error) and "this process" in str(error)
            else:
                raise AssertionError
            assert dict(nowait.read_files(many)) == many
            del files
            gc.collect()
            code = 0
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(code)
    os.close(write)
    said = os.read(read, 1000)
    assert os.waitpid(child, 0)[1] == 0, said
    assert len(dict(files)) == len(many) - 1
    os.close(read)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes(many, method):
    import multiprocessing

    list(nowait.read_files(many))
    context = multiprocessing.get_context(method)
    paths = list(map(str, many))
    with context.Pool(3) as pool:
        sizes = pool.map(total, [paths[i::5] for i in range(5)])
    assert sum(sizes) == sum(map(len, many.values()))


def total(paths):
    return sum(len(data) for _, data in nowait.read_files(paths))


def test_the_end_of_the_interpreter_with_reads_in_flight(many, disk):
    evict(disk)
    code = """if True:
        import os, sys, threading, nowait
        paths = [os.path.join(sys.argv[1], name) for name in os.listdir(sys.argv[1])]
        files = nowait.read_files(paths * 20)
        next(files)
        def work():
            while True:
                for _ in nowait.read_files(paths): pass
                nowait.warm(sys.argv[1], rate=1)
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        next(files)
    """
    for _ in range(10):
        run = python(code, disk)
        assert (run.returncode, run.stderr) == (0, "")


def test_equal_paths_come_back_as_the_objects_that_were_given(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"text")
    given = [str(path), os.fsencode(path), path, str(path)]
    assert [name for name, _ in nowait.read_files(given, ordered=True)] == given


def test_with_ends_the_reads(many):
    """A program that leaves the loop early does not wait for the rest."""
    with nowait.read_files(many) as files:
        path, data = next(files)
        assert data == many[path]
    assert next(files, None) is None
    files.close()

    taken = []

    def paths():
        for path in many:
            taken.append(path)
            yield path

    files = nowait.read_files(paths())
    next(files)
    files.close()
    before = len(taken)
    assert list(files) == []
    assert len(taken) == before
