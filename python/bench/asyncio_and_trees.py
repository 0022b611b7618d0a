"""Measures files for asyncio, walks of trees, and nowait:// beside what Python programs use today.

    python asyncio_and_trees.py DIRECTORY [--rounds 9] [--loop asyncio|uvloop] [--slowdisk target/release/slowdisk]
        [--only positional,sequential,lines,small,cold,mixed,timers,walk,fsspec]

The contenders of a table are run in turn, each in a process of its own. A ratio is the median over the rounds of (time of
the contender / time of nowait). Contenders that are not installed are left out, and named: pip install aiofiles
py-asyncfiles aiofile anyio uvloop scandir-rs pandas pyarrow zarr.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from bench import slow_disk, table

BLOCK = 4096
SIZE = 64 << 20
#: The file of the cold reads beside cached ones is so many times as large.
LARGER = 16

#: What each program begins with. `RESULT` replaces the time that is printed.
COMMON = f"""
import asyncio, random, time
BLOCK, SIZE, LARGER, PATH = {BLOCK}, {SIZE}, {LARGER}, sys.argv[1]
def places(n): return [random.randrange(SIZE // BLOCK) * BLOCK for _ in range(n)]
def spread(n, tasks, work):
    async def all(): await asyncio.gather(*[work(places(n // tasks)) for _ in range(tasks)])
    return all
def percentile(times): return sorted(times)[len(times) * 99 // 100]
"""
#: How each package opens a file and reads at an offset.
READERS = {
    "nowait": "from nowait import asyncio_files\n"
    "async def work(at):\n    async with asyncio_files.open(PATH, 'rb') as f:\n"
    "        for o in at: await ONE(f.read_at(o, BLOCK))",
    "os.pread": "async def work(at):\n    fd = os.open(PATH, os.O_RDONLY)\n"
    "    for o in at: os.pread(fd, BLOCK, o)\n    os.close(fd)",
    "py-asyncfiles": "import asyncfiles\nasync def both(f, o):\n    f.seek(o); return await f.read(BLOCK)\n"
    "async def work(at):\n    async with asyncfiles.open(PATH, 'rb') as f:\n"
    "        for o in at: await ONE(both(f, o))",
    "aiofile": "import aiofile\nasync def work(at):\n    async with aiofile.AIOFile(PATH, 'rb') as f:\n"
    "        for o in at: await ONE(f.read(BLOCK, o))",
    "aiofiles": "import aiofiles\nasync def both(f, o):\n    await f.seek(o); return await f.read(BLOCK)\n"
    "async def work(at):\n    async with aiofiles.open(PATH, 'rb') as f:\n"
    "        for o in at: await ONE(both(f, o))",
    "anyio": "import anyio\nasync def both(f, o):\n    await f.seek(o); return await f.read(BLOCK)\n"
    "async def work(at):\n    async with await anyio.open_file(PATH, 'rb') as f:\n"
    "        for o in at: await ONE(both(f, o))",
    "to_thread": "async def work(at):\n    fd = os.open(PATH, os.O_RDONLY)\n"
    "    for o in at: await ONE(asyncio.to_thread(os.pread, fd, BLOCK, o))\n    os.close(fd)",
}
#: How each opens a file for reading in order.
OPEN = {
    "nowait": ("from nowait import asyncio_files", "asyncio_files.open(PATH, MODE)"),
    "py-asyncfiles": ("import asyncfiles", "asyncfiles.open(PATH, MODE)"),
    "aiofiles": ("import aiofiles", "aiofiles.open(PATH, MODE)"),
    "anyio": ("import anyio", "await anyio.open_file(PATH, MODE)"),
}
#: A small file is opened, read and closed, or asked about; a small directory is listed: PATH, DIRECTORY.
SMALL = {
    "open, read, close": {
        "nowait": ("from nowait import asyncio_files", "async with asyncio_files.open(PATH, 'rb') as f: await f.read()"),
        "plain calls": ("", "with open(PATH, 'rb') as f: f.read()"),
        "aiofiles": ("import aiofiles", "async with aiofiles.open(PATH, 'rb') as f: await f.read()"),
        "anyio": ("import anyio", "await anyio.Path(PATH).read_bytes()"),
    },
    "stat": {
        "nowait": ("from nowait import asyncio_files", "await asyncio_files.stat(PATH)"),
        "plain calls": ("", "os.stat(PATH)"),
        "aiofiles": ("import aiofiles.os", "await aiofiles.os.stat(PATH)"),
        "anyio": ("import anyio", "await anyio.Path(PATH).stat()"),
    },
    "scandir of ten names": {
        "nowait": ("from nowait import asyncio_files", "[e.name for e in await asyncio_files.scandir(DIRECTORY)]"),
        "plain calls": ("", "[e.name for e in os.scandir(DIRECTORY)]"),
        "aiofiles": ("import aiofiles.os", "[e.name for e in await aiofiles.os.scandir(DIRECTORY)]"),
        "anyio": ("import anyio", "[e.name async for e in anyio.Path(DIRECTORY).iterdir()]"),
    },
}
TIMERS = """
import contextlib
fd = os.open(PATH, os.O_RDONLY)
READER
async def main():
    async with contextlib.AsyncExitStack() as stack:
        on = await OPENED
        stop, late = False, []
        async def task(at):
            while not stop: await turn(on, at)
        tasks = [asyncio.create_task(task(o)) for o in places(TASKS)]
        await asyncio.sleep(0.1)
        for _ in range(100):
            begin = time.perf_counter()
            await asyncio.sleep(0.005)
            late.append(time.perf_counter() - begin - 0.005)
        stop = True
        await asyncio.gather(*tasks)
        return percentile(late)
GO
result = RUN(main())
begin = time.perf_counter() - result
"""
TURNS = {
    "nowait": (
        "from nowait import asyncio_files\nasync def turn(f, o): await f.read_at(o, BLOCK)",
        "stack.enter_async_context(asyncio_files.open(PATH, 'rb'))",
    ),
    "tasks of sleep(0)": (
        "async def turn(_, o):\n    os.pread(fd, BLOCK, o)\n    await asyncio.sleep(0)",
        "asyncio.sleep(0)",
    ),
}
MIXED = """
import types
ONE = lambda a: a
SET
cold_work = types.FunctionType(work.__code__, {**globals(), "PATH": sys.argv[2]})
async def main():
    times = []
    async def timed(a):
        begin = time.perf_counter()
        await a
        times.append(time.perf_counter() - begin)
    # The file is larger, so that it stays cold.
    cold = [asyncio.create_task(cold_work([o * LARGER for o in places(100_000)])) for _ in range(32)]
    await asyncio.sleep(0.1)
    global ONE
    ONE = timed
    hot = asyncio.create_task(work(places(2000)))
    await asyncio.wait([hot], timeout=4)
    for task in [hot, *cold]: task.cancel()
    await asyncio.gather(hot, *cold, return_exceptions=True)
    return percentile(times)
GO
result = RUN(main())
begin = time.perf_counter() - result
"""
WALKS = {
    "nowait": "import nowait\nGO\n"
    "n = sum(f.stat().st_size >= 0 for _, _, fs in nowait.walk(sys.argv[1], entries=True) for f in fs)",
    "os.walk and stat": "GO\n"
    "n = sum(os.stat(os.path.join(p, f)).st_size >= 0 for p, _, fs in os.walk(sys.argv[1]) for f in fs)",
    "scandir-rs": "from scandir_rs import Scandir, ReturnType\nGO\n"
    "n = sum(e.is_file for e in Scandir(sys.argv[1], return_type=ReturnType.Ext))",
}
NAMES = {
    "nowait": "import nowait\nGO\nn = sum(len(f) for _, _, f in nowait.walk(sys.argv[1]))",
    "os.walk": "GO\nn = sum(len(f) for _, _, f in os.walk(sys.argv[1]))",
}
FSSPEC = {
    "pandas.read_parquet": "import pandas, pyarrow.parquet\nGO\npandas.read_parquet('PROTOCOL://' + sys.argv[1] + '/frame.parquet')",
    "zarr": "import zarr\nGO\nzarr.open_array('PROTOCOL://' + sys.argv[1] + '/array', mode='r')[:]",
}


def positional(loop: str, n: int, tasks: int, names: list[str]) -> dict[str, str]:
    """Programs that read blocks at random offsets."""
    program = "{common}ONE = lambda a: a\n{reader}\nGO\n{loop}.run(spread({n}, {tasks}, work)())"
    return {
        name: program.format(common=prefix(loop), reader=READERS[name], loop=loop, n=count(n, name), tasks=tasks)
        + scaled(n, name)
        for name in names
    }


def count(n: int, name: str) -> int:
    """The number of operations: fewer for those that take a thread for each."""
    return n if name in ("nowait", "os.pread", "plain calls", "py-asyncfiles") else n // 8


def scaled(n: int, name: str) -> str:
    times = n // count(n, name)
    return f"\nbegin -= (time.perf_counter() - begin) * {times - 1}"


def prefix(loop: str) -> str:
    return f"import {loop}{COMMON}"


def in_order(loop: str, n: int, mode: str, step: str, names: list[str]) -> dict[str, str]:
    """Programs that read a file from its beginning."""
    programs = {}
    for name in names:
        imports, opens = OPEN[name]
        programs[name] = (
            f"{prefix(loop)}MODE = {mode!r}\n{imports}\n"
            f"async def main():\n    async with {opens} as f:\n"
            f"        for _ in range({count(n, name)}): await f.{step}\n"
            f"GO\n{loop}.run(main()){scaled(n, name)}"
        )
    return programs


def of_small(loop: str, n: int, contenders: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Programs that repeat one operation."""
    return {
        name: f"{prefix(loop)}DIRECTORY = sys.argv[2]\n{imports}\nasync def main():\n"
        f"    for _ in range({count(n, name)}):\n        {operation}\nGO\n{loop}.run(main()){scaled(n, name)}"
        for name, (imports, operation) in contenders.items()
    }


def tree(path: Path, files: int) -> None:
    """Makes a tree of empty files, 100 in each directory."""
    for directory in range(files // 100):
        inner = path / f"{directory // 30}" / f"{directory}"
        inner.mkdir(parents=True, exist_ok=True)
        for i in range(100):
            (inner / f"{i}").touch()


def drop_caches() -> None:
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3")


def main() -> None:
    import nowait

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--loop", default="asyncio", choices=["asyncio", "uvloop"])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--only", default="positional,sequential,lines,small,cold,mixed,timers,walk,fsspec")
    parser.add_argument("--slowdisk")
    options = parser.parse_args()
    chosen, rounds, loop = options.only.split(","), options.rounds, options.loop
    home = options.directory / f"nowait-python-bench-{os.getpid()}"
    home.mkdir()
    try:
        path, cold = home / "data", home / "cold"
        for made in [path, cold]:
            made.write_bytes(random.randbytes(SIZE))
        subprocess.run(["sync", "-f", path], check=True)

        def warm() -> None:
            nowait.warm(path)

        if "positional" in chosen:
            for tasks in [1, 32]:
                programs = positional(loop, 32_000, tasks, list(READERS))
                table(f"cached 4 KiB at random, {tasks} tasks", programs, rounds, warm, path)
        if "sequential" in chosen:
            programs = in_order(loop, 16_000, "rb", "read(BLOCK)", list(OPEN))
            table("cached, read(4096) in order", programs, rounds, warm, path)
        if "lines" in chosen:
            text = home / "text"
            text.write_text("".join(f"{i}: a line of usual length, in a text file\n" for i in range(200_000)))
            programs = in_order(loop, 100_000, "r", "readline()", ["nowait", "aiofiles", "anyio"])
            table("cached, lines of text", programs, rounds, warm, text)
        if "small" in chosen:
            small = home / "small"
            small.mkdir()
            for i in range(10):
                (small / f"{i}").write_bytes(random.randbytes(BLOCK))
            subprocess.run(["sync", "-f", small], check=True)
            for title, contenders in SMALL.items():
                programs = of_small(loop, 8_000, contenders)
                table(f"{title}, cached", programs, rounds, lambda: None, small / "0", small)
        if "cold" in chosen:
            names = [name for name in READERS if name != "os.pread"]
            n = 4096

            def evict() -> None:
                nowait.evict(cold)

            program = positional(loop, n, 32, names)
            # All make the same number of reads here.
            program = {
                name: code.replace(f"spread({count(n, name)},", f"spread({n},").replace(scaled(n, name), "")
                for name, code in program.items()
            }
            table("cold 4 KiB at random, 32 tasks", program, rounds, evict, cold)
        if "mixed" in chosen:
            programs = {
                name: prefix(loop) + MIXED.replace("SET", READERS[name]).replace("RUN", f"{loop}.run")
                for name in ["nowait", "py-asyncfiles", "aiofiles", "anyio", "to_thread"]
            }

            large = home / "large"
            with open(large, "wb") as file:
                for _ in range(LARGER):
                    file.write(random.randbytes(SIZE))
                os.fsync(file.fileno())

            def half() -> None:
                nowait.warm(path)
                nowait.evict(large)

            title = "99th percentile of cached reads beside 32 tasks of cold ones"
            table(title, programs, rounds, half, path, large)
        if "timers" in chosen:
            for tasks in [1, 32, 1000]:
                programs = {
                    name: prefix(loop)
                    + TIMERS.replace("READER", reader).replace("OPENED", opened)
                    .replace("TASKS", str(tasks)).replace("RUN", f"{loop}.run")
                    for name, (reader, opened) in TURNS.items()
                }
                table(f"99th percentile of a timer's delay beside {tasks} tasks", programs, rounds, warm, path)
        if "walk" in chosen:
            walks(options, home)
        if "fsspec" in chosen:
            data_sets(home, rounds)
        print(f"\n{time.strftime('%Y-%m-%d')}, {os.uname().release}, {loop}, {sys.version.split()[0]}")
    finally:
        subprocess.run(["rm", "-rf", home], check=True)


def walks(options: argparse.Namespace, home: Path) -> None:
    """Tables of walks: of a slow disk without cache, and of cached directories."""
    if options.slowdisk:
        with slow_disk(options.slowdisk, 4 << 30) as disk:
            tree(disk, options.files)
            table("walk and stat, disk of 1 ms, cold", WALKS, min(options.rounds, 3), drop_caches, disk)
    cached = home / "tree"
    tree(cached, options.files)
    list(os.walk(cached))
    table("walk and stat, cached", WALKS, options.rounds, lambda: None, cached)
    table("walk, cached", NAMES, options.rounds, lambda: None, cached)


def data_sets(home: Path, rounds: int) -> None:
    """Tables of programs that read through fsspec."""
    import numpy
    import nowait
    import pandas
    import zarr

    numbers = numpy.random.default_rng(1)
    frame = pandas.DataFrame({f"c{i}": numbers.random(500_000) for i in range(20)})
    frame.to_parquet(home / "frame.parquet")
    data = numbers.random((4000, 3000))
    zarr.create_array(str(home / "array"), data=data, chunks=(200, 200))
    subprocess.run(["sync", "-f", home], check=True)
    for name, code in FSSPEC.items():
        programs = {"nowait": code.replace("PROTOCOL", "nowait"), "file": code.replace("PROTOCOL", "file")}
        for state, prepare in [("cold", nowait.evict), ("cached", nowait.warm)]:
            table(f"{name}, {state}", programs, rounds, lambda: prepare(home), home)


if __name__ == "__main__":
    main()
