"""A plugin for pytest: aiofiles' own tests open files of nowait. Its `os` and `tempfile` are its own."""

import aiofiles
import aiofiles.os
import aiofiles.threadpool

from nowait import asyncio_files


def open_file(file, *arguments, loop=None, **options):
    return asyncio_files.open(file, *arguments, **options)


aiofiles.open = aiofiles.threadpool.open = open_file
for name in ["rename", "scandir", "stat", "unlink"]:
    setattr(aiofiles.os, name, getattr(asyncio_files, name))
