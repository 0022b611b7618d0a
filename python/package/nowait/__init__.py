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
    "evict",
    "read_ahead",
    "read_files",
    "residency",
    "scandir",
    "walk",
    "warm",
]
