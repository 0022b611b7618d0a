"""The package: its documentation, its types, and its import."""

import ast
import asyncio
import doctest
import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import python, skip

import nowait


@pytest.mark.parametrize(
    "name",
    [
        "residency",
        "warm",
        "evict",
        "read_files",
        "read_ahead",
        "scandir",
        "walk",
        "asyncio_files",
        "fsspec",
    ],
)
def test_the_examples_of_the_documentation(name, disk, monkeypatch):
    monkeypatch.chdir(disk)
    for module in ["asyncio_files", "fsspec"]:
        importlib.import_module(f"nowait.{module}")
    text = getattr(nowait, name).__doc__
    test = doctest.DocTestParser().get_doctest(text, vars(nowait).copy(), name, None, None)
    assert test.examples
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.summarize().failed == 0


def test_everything_has_documentation():
    for name in nowait.__all__:
        if not name.startswith("__"):
            assert getattr(nowait, name).__doc__, name
    assert nowait.__version__.count(".") == 2


def test_the_example_of_the_readme(tmp_path, monkeypatch):
    try:
        import numpy
        import pandas
        import safetensors.numpy
    except ImportError as error:
        skip(f"{error.name} is not installed")
    (tmp_path / "models").mkdir()
    safetensors.numpy.save_file({"a": numpy.ones(9)}, tmp_path / "models/a.safetensors")
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "data.bin").write_bytes(bytes(1 << 20) + b"bytes")
    frame = pandas.DataFrame({"a": [1, 2]})
    frame.to_parquet(tmp_path / "data" / "frame.parquet")
    readme = Path(__file__).parent.parent / "README.md"
    code = readme.read_text().split("```python\n")[1].split("```")[0]
    code = code.replace("nowait:///data", f"nowait://{tmp_path}/data")
    # numpy is in the place of torch.
    names = {
        "pandas": pandas,
        "paths": [tmp_path / "data.bin"],
        "safetensors": SimpleNamespace(torch=safetensors.numpy),
    }
    monkeypatch.chdir(tmp_path)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    asyncio.run(eval(compile(code, str(readme), "exec", flags), names))
    assert names["block"] == b"bytes" and names["frame"].equals(frame)
    assert list(names["weights"]) == ["a"]


@pytest.mark.parametrize("name", ["nowait", "nowait.asyncio_files", "nowait.fsspec"])
def test_a_public_module_has_no_other_public_names(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        skip(f"{error.name} is not installed")
    # A submodule is an attribute as soon as it is imported.
    submodules = {"asyncio_files", "fsspec"} if name == "nowait" else set()
    public = {found for found in dir(module) if not found.startswith("_")}
    assert public - submodules == {
        found for found in module.__all__ if not found.startswith("_")
    } - submodules


def test_the_files_for_asyncio_are_imported_on_first_use():
    code = """if True:
        import nowait, sys
        assert not hasattr(nowait, "none") and "asyncio" not in sys.modules
        print(nowait.asyncio_files.open, "asyncio_files" in vars(nowait))
    """
    done = python(code)
    assert done.stdout.startswith("<function open") and done.stdout.endswith("True\n"), done.stderr


def test_the_import_takes_few_modules():
    code = """if True:
        import sys
        before = set(sys.modules)
        import nowait
        print(sorted(set(sys.modules) - before))
    """
    run = python(code)
    assert run.stdout.strip() == "['nowait', 'nowait._nowait', 'nowait._walk']", run.stderr


def test_subinterpreters_are_refused():
    code = """if True:
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        import nowait
        one = interpreters.create()
        interpreters.run_string(one, '''if True:
            for _ in range(2):
                try:
                    import nowait
                except ImportError as error:
                    print("refused:", error, flush=True)
        ''')
        interpreters.destroy(one)
        print(nowait.residency("/proc/self/exe").size > 0)
    """
    run = python(code)
    assert run.returncode == 0, run.stderr
    refused, again, works = run.stdout.splitlines()
    assert refused == again and refused.startswith("refused:"), run.stdout
    assert works == "True"


@pytest.mark.parametrize(
    "checker", [["mypy", "--strict"], ["pyright", "--pythonpath", sys.executable]]
)
def test_the_types(checker, tmp_path):
    try:
        __import__(checker[0])
    except ImportError:
        skip(f"{checker[0]} is not installed")
    (tmp_path / "use.py").write_text(USE)
    command = [sys.executable, "-m", *checker, "use.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (tmp_path / "use.py").write_text(USE + "\nx: str = nowait.residency(1).size\n")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 1


USE = """
import asyncio
from pathlib import Path

import nowait
from nowait import asyncio_files

answer: nowait.Residency = nowait.residency("a")
size: int = answer.size
ranges: list[tuple[int, int]] | None = answer.ranges
warmed = nowait.warm(["a", b"b", Path("c"), 3], budget="50%", rate=10, progress=print)
errors: list[OSError] = warmed.errors
stayed: dict[str, int] = nowait.evict(Path("a")).stayed
for path, data in nowait.read_files([Path("a")], ordered=True):
    name: str = path.name
    part: bytes = data[1:]
def callback(progress: nowait.Progress) -> None:
    number: int = progress.read_bytes
    percent: float | None = progress.percent
    total: int | None = progress.total_bytes
nowait.warm("a", progress=callback)
with nowait.read_ahead("a", evict_after=True) as reading:
    wasted: int = reading.report().wasted_bytes
chosen: nowait.read_ahead = nowait.read_ahead.safetensors("a", ["b"], budget="10%")
with nowait.scandir(b"a") as entries:
    for entry in entries:
        entry_name: bytes = entry.name
        entry_size: int = entry.stat().st_size
for directory, names, others in nowait.walk("a", onerror=print):
    joined: str = directory + names[0] + others[0]
for directory, inner, files in nowait.walk(Path("a"), entries=True):
    is_file: bool = files[0].is_file()
async def main() -> None:
    async with asyncio_files.open("a", encoding="utf-8") as text:
        line: str = await text.readline()
        part: bytes = await text.read_at(0, 1)
        async for line in text:
            pass
    binary = await asyncio_files.open("a", "rb")
    whole: bytes = await binary.read()
    pieces: list[bytes] = await binary.read_ranges([(0, 1)])
    both = await asyncio.gather(binary.read_at(0, 1), asyncio_files.stat("a"))
    size: int = both[1].st_size
    task: asyncio.Task[bytes] = asyncio.create_task(binary.read_at(0, 1))
"""


def test_the_stubs_agree_with_the_module(tmp_path):
    try:
        __import__("mypy")
    except ImportError:
        skip("mypy is not installed")
    # fsspec has no types. The constant is removed after its use.
    names = ["_fsspec.NowaitFileSystem", "_fsspec.StreamedFile", "TYPE_CHECKING"]
    allowed = tmp_path / "allowed"
    allowed.write_text("".join(f"nowait.{name}\n" for name in names))
    command = [sys.executable, "-m", "mypy.stubtest", "nowait", "--allowlist", allowed]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
