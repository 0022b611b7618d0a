"""The file system `nowait://` for fsspec.

>>> import fsspec, tempfile
>>> with tempfile.TemporaryDirectory() as directory:
...     files = fsspec.filesystem("nowait")
...     files.pipe({f"{directory}/a": b"abc", f"{directory}/b": b"defg"})
...     files.cat_ranges([f"{directory}/a", f"{directory}/b"], [1, 0], [3, 2])
[b'bc', b'de']

It is fsspec's LocalFileSystem, with coroutines for asyncio, and with calls that read many files or ranges
at the same time. The paths are those of the machine: `nowait:///data/a` is `/data/a`.
"""

from ._fsspec import NowaitFileSystem, StreamedFile

__all__ = ["NowaitFileSystem", "StreamedFile"]
