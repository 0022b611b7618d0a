"""The tests of CPython that fail with the files of nowait.asyncio_files, each with the reason."""

DIFFERENT = {
    "test.test_io.CIOTest.test_closefd_attr": "`buffer.raw` never closes the descriptor: the asyncio file does",
    "test.test_io.CIOTest.test_flush_error_on_close": "close() does not call a flush() that replaces that of the file",
    "test.test_io.CTextIOWrapperTest.test_telling": "tell() works while lines are iterated",
    "test.test_io.CTextIOWrapperTest.test_seeking_too": "there is no _CHUNK_SIZE, which is a detail of TextIOWrapper",
    "test.test_io.CMiscIOTest.test_abc_inheritance": "a file whose methods are coroutines is no IOBase",
    "test.test_io.CMiscIOTest.test_abc_inheritance_official": "a file whose methods are coroutines is no IOBase",
    "test.test_fileio.CAutoFileTests.testRepr": "repr() has the class of the asyncio file",
    "test.test_fileio.CAutoFileTests.testReprNoCloseFD": "repr() has the class of the asyncio file",
    "test.test_fileio.CAutoFileTests.testRecursiveRepr": "the name cannot be set",
    "test.test_fileio.CAutoFileTests.testBlksize": "there is no _blksize, which is a detail of FileIO",
    "test.test_fileio.COtherFileTests.testUnclosedFDOnException": "it derives a class from FileIO",
    # CPython 3.13:
    "test.test_fileio.CAutoFileTests.test_subclass_repr": "it derives a class from FileIO",
    "test.test_fileio.COtherFileTests.testBooleanFd": "a bool is taken as a descriptor without a warning",
}

#: Prefixes of tests that are not run.
NOT_RUN = {
    "test.test_fileio.CAutoFileTests.testErrno": "they close the descriptor of an open file, for which a debug build aborts",
}
