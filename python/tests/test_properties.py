"""Random trees: each function beside open() and os."""

import os
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from helpers import evict, reclaimed, unless
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_residency import mincore

import nowait

PAGE = os.sysconf("SC_PAGE_SIZE")

names = st.binary(min_size=1, max_size=12).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in [b".", b".."]
)
sizes = st.one_of(
    st.sampled_from([0, 1, PAGE - 1, PAGE, PAGE + 1, 1 << 20]), st.integers(0, 40 * PAGE)
)
trees = st.dictionaries(
    st.tuples(st.sampled_from([b"", b"d/", b"d/e/"]), names), sizes, max_size=12
)
example_limits = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def build(root: bytes, tree: dict[tuple[bytes, bytes], int]) -> list[bytes]:
    """Makes the files of a tree, with random bytes. Returns their paths."""
    os.makedirs(root + b"/d/e")
    paths = []
    for (directory, name), size in tree.items():
        path = root + b"/" + directory + name
        # A name may be that of a directory.
        if os.path.isdir(path):
            continue
        with open(path, "wb") as file:
            file.write(os.urandom(size))
        paths.append(path)
    return paths


def kinds(path: bytes, number: int) -> object:
    """The same path as bytes, str or PathLike."""
    return [path, os.fsdecode(path), Path(os.fsdecode(path))][number % 3]


@example_limits
@given(tree=trees, cold=st.booleans(), ordered=st.booleans(), lost=st.sets(st.integers(0, 11)))
def test_read_files_is_open(disk, tree, cold, ordered, lost):
    with tempfile.TemporaryDirectory(dir=disk) as root:
        paths = build(os.fsencode(root), tree)
        if cold:
            evict(Path(root))
        objects = [kinds(path, number) for number, path in enumerate(paths)]
        for number in lost:
            if number < len(paths):
                os.unlink(paths[number])
        expected = []
        for path in objects:
            try:
                with open(path, "rb") as file:
                    expected.append((path, file.read()))
            except OSError as error:
                expected.append((path, (type(error), error.errno)))
        got = []
        files = nowait.read_files(objects, ordered=ordered)
        while True:
            try:
                got.append(next(files))
            except StopIteration:
                break
            except OSError as error:
                # As os.stat() does, it has the given object; open() has its str or bytes.
                got.append((error.filename, (type(error), error.errno)))
        if ordered:
            assert got == expected
        else:
            assert Counter(got) == Counter(expected)


@unless(reclaimed)
@example_limits
@given(tree=trees, touched=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 300))))
def test_the_page_cache_is_that_of_the_kernel(disk, tree, touched):
    with tempfile.TemporaryDirectory(dir=disk) as root:
        paths = build(os.fsencode(root), tree)
        subprocess.run(["sync", "-f", root], check=True)
        size = sum(os.stat(path).st_size for path in paths)
        assert nowait.evict(root).stayed_bytes == 0
        for number, page in touched:
            if number < len(paths):
                with open(paths[number], "rb") as file:
                    os.pread(file.fileno(), 1, page * PAGE)
        resident = 0
        for path in paths:
            answer = nowait.residency(path)
            assert answer.size == os.stat(path).st_size
            pages = mincore(path) if answer.size else []
            assert answer.cached_bytes == sum(pages) * PAGE
            whole = [False] * len(pages)
            for start, end in answer.ranges:
                for page in range(start // PAGE, (end + PAGE - 1) // PAGE):
                    whole[page] = True
            assert whole == pages
            resident += sum(min(PAGE, answer.size - i * PAGE) for i, page in enumerate(pages) if page)
        result = nowait.warm(root)
        assert (result.files, result.bytes, result.failed) == (len(paths), size, 0)
        assert result.read_bytes == size - resident
        assert all(all(mincore(path)) for path in paths if os.stat(path).st_size)
