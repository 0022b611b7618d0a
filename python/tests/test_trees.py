"""scandir() and walk() beside those of os."""

import gc
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from helpers import HANG, descriptors, python, settles, skip, threads
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nowait


@pytest.fixture(autouse=True, params=["cached", "ahead"])
def how_name(request, monkeypatch):
    """The directories of the tests are cached; with "ahead" they are listed as if they were not."""
    if request.param == "ahead":
        monkeypatch.setattr("nowait._walk._SLOW", -1)
    return request.param


#: Directories are dictionaries; files, links and odd names are what their value says.
NAMES = st.sampled_from(["a", "b", "é", "\udcff", "with space", "c.txt", ".d", "\n"])
TREES = st.recursive(
    st.sampled_from(["file", "link", "link to a directory", "broken", "fifo"]),
    lambda inner: st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=25,
)


def build(path: Path, tree: object) -> None:
    """Makes a tree."""
    if isinstance(tree, dict):
        path.mkdir(exist_ok=True)
        for name, inner in tree.items():
            build(path / name, inner)
    elif tree == "file":
        path.write_bytes(b"abc")
    elif tree == "fifo":
        os.mkfifo(path)
    else:
        targets = {"link": "a", "link to a directory": "..", "broken": "none"}
        path.symlink_to(targets[tree])


def without_atime(of: os.stat_result) -> tuple[object, ...]:
    """The metadata but for the time of access, which a walk changes."""
    return (
        of.st_mode,
        of.st_ino,
        of.st_nlink,
        of.st_size,
        of.st_mtime_ns,
        of.st_ctime_ns,
        of.st_blocks,
    )


def entry_facts(entry: "os.DirEntry[str] | nowait.DirEntry") -> tuple[object, ...]:
    facts: list[object] = [entry.name, entry.path, os.fspath(entry), entry.inode(), repr(entry)]
    for follow in [True, False]:
        for method in [entry.is_dir, entry.is_file, entry.stat]:
            try:
                found = method(follow_symlinks=follow)
                facts.append(without_atime(found) if method == entry.stat else found)
            except OSError as error:
                facts.append((type(error), error.errno, error.filename))
    facts.append(entry.is_symlink())
    return tuple(facts)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(NAMES, TREES, max_size=6), st.booleans(), st.booleans(), st.booleans())
def test_a_directory_is_that_of_os(tmp_path_factory, tree, stat, is_bytes, slash):
    path = str(tmp_path_factory.mktemp("tree"))
    build(Path(path), tree)
    path += "/" * slash
    given_path = os.fsencode(path) if is_bytes else path
    with os.scandir(given_path) as theirs, nowait.scandir(given_path, stat=stat) as ours:
        expected = {entry.name: entry_facts(entry) for entry in theirs}
        assert {entry.name: entry_facts(entry) for entry in ours} == expected


def walked(walk, *arguments, edit=None, **options):
    result = []
    for path, directories, files in walk(*arguments, **options):
        result.append((path, sorted(directories), sorted(files)))
        if edit:
            edit(path, directories)
        else:
            directories.sort()
    return sorted(result) if not options.get("topdown", True) else result


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(NAMES, TREES, max_size=6), st.booleans(), st.booleans(), st.booleans())
def test_a_walk_is_that_of_os(tmp_path_factory, tree, topdown, is_bytes, slash):
    path = str(tmp_path_factory.mktemp("tree"))
    build(Path(path), tree)
    path += "/" * slash
    given_path = os.fsencode(path) if is_bytes else path
    assert walked(nowait.walk, given_path, topdown) == walked(os.walk, given_path, topdown)


def test_links_are_followed(tmp_path):
    build(tmp_path, {"a": {"b": {"c": "file"}, "d": {}}})
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a" / "b")
    ours = walked(nowait.walk, tmp_path, followlinks=True)
    assert ours == walked(os.walk, tmp_path, followlinks=True)
    assert str(tmp_path / "a" / "link") in [path for path, _, _ in ours]


def test_a_circle_of_links_ends_at_the_same_level(tmp_path):
    build(tmp_path, {"a": {"b": {"c": "file"}}})
    (tmp_path / "a" / "b" / "up").symlink_to("..")
    for entries in [False, True]:
        errors = []

        def ours(*arguments, errors=errors, entries=entries, **options):
            options |= {"onerror": errors.append, "entries": entries}
            for path, directories, others in nowait.walk(*arguments, **options):
                names = [[getattr(e, "name", e) for e in some] for some in (directories, others)]
                yield path, *names

        expected = walked(os.walk, tmp_path, followlinks=True)
        assert walked(ours, tmp_path, followlinks=True) == expected
        assert errors == []
        assert len(expected) > 40


