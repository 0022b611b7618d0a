"""Disks that are full, memory that stays, files that change, callbacks that call again."""

import os
import subprocess

import pytest
from helpers import descriptors, python, settles, skip, threads

import nowait

MIB = 1 << 20


def test_a_full_disk(tmp_path):
    if os.geteuid() != 0:
        skip("only root can mount a tmpfs")
    mount = tmp_path / "full"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", mount], check=True)
    try:
        data = os.urandom(MIB)
        (mount / "data").write_bytes(data)
        with pytest.raises(OSError), open(mount / "rest", "wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        assert list(nowait.read_files([mount / "data"])) == [(mount / "data", data)]
        assert nowait.residency(mount / "data").size == MIB
        assert nowait.warm(mount).failed == 0
        assert nowait.evict(mount).failed == 0
        with nowait.read_ahead(mount) as reading:
            pass
        assert reading.report().failed == 0
        # In memory there is no other copy: evict() has taken nothing.
        assert (mount / "data").read_bytes() == data
    finally:
        subprocess.run(["umount", mount], check=True)


def test_contents_of_files_that_shrink_are_a_start_of_them(make):
    data = {}
    for i in range(64):
        path = make(f"{i}", MIB)
        data[path] = path.read_bytes()
    sizes = []
    # At most about 32 MiB are read before the first file is returned.
    for path, contents in nowait.read_files(data):
        assert data[path].startswith(contents)
        sizes.append(len(contents))
        for other in data:
            os.truncate(other, MIB // 2)
    assert len(sizes) == 64
    assert MIB // 2 in sizes and min(sizes) >= MIB // 2


def test_a_callback_calls_again(make, disk):
    path, other = make("data", MIB), make("other", MIB)
    seen = []

    def again(progress):
        seen.append(nowait.warm(other).bytes)
        [(_, contents)] = nowait.read_files([other])
        seen.append(len(contents))
        seen.append(nowait.residency(path).size)

    before = threads(), descriptors()
    assert nowait.warm(path, rate="4M", progress=again).read_bytes == MIB
    assert seen and set(seen) == {MIB}
    assert settles(before)


def test_many_calls_need_no_more_memory(make, disk):
    path = make("data", 16384, cached=True)
    code = """if True:
        import os, sys, nowait
        path = sys.argv[1]
        def work(count):
            for i in range(count):
                nowait.residency(path)
                for call in [nowait.residency, nowait.evict]:
                    try:
                        call(path + "-missing")
                    except FileNotFoundError:
                        pass
                if i % 20 == 0:
                    list(nowait.read_files([path] * 3))
                    nowait.warm(path)
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        work(500)
        before = resident()
        work(3500)
        print(resident() - before)
    """
    run = python(code, path)
    assert run.returncode == 0, run.stderr
    # 600 bytes for each call of residency() that succeeds would be more.
    assert int(run.stdout) < 2 * MIB, run.stdout


def test_exceptions_of_results_are_collected(make, disk):
    if os.geteuid() != 0:
        skip("only root can become another user")
    make("closed", 1).chmod(0)
    code = """if True:
        import gc, os, sys, time, weakref, nowait
        os.setgroups([]); os.setuid(65534)
        class Mine: pass
        def report():
            with nowait.read_ahead(sys.argv[1]) as reading:
                while not reading.report().failed: time.sleep(0.01)
            return reading.report()
        def work(call):
            global mine
            local = Mine()
            mine = weakref.ref(local)
            result = call()
            # The traceback of the exception refers to this frame, which refers to the result.
            [error] = result.errors
            raise error
        for call in [lambda: nowait.warm(sys.argv[1]), lambda: nowait.evict(sys.argv[1]), report]:
            try:
                work(call)
            except PermissionError:
                pass
            else:
                raise AssertionError
            gc.collect()
            assert mine() is None, call
    """
    run = python(code, disk)
    assert run.returncode == 0, run.stderr
