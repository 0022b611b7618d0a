"""Page cache, model weights and many files on Linux, without waiting for the disk."""

from ._nowait import (
    DirEntry,
    EvictResult,
    Progress,
    ReadAheadReport,
    ReadFiles,
    Residency,
    Unknown,
    WarmResult,
    __version__,
    evict,
    read_ahead,
    read_files,
    residency,
    scandir,
    warm,
)
from ._walk import walk

__all__ = [
    "DirEntry",
    "EvictResult",
    "Progress",
    "ReadAheadReport",
    "ReadFiles",
    "Residency",
    "Unknown",
    "WarmResult",
    "__version__",
    "asyncio_files",
    "evict",
    "read_ahead",
    "read_files",
    "residency",
    "scandir",
    "walk",
    "warm",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import asyncio_files
else:

    def __getattr__(name):
        """Imports `asyncio_files` on its first use: asyncio takes long to import."""
        if name == "asyncio_files":
            from importlib import import_module

            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


del TYPE_CHECKING
