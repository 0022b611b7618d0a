"""Functions that the tests share."""

import errno
import functools
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HANG = 300.0
"""A step of a test that takes so many seconds hangs. No limit is shorter: the machine may be busy."""


def skip(why: str) -> None:
    """Skips a test; with NOWAIT_TEST_ALL=1 it fails instead."""
    if os.environ.get("NOWAIT_TEST_ALL") == "1":
        pytest.fail(f"would be skipped: {why}")
    pytest.skip(why)


def python(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs code in another interpreter."""
    command = [sys.executable, "-X", "faulthandler", "-c", code, *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": HANG, **options}
    return subprocess.run(command, **options)  # type: ignore[call-overload]


def stop(process: int) -> None:
    """Stops a process, and waits until it has stopped: a signal takes time."""
    os.kill(process, signal.SIGSTOP)
    while ") T " not in Path(f"/proc/{process}/stat").read_text():
        time.sleep(0.001)


def unless(disturbed):
    """A decorator: repeats a test that has failed, if this function returns a greater number than before the test. The machine
    has then disturbed it. The files that a test makes are made again."""

    def decorator(test):
        @functools.wraps(test)
        def repeated(*arguments, **options):
            for _ in range(20):
                before = disturbed()
                try:
                    return test(*arguments, **options)
                except Exception as failure:
                    if disturbed() == before:
                        raise
                    print(f"repeated, {disturbed.__name__}: {failure!r}", file=sys.stderr)
            return test(*arguments, **options)

        return repeated

    return decorator


def preempted() -> int:
    """The number of times that a thread of this process has lost its processor, or the machine has lost one."""
    stolen = int(Path("/proc/stat").read_text().split()[8])
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw + stolen


def reclaimed() -> int:
    """The pages of files that the kernel has reclaimed. Some machines reclaim without a shortage of memory (DAMON)."""
    counts = Path("/proc/vmstat").read_text().splitlines()
    pages = [int(line.split()[1]) for line in counts if line.startswith("pgsteal_file ")]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") + reclaimed_by_damon()


DAMON = Path("/sys/kernel/mm/damon/admin/kdamonds/0")


def reclaimed_by_damon() -> int:
    """The bytes that DAMON has reclaimed, which the kernel does not count with the others. 0 if it does not run, or if
    this process is not root."""
    while DAMON.exists() and os.geteuid() == 0:
        try:
            (DAMON / "state").write_text("update_schemes_stats")
            break
        except OSError as error:
            # It answers one process at a time.
            if error.errno != errno.EBUSY:
                break
            time.sleep(0.001)
    counts = DAMON.glob("contexts/0/schemes/*/stats/sz_applied")
    return sum(int(count.read_text()) for count in counts)


def threads() -> int:
    """The number of threads of this process."""
    return len(os.listdir("/proc/self/task"))


def settles(before: tuple[int, int]) -> bool:
    """Waits until there are no more threads and descriptors. The workers of an engine end after it was dropped."""
    end = time.monotonic() + HANG
    while threads() > before[0] or descriptors() > before[1]:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def descriptors() -> int:
    """The number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def evict(directory: Path) -> None:
    """Writes the files below a directory, and evicts them. sync(2) would wait for all disks."""
    import nowait

    subprocess.run(["sync", "-f", directory], check=True)
    assert nowait.evict(directory).failed == 0


def evict_file(path: Path) -> None:
    """Evicts the clean pages of one file."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
