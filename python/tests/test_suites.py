"""The tests of aiofiles and of CPython, with nowait in the place of what they test."""

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from helpers import skip

SUITES = Path(__file__).parent / "suites"


def test_those_of_aiofiles(tmp_path):
    command = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", tmp_path]
    pip = [sys.executable, "-m", "pip", *command, "aiofiles>=25.1,<26"]
    got = subprocess.run(pip, capture_output=True, text=True)
    missing = [
        name for name in ["aiofiles", "pytest_asyncio"] if not importlib.util.find_spec(name)
    ]
    if got.returncode or missing:
        skip(f"the sources of aiofiles, or {missing}: {got.stderr}")
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        # Python 3.11 has filters from 3.11.4 on, which Debian 12 lacks.
        filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        sources.extractall(tmp_path, **filters)
    (root,) = tmp_path.glob("aiofiles-*/")
    path = os.pathsep.join([str(SUITES), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    # Root has access to all files. The other test waits in a function of aiofiles that is not called.
    different = "not (test_access or test_slow_file)"
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "in_aiofiles", "-k", different, "tests"]
    done = subprocess.run(tests, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 200, done.stdout


@pytest.mark.parametrize("function", ["walk", "walk_ahead", "scandir", "scandir_with_stat"])
def test_those_of_cpython(function):
    if not importlib.util.find_spec("test.test_os"):
        skip("CPython's tests are not installed (Debian: libpython3.11-testsuite)")
    command = [sys.executable, SUITES / "in_cpython.py", function]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module", ["test_io", "test_file", "test_fileio", "test_univnewlines", "test_bufio"]
)
def test_those_of_cpython_for_files(module, tmp_path):
    if not importlib.util.find_spec(f"test.{module}"):
        skip("CPython's tests are not installed (Debian: libpython3.11-testsuite)")
    command = [sys.executable, SUITES / "io_in_cpython.py", module]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