def test_the_list_of_directories_may_be_edited(tmp_path):
    build(tmp_path, {name: {inner: {"x": "file"} for inner in "abc"} for name in "abcdef"})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")

    def edit(path, directories):
        if path == str(tmp_path):
            directories[:] = ["f", "b", "b/a", "none", "link", "f", "elsewhere"]
        elif path.endswith("/b"):
            directories.clear()
        else:
            directories.sort(reverse=True)

    for followlinks in [False, True]:
        options = {"edit": edit, "followlinks": followlinks}
        ours = walked(nowait.walk, tmp_path, **options)
        assert ours == walked(os.walk, tmp_path, **options)


def test_a_directory_that_becomes_a_link_is_not_entered(tmp_path):
    for walk in [nowait.walk, os.walk]:
        root = tmp_path / walk.__module__.strip("_")
        build(root, {"a": {"x": {"f": "file"}}, "b": {"secret": "file"}})
        seen = []
        for path, _, _ in walk(root):
            seen.append(path)
            if path.endswith("/a"):
                os.rename(root / "a" / "x", root / "y")
                (root / "a" / "x").symlink_to(root / "b")
        assert str(root / "a" / "x") not in seen
        assert str(root / "b") in seen


def test_entries_have_their_metadata(tmp_path):
    build(tmp_path, {"a": {"b": "file"}, "c": "file", "l": "link"})
    seen = {}
    for path, directories, files in nowait.walk(tmp_path, entries=True):
        assert all(entry.is_dir() for entry in directories)
        for entry in [*directories, *files]:
            assert entry.path == os.path.join(path, entry.name)
            seen[entry.path] = without_atime(entry.stat(follow_symlinks=False))
        directories[:] = [entry for entry in directories if entry.name == "a"]
    # `l` leads to the directory `a`.
    assert seen == {str(p): without_atime(os.lstat(p)) for p in tmp_path.rglob("*")}


def test_cached_directories_are_listed_in_the_calling_thread(tmp_path):
    build(tmp_path, {str(i): {"f": "file", "l": "link"} for i in range(300)})
    code = """if True:
        import os, sys, nowait
        # However slow the machine is.
        nowait._walk._SLOW = 1000
        tasks = os.listdir("/proc/self/task")
        for entries in [False, True]:
            assert len(list(nowait.walk(sys.argv[1], entries=entries))) == 301
        assert os.listdir("/proc/self/task") == tasks
        print("done")
    """
    done = python(code, tmp_path)
    assert done.stdout == "done\n", done.stderr


