"""Page cache and many files on Linux, without waiting for the disk."""

from ._nowait import (
    EvictResult,
    Progress,
    ReadFiles,
    Residency,
    Unknown,
    WarmResult,
    __version__,
    evict,
    read_files,
    residency,
    warm,
)

__all__ = [
    "EvictResult",
    "Progress",
    "ReadFiles",
    "Residency",
    "Unknown",
    "WarmResult",
    "__version__",
    "evict",
    "read_files",
    "residency",
    "warm",
]
