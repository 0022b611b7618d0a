"""Fixtures of the tests."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from helpers import HANG, evict, skip


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Path:
    """A folder on a disk: /tmp may be in memory."""
    directory = tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".tmp-")
    request.addfinalizer(directory.cleanup)
    os.chmod(directory.name, 0o755)
    return Path(directory.name)


@pytest.fixture
def make(disk: Path):
    """Makes a file of random bytes that is written to the disk, and evicts it."""

    def make(name: str, size: int, cached: bool = False) -> Path:
        path = disk / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            for begin in range(0, size, 1 << 20):
                file.write(os.urandom(min(1 << 20, size - begin)))
            file.flush()
            os.fsync(file.fileno())
            if not cached:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return path

    return make


@pytest.fixture
def slow(served):
    """A function that mounts a disk with this latency and size. Returns the folder, and the process that
    serves the disk: it stalls while the process is stopped."""
    return lambda latency, size: served("--latency", latency, "--size", size)


@pytest.fixture
def full_at_close(served) -> Path:
    """A FUSE directory that accepts all writes, and returns EDQUOT when a file is closed."""
    return served("--fs", "flush")[0]


@pytest.fixture
def served(request):
    """A function that runs the program slowdisk. Returns the folder, and the process."""
    program = os.environ.get("NOWAIT_SLOWDISK")
    if os.geteuid() != 0 or program is None:
        skip("NOWAIT_SLOWDISK is not the program slowdisk, or this is not root")
    folder = tempfile.TemporaryDirectory(prefix="nowait-")
    request.addfinalizer(folder.cleanup)
    os.chmod(folder.name, 0o755)
    servers = []

    def serve(*options: str) -> tuple[Path, int]:
        mount = Path(folder.name, f"{len(servers)}")
        mount.mkdir()
        command = [program, *options, str(mount)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        servers.append(server)
        # The last word is the folder of the mount.
        made = server.stdout.readline().split()
        assert made, command
        return Path(made[-1]), server.pid

    yield serve
    for server in servers:
        server.send_signal(signal.SIGCONT)
        server.send_signal(signal.SIGINT)
        server.wait(HANG)


@pytest.fixture
def stalled(slow):
    """A disk with 20 files of 1 MiB that are not cached."""
    mount, server = slow("0ms", "64M")
    for i in range(20):
        (mount / f"{i}").write_bytes(os.urandom(1 << 20))
    evict(mount)
    return mount, server