def test_errors_are_those_of_os(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for path in [tmp_path / "none", tmp_path / "file", "a\0b", 1 << 70, 1.5]:
        with pytest.raises(Exception) as expected:
            os.scandir(path)
        with pytest.raises(type(expected.value)) as caught:
            nowait.scandir(path)
        for field in ["errno", "filename"]:
            theirs = getattr(expected.value, field, None)
            assert getattr(caught.value, field, None) == theirs, path
    for path in [tmp_path / "none", tmp_path / "file"]:
        errors = [[], []]
        assert list(nowait.walk(path, onerror=errors[0].append)) == []
        assert list(os.walk(path, onerror=errors[1].append)) == []
        assert repr(errors[0]) == repr(errors[1])
        assert errors[0][0].filename == errors[1][0].filename
    with pytest.raises(TypeError):
        next(nowait.walk(None))

    def fail(error):
        raise error

    with pytest.raises(FileNotFoundError):
        next(nowait.walk(tmp_path / "none", onerror=fail))


def test_directories_without_permission(disk):
    build(disk, {"a": {"b": {"c": "file"}}, "d": {"e": "file"}})
    os.chmod(disk / "a" / "b", 0)
    code = """if True:
        import os, sys, nowait
        if os.geteuid() == 0:
            os.setuid(65534)
        for walk in [os.walk, nowait.walk]:
            errors = []
            found = sorted((p, sorted(d), f) for p, d, f in walk(sys.argv[1], onerror=errors.append))
            print([(type(error), error.filename) for error in errors], found)
    """
    done = python(code, disk)
    theirs, ours = done.stdout.splitlines()
    assert ours == theirs and "PermissionError" in ours, done.stderr


def test_an_iterator_that_is_not_closed_warns(tmp_path):
    build(tmp_path, {"a": "file", "b": "file"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(nowait.scandir(tmp_path))
        with nowait.scandir(tmp_path) as entries:
            next(entries)
        entries = nowait.scandir(tmp_path)
        entries.close()
        assert list(entries) == []
        del entries
        gc.collect()
    with pytest.warns(ResourceWarning, match="unclosed scandir iterator"):
        entries = nowait.scandir(tmp_path)
        next(entries)
        del entries
        gc.collect()


def test_a_descriptor_keeps_its_position(tmp_path):
    build(tmp_path, {"a": {"b": "file"}, "c": "file"})
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(2):
            assert {entry_facts(e) for e in nowait.scandir(fd)} == {
                entry_facts(e) for e in os.scandir(fd)
            }
    finally:
        os.close(fd)


def test_few_descriptors_are_enough(tmp_path):
    build(tmp_path, {str(i): {str(j): {"f": "file"} for j in range(20)} for i in range(20)})
    code = """if True:
        import os, resource, sys, nowait
        nowait._walk._SLOW = -1
        list(nowait.walk(sys.argv[1]))
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, used + 2))
        def fail(error):
            raise error
        print(sum(len(files) for _, _, files in nowait.walk(sys.argv[1], onerror=fail)))
    """
    done = python(code, tmp_path)
    assert done.stdout == "400\n", done.stderr


def test_walks_that_are_left(tmp_path):
    build(tmp_path, {str(i): {str(j): {"f": "file"} for j in range(5)} for i in range(50)})
    list(nowait.walk(tmp_path))
    before = descriptors()
    for count in range(40):
        walk = nowait.walk(tmp_path)
        for _ in range(count):
            next(walk)
        walk.close()
        with nowait.scandir(tmp_path) as entries:
            next(entries)
    gc.collect()
    assert settles((threads(), before))


def test_an_iterator_in_two_threads_ends_once(tmp_path):
    names = [f"{i}" for i in range(5000)]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    for _ in range(5):
        seen, ends = [], []
        entries = nowait.scandir(tmp_path)

        def work():
            while True:
                try:
                    seen.append(next(entries).name)
                except ValueError as error:
                    assert "already executing" in str(error)
                    time.sleep(0.001)
                except StopIteration:
                    ends.append(len(seen))
                    return

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert sorted(seen) == sorted(names)
        # The other thread may not have stored the last entry yet.
        assert min(ends) >= len(names) - 1


def test_a_forked_child_walks_anew(tmp_path):
    build(tmp_path, {str(i): {"f": "file"} for i in range(50)})
    code = """if True:
        import os, sys, nowait
        nowait._walk._SLOW = -1
        walk = nowait.walk(sys.argv[1])
        entries = nowait.scandir(sys.argv[1])
        # The second slow directory begins to read ahead.
        next(walk), next(walk), next(walk), next(entries)
        child = os.fork()
        if child == 0:
            for inherited in [walk, entries, entries]:
                try:
                    next(inherited)
                except RuntimeError as error:
                    assert "fork" in str(error)
                else:
                    os._exit(1)
            os._exit(len(list(nowait.walk(sys.argv[1]))) != 51)
        assert os.waitpid(child, 0)[1] == 0
        print(len(list(walk)), len(list(entries)))
    """
    done = python(code, tmp_path)
    assert done.stdout == "48 49\n", done.stderr


def test_a_deep_tree(tmp_path):
    path = str(tmp_path)
    for _ in range(300):
        path += "/d"
        os.mkdir(path)
    assert walked(nowait.walk, tmp_path) == walked(os.walk, tmp_path)
    assert walked(nowait.walk, tmp_path, topdown=False) == walked(os.walk, tmp_path, topdown=False)


def test_each_directory_is_opened_at_most_twice(tmp_path, how_name):
    """A path is as long as os.walk() can name it: deeper directories are an error of both."""
    if shutil.which("strace") is None:
        skip("strace is not installed: apt-get install strace")
    levels = (os.pathconf(tmp_path, "PC_PATH_MAX") - len(str(tmp_path))) // 2 + 10
    code = """
import os, sys
top, levels = sys.argv[1], int(sys.argv[2])
at = os.open(top, os.O_RDONLY)
for _ in range(levels):
    os.mkdir("d", dir_fd=at)
    at, above = os.open("d", os.O_RDONLY, dir_fd=at), at
    os.close(above)
"""
    made = python(code, tmp_path, levels)
    assert made.returncode == 0, made.stderr
    code = """
import errno, sys
import nowait, nowait._walk
if sys.argv[2] == "ahead":
    nowait._walk._SLOW = -1
errors = []
walked = sum(1 for _ in nowait.walk(sys.argv[1], onerror=errors.append))
assert [error.errno for error in errors] == [errno.ENAMETOOLONG], errors
print(walked)
"""
    log = tmp_path.parent / f"{tmp_path.name}.log"
    calls = "trace=open,openat,openat2"
    command = ["strace", "-f", "--seccomp-bpf", "-s", "0", "-e", calls, "-o", log, sys.executable, "-c", code, tmp_path, how_name]
    # strace(1) does not see the calls of a ring.
    environment = {**os.environ, "NOWAIT_BACKEND": "threads"}
    walked = subprocess.run(command, capture_output=True, text=True, timeout=HANG, env=environment)
    assert walked.returncode == 0, walked.stderr
    directories = int(walked.stdout)
    assert levels - 15 < directories < levels
    opens = sum("O_DIRECTORY" in line for line in log.read_text().splitlines())
    # The interpreter opens some directories itself.
    assert directories <= opens <= 2 * directories + 100
    # shutil.rmtree() is recursive.
    subprocess.run(["rm", "-r", tmp_path / "d"], check=True)


def test_a_walk_that_calls_itself(tmp_path):
    walk = nowait.walk(tmp_path / "none", onerror=lambda error: next(walk))
    with pytest.raises(ValueError, match="already executing"):
        next(walk)
