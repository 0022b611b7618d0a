"""Ctrl-C, and processes in which something is denied."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import HANG, python, skip, stop

import nowait

MIB = 1 << 20

# Sends SIGINT to itself after a moment, and prints the time until the exception.
INTERRUPTED = """if True:
    import os, signal, sys, threading, time, nowait
    handler = signal.getsignal(signal.SIGINT)
    def interrupt():
        started.wait()
        time.sleep(0.2)
        global at
        at = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)
    started = threading.Event()
    threading.Thread(target=interrupt).start()
    kept = lambda: (len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))
    try:
        started.set()
        {call}
    except KeyboardInterrupt:
        print(time.monotonic() - at)
    assert signal.getsignal(signal.SIGINT) is handler
    end = time.monotonic() + 300
    while kept()[0] > {threads} and time.monotonic() < end: time.sleep(0.01)
    print(kept(), flush=True)
"""

CALLS = {
    "warm": ("nowait.warm(sys.argv[1], rate=1)", 1),
    "read_files": (
        "[None for _ in nowait.read_files(iter(lambda: sys.argv[1], None))]",
        100,
    ),
    # Each file is ready before it is asked for.
    "read_files in a loop that is written in C": (
        "import collections, itertools;"
        "collections.deque(map(repr, nowait.read_files(itertools.repeat(sys.argv[1]))), maxlen=0)",
        100,
    ),
    # Iterators that are written in C, and have no end.
    "warm of an iterator": ("import itertools; nowait.warm(itertools.repeat(sys.argv[1]))", 1),
    "evict of an iterator": ("import itertools; nowait.evict(itertools.repeat(sys.argv[1]))", 1),
    "read_ahead of an iterator": (
        "import itertools; nowait.read_ahead(itertools.repeat(sys.argv[1]))",
        1,
    ),
    "safetensors of an iterator": (
        "import itertools; nowait.read_ahead.safetensors(sys.argv[1], itertools.repeat('a'))",
        1,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_ends_a_call(make, name):
    call, threads = CALLS[name]
    path = make("data", MIB)
    run = python(INTERRUPTED.format(call=call, threads=threads), path)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    took, left = run.stdout.splitlines()
    # It does not hang. The time itself depends on the machine.
    assert float(took) < HANG / 2
    if name == "warm":
        assert left.startswith("(1, "), left


def test_the_exception_of_a_handler_ends_a_call(make):
    path = make("data", MIB)

    class Mine(Exception):
        pass

    def handler(number, frame):
        raise Mine

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(Mine):
            nowait.warm(path, rate=1)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "call",
    [
        "nowait.warm(sys.argv[1])",
        "list(nowait.read_files([sys.argv[1] + '/1'] * 9))",
        # The iterable handles the signal, and waits before and after it.
        "list(nowait.read_files(sys.argv[1] + f'/{i}' for i in range(9) if time.sleep(0.1) is None))",
        "nowait.read_ahead.safetensors(sys.argv[1] + '/1')",
        # The interrupt comes while __exit__ waits for the reads in flight, or before.
        "r = nowait.read_ahead(sys.argv[1], evict_after=True); r.__enter__(); time.sleep(0.1); r.__exit__()",
    ],
)
def test_an_interrupt_ends_a_call_on_a_device_that_does_not_answer(stalled, call):
    mount, server = stalled
    child = subprocess.Popen(
        [sys.executable, "-c", "input()\n" + INTERRUPTED.format(call=call, threads=1000), str(mount)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        stop(server)
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write("\n")
        child.stdin.close()
        # The exception comes while the device stalls.
        took = child.stdout.readline()
        assert 0 < float(took) < HANG / 2, took
    finally:
        os.kill(server, signal.SIGCONT)
        child.wait(HANG)


def test_without_io_uring(make):
    path = make("data", MIB)
    code = """if True:
        import ctypes, struct, sys
        # A seccomp filter that denies io_uring_setup (425) with ENOSYS.
        libc = ctypes.CDLL(None)
        filters = b"".join(struct.pack("HBBI", *f) for f in [
            (0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7fff0000)])
        buffer = ctypes.create_string_buffer(filters)
        program = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
        assert libc.prctl(38, 1, 0, 0, 0) == 0
        assert libc.prctl(22, 2, ctypes.create_string_buffer(program)) == 0
        import nowait
        result = nowait.warm(sys.argv[1])
        assert result.backend == "threads" and result.cached_after == 1 << 20, result
        [(path, data)] = nowait.read_files([sys.argv[1]])
        assert data == open(sys.argv[1], "rb").read()
        assert nowait.evict(sys.argv[1]).files == 1
    """
    run = python(code, path)
    assert run.returncode == 0, run.stderr


def test_without_memory_threads_or_descriptors(make, disk):
    path = make("data", MIB)
    for i in range(300):
        (disk / f"{i}").write_bytes(bytes(100))
    code = """if True:
        import os, resource, sys, nowait
        limit, value = getattr(resource, sys.argv[2]), int(sys.argv[3])
        resource.setrlimit(limit, (value, value))
        for call in [
            lambda: nowait.warm(sys.argv[1]),
            lambda: nowait.evict(sys.argv[1]),
            lambda: nowait.residency(sys.argv[1] + "/data"),
            lambda: list(nowait.read_files([sys.argv[1] + f"/{i}" for i in range(300)])),
        ]:
            try:
                call()
            except (OSError, MemoryError, RuntimeError) as error:
                print(type(error).__name__, error)
    """
    for limit, values in [("RLIMIT_NOFILE", [4, 8, 16, 64]), ("RLIMIT_NPROC", [0, 1])]:
        for value in values:
            run = python(code, disk, limit, value)
            assert run.returncode == 0, (limit, value, run.stdout, run.stderr)


def test_the_memory_of_the_cgroup_is_the_budget(make):
    root = Path("/sys/fs/cgroup")
    v1 = (root / "memory" / "memory.limit_in_bytes").exists()
    v2 = (
        "memory" in (root / "cgroup.controllers").read_text()
        if (root / "cgroup.controllers").exists()
        else False
    )
    if os.geteuid() != 0 or not (v1 or v2):
        skip("no memory cgroup can be made")
    path = make("data", 48 * MIB)
    group = (root / "memory" if v1 else root) / f"nowait-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(48 * MIB))
        code = """if True:
            import os, sys
            open(sys.argv[2] + "/cgroup.procs", "w").write(str(os.getpid()))
            import nowait
            result = nowait.warm(sys.argv[1])
            assert 0 < result.read_bytes <= 40 << 20, result
            assert result.not_read_bytes > 0 and "available memory" in result.not_read_reason, result
        """
        run = python(code, path, group)
        assert run.returncode == 0, run.stderr
    finally:
        group.rmdir()


def test_the_program_is_installed():
    program = Path(sys.executable).parent / "nowait"
    if not program.exists():
        skip("the wheel is not installed")
    run = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert run.stdout.split() == ["nowait", nowait.__version__]
    ls = shutil.which("ls")
    alone = subprocess.run([ls, "-lR", "/etc"], capture_output=True)
    for options in [[], ["--aio", "--ahead"]]:
        run = subprocess.run(
            [program, "run", *options, "--", ls, "-lR", "/etc"], capture_output=True
        )
        assert (run.stdout, run.stderr) == (alone.stdout, alone.stderr)
