"""The end of the interpreter while daemon threads are in calls of the package."""

import os

import pytest
from helpers import python

MIB = 1 << 20

#: The last object of the interpreter lets the daemon threads ask for the GIL during the shutdown.
PROGRAM = """if True:
    import asyncio, os, sys, threading, time, random
    import nowait
    from nowait import asyncio_files

    class Late:
        def __del__(self, sleep=time.sleep):
            sleep(0.1)

    sys.late = Late()
    began = threading.Event()
    directory, file = sys.argv[1], sys.argv[1] + "/data"

    def pauses():
        began.set()
        time.sleep(0.01)

    def evict():
        with open(file, "rb") as it:
            os.posix_fadvise(it.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def sleeping(value):
        while True:
            pauses()
            yield value

    class Path(os.PathLike):
        def __fspath__(self):
            pauses()
            return file

    class Loop(asyncio.SelectorEventLoop):
        def call_soon(self, *arguments, **options):
            pauses()
            return super().call_soon(*arguments, **options)

    def run(make_loop):
        async def reads(k):
            async with asyncio_files.open(file, "rb") as it:
                while True:
                    evict()
                    for i in range(16):
                        await it.read_at((16 * i + k) * 65536 % (4 << 20), 4096)
                        began.set()

        async def main():
            await asyncio.gather(*[reads(k) for k in range(16)])

        make_loop().run_until_complete(main())

    def uvloop():
        import uvloop
        return uvloop.new_event_loop()

    def again(call):
        while True:
            evict()
            call()
            began.set()

    def ahead():
        with nowait.read_ahead(file) as reading:
            reading.report()

    def call():
        {call}

    def thread():
        try:
            call()
        except BaseException:
            # The interpreter may have no modules any more.
            pass

    for _ in range(2):
        threading.Thread(target=thread, daemon=True).start()
    began.wait()
    time.sleep(random.random() * 0.02)
"""

CALLS = {
    "a loop": "run(asyncio.new_event_loop)",
    "a loop that sleeps": "run(Loop)",
    "uvloop": "run(uvloop)",
    "the path of a stat": "again(lambda: asyncio_files.stat(Path()))",
    "ranges": "asyncio.run(asyncio_files.open(file, 'rb').__aenter__()).read_ranges(sleeping((0, 1)))",
    "warm": "again(lambda: nowait.warm(file))",
    "warm, paths": "nowait.warm(sleeping(file))",
    "warm, progress": "again(lambda: nowait.warm(file, rate=1 << 20, progress=lambda _: pauses()))",
    "evict": "again(lambda: nowait.evict(Path()))",
    "residency": "again(lambda: nowait.residency(file))",
    "residency, path": "again(lambda: nowait.residency(Path()))",
    "read_files": "again(lambda: list(nowait.read_files([file] * 9)))",
    "read_files, paths": "list(nowait.read_files(sleeping(file)))",
    "read_ahead": "again(ahead)",
    "read_ahead, paths": "nowait.read_ahead(sleeping(file))",
    "scandir": "again(lambda: [entry.stat() for entry in nowait.scandir(directory)])",
    "scandir, path": "again(lambda: nowait.scandir(Path()))",
    "walk": "again(lambda: list(nowait.walk(directory, entries=True)))",
}


@pytest.mark.parametrize("name", CALLS)
def test_the_interpreter_ends_beside(make, name):
    if name == "uvloop":
        pytest.importorskip("uvloop")
    path = make("data", 4 * MIB)
    for i in range(100):
        (path.parent / f"{i}").write_bytes(b"a")
    code = PROGRAM.format(call=CALLS[name])
    for _ in range(int(os.environ.get("NOWAIT_EXITS", "5"))):
        done = python(code, path.parent)
        assert done.returncode == 0, (done.returncode, done.stderr)


