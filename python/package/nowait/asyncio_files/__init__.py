"""Files for asyncio that do not change threads for data in the page cache.

`open` and its files have the interface of those of aiofiles, with reads and writes at an offset:

>>> import asyncio, tempfile
>>> from nowait import asyncio_files
>>> async def main(path):
...     async with asyncio_files.open(path, "w") as file:
...         await file.write("one\\ntwo\\n")
...     async with asyncio_files.open(path) as file:
...         lines = [line async for line in file]
...         return lines, await file.read_at(4, 3)
>>> with tempfile.TemporaryDirectory() as directory:
...     asyncio.run(main(f"{directory}/file"))
(['one\\n', 'two\\n'], b'two')

Cached data is read in the event loop's thread when a call is awaited, without a turn of the loop. The
library reads other data by io_uring or in threads, which never hold the GIL. After about a millisecond
of calls that did not wait, a task gives way to the other tasks of its loop.

It works with asyncio and uvloop. Other libraries, such as trio, are refused with RuntimeError.
"""

from .._nowait import rename, stat, unlink
from ._binary import BinaryFile
from ._open import open, scandir
from ._text import TextFile

__all__ = ["BinaryFile", "TextFile", "open", "rename", "scandir", "stat", "unlink"]
