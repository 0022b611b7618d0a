"""Runs CPython's own tests of files with those of nowait.asyncio_files, each call in a run of an event loop.

Usage: io_in_cpython.py MODULE, such as test_io. It fails if a test fails that is not in DIFFERENT, or if one of
those passes.
"""

import asyncio
import importlib
import inspect
import sys
import threading
import unittest

from different_from_io import DIFFERENT, NOT_RUN

from nowait import asyncio_files

LOOPS = threading.local()


def result_of(awaitable):
    """The result of an awaitable in the event loop of this thread."""

    async def awaits():
        return await awaitable

    if not hasattr(LOOPS, "loop"):
        LOOPS.loop = asyncio.new_event_loop()
    return LOOPS.loop.run_until_complete(awaits())


class BlockingFile:
    """A file of asyncio_files, whose methods block."""

    def __init__(self, file):
        self.__dict__["_file"] = file

    def __getattr__(self, name):
        value = getattr(self._file, name)
        if not callable(value):
            return value

        def call(*arguments, **options):
            result = value(*arguments, **options)
            return result_of(result) if inspect.isawaitable(result) else result

        return call

    def __setattr__(self, name, value):
        setattr(self._file, name, value)

    def __enter__(self):
        result_of(self._file.__aenter__())
        return self

    def __exit__(self, *exception):
        return result_of(self._file.__aexit__(*exception))

    def __iter__(self):
        self._file.__aiter__()
        return self

    def __next__(self):
        try:
            return result_of(self._file.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def __repr__(self):
        return repr(self._file)


def open_blocking(*arguments, **options):
    return BlockingFile(result_of(asyncio_files.open(*arguments, **options)))


def raw_file(file, mode="r", closefd=True, opener=None):
    """As io.FileIO."""
    text = not isinstance(mode, str) or "b" not in mode
    return open_blocking(file, mode + "b" if text else mode, 0, closefd=closefd, opener=opener)


#: The classes of test_io that open files.
OF_FILES = {
    "CIOTest",
    "CBufferedReaderTest",
    "CBufferedWriterTest",
    "CTextIOWrapperTest",
    "CMiscIOTest",
}


def suite_of(name):
    """The tests of a module that open files by the C implementation of `io`."""
    module = importlib.import_module(f"test.{name}")
    everything = unittest.defaultTestLoader.loadTestsFromModule(module)
    if name == "test_bufio":
        # It reads by the built-in function.
        module.open = open_blocking
    chosen = unittest.TestSuite()
    for case in flat(everything):
        kind = type(case)
        is_file = kind.__name__ in OF_FILES if name == "test_io" else kind.__name__.startswith("C")
        if not is_file or case.id().startswith(tuple(NOT_RUN)):
            continue
        if name == "test_fileio":
            kind.FileIO = staticmethod(raw_file)
        kind.open = staticmethod(open_blocking)
        chosen.addTest(case)
    return chosen


def flat(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flat(item)
        else:
            yield item


class Result(unittest.TextTestResult):
    """Notes the tests that have passed."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.passed = set()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed.add(test.id())


def main(name):
    suite = suite_of(name)
    assert suite.countTestCases() >= 2
    result = unittest.TextTestRunner(resultclass=Result, verbosity=2).run(suite)
    failed = {}
    for test, text in result.failures + result.errors:
        # Of a part of a test, it is that of the test.
        test = getattr(test, "test_case", test)
        failed.setdefault(test.id(), []).append(text)
    new = {test: texts for test, texts in failed.items() if test not in DIFFERENT}
    for test, texts in new.items():
        print("DIFFERENT:", test, *texts, sep="\n")
    gone = result.passed & DIFFERENT.keys() - failed.keys()
    for test in sorted(gone):
        print("NOT DIFFERENT any more:", test)
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv.pop()))