#: Objects that are alive when the interpreter ends.
ALIVE = {
    "a stat": "asyncio_files.stat('/')",
    "a rename": "asyncio_files.rename('/none', '/none2')",
    "an opening": "asyncio_files.open(file)",
    "a pause": "nowait._nowait.pause()",
    "a read": "opened().read_at(0, 10)",
    "a read into a buffer": "opened().readinto_at(0, bytearray(2 << 20))",
    "a read that has begun": "begun(lambda it=opened(): it.read_at(0, 1 << 19))",
    "a read into a buffer that has begun": "begun(lambda it=opened(): it.readinto_at(0, bytearray(2 << 20)))",
    "a sync that has begun": "begun(opened('wb').fsync)",
    "a file": "opened()",
    "a text file": "opened('r')",
    "a file for reading and writing": "opened('r+b')",
    "a loop": "(opened(), loop)",
    "a scandir": "nowait.scandir(directory)",
    "entries": "list(nowait.scandir(directory))",
    "a walk": "(lambda tree: (next(tree), tree))(nowait.walk(directory, entries=True))",
    "read_files": "(lambda files: (next(files), files))(nowait.read_files([file] * 9))",
    "read_ahead": "(lambda ahead: (ahead.__enter__(), ahead))(nowait.read_ahead(file))",
    "results": "nowait.residency(file), nowait.warm(file), nowait.evict(file)",
}


@pytest.mark.parametrize("use", ["dropped", "used"])
@pytest.mark.parametrize("name", ALIVE)
def test_nothing_is_printed_for(make, name, use):
    path = make("data", 4 * MIB)
    code = """if True:
        import asyncio, builtins, codecs, sys
        import nowait
        from nowait import asyncio_files
        directory, file, use = sys.argv[1], sys.argv[1] + "/data", sys.argv[2]
        loop = asyncio.new_event_loop()

        def opened(mode="rb"):
            async def main():
                return await asyncio_files.open(file + ("" if "r" in mode else "2"), mode)
            return loop.run_until_complete(main())

        def begun(call):
            async def main():
                while True:
                    nowait.evict(file)
                    awaitable = call()
                    try:
                        awaitable.send(None)
                        return awaitable
                    except StopIteration:
                        pass
            return loop.run_until_complete(main())

        class Late:
            def __init__(self, it):
                self.it = it

            def __del__(self):
                for call in [lambda: self.it.send(None), lambda: self.it.throw(ValueError()), lambda: self.it.close()]:
                    try:
                        call()
                    except BaseException:
                        pass

        kept = %s
        kept = Late(kept) if use == "used" else kept
        builtins.kept = kept
        # The interpreter drops these functions later than all modules.
        codecs.register(lambda name, kept=kept: None)
        builtins.kept_too = [kept if use == "dropped" else None]
        del kept, builtins.kept
    """
    done = python(code % ALIVE[name], path.parent, use)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


#: What a function of atexit does with the files `one` and `two`, which were written before.
AT_EXIT = {
    "close": "await one.close(); await two.close()",
    "write": "await one.write(b'more'); await one.close(); await two.write('more'); await two.close()",
    "open": "(await (await asyncio_files.open(path)).read()); await one.close(); await two.close()",
    "opener": "await (await asyncio_files.open(path, opener=os.open)).read(); await one.close(); await two.close()",
    "fail": "await one.close(); await two.close(); await asyncio_files.open(os.open('/', os.O_RDONLY))",
    "scandir": "await asyncio_files.scandir('/'); await one.close(); await two.close()",
}


@pytest.mark.parametrize("name", AT_EXIT)
def test_files_are_used_at_exit(tmp_path, name):
    """Python starts no thread any more. The executor of a loop may have none yet."""
    code = """if True:
        import asyncio, atexit, os, sys
        from nowait import asyncio_files
        path = sys.argv[1]

        async def begin():
            one = await asyncio_files.open(path, "wb")
            await one.write(b"bytes")
            two = await asyncio_files.open(path + "2", "w")
            await two.write("text")
            return one, two

        one, two = asyncio.run(begin())

        async def end():
            try:
                %s
            except IsADirectoryError:
                print("a directory")

        atexit.register(lambda: asyncio.run(end()))
    """
    done = python(code % AT_EXIT[name], tmp_path / "file")
    said = "a directory\n" if name == "fail" else ""
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    more = "more" if name == "write" else ""
    assert (tmp_path / "file").read_text() == "bytes" + more
    assert (tmp_path / "file2").read_text() == "text" + more


def test_calls_of_fsspec_are_made_at_exit(tmp_path):
    pytest.importorskip("fsspec")
    code = """if True:
        import asyncio, atexit, sys
        from nowait.fsspec import NowaitFileSystem
        path = sys.argv[1]

        async def main():
            files = NowaitFileSystem(asynchronous=True)
            await files._pipe_file(path, b"bytes")
            await files._cp_file(path, path + "2")
            print(await files._cat_file(path + "2"), (await files._info(path))["size"])

        atexit.register(lambda: asyncio.run(main()))
    """
    done = python(code, tmp_path / "file")
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'bytes' 5\n", "")
