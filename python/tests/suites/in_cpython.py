"""Runs CPython's tests of os.walk() or os.scandir() with the functions of nowait."""

import os
import sys
import unittest
from functools import partial

import nowait

#: Tests that call stat() after a removal, and expect an error as of a system call.
AFTER_REMOVAL = {"test_removed_dir", "test_removed_file"}
different = set()
function = sys.argv.pop()
if function in ("walk", "walk_ahead"):
    os.walk = nowait.walk
    if function == "walk_ahead":
        # As if the directories were not cached.
        nowait._walk._SLOW = -1
    classes = ["WalkTests", "BytesWalkTests"]
else:
    has_stat = function == "scandir_with_stat"
    different |= AFTER_REMOVAL if has_stat else set()
    os.scandir = partial(nowait.scandir, stat=has_stat)
    os.DirEntry = nowait.DirEntry
    os.supports_fd.add(os.scandir)
    classes = ["TestScandir", "TestDirEntry"]

import test.test_os  # noqa: E402

suite = unittest.TestSuite()
for name in classes:
    for case in unittest.defaultTestLoader.loadTestsFromTestCase(getattr(test.test_os, name)):
        if case._testMethodName not in different:
            suite.addTest(case)
assert suite.countTestCases() >= 14
result = unittest.TextTestRunner().run(suite)
sys.exit(not result.wasSuccessful())
