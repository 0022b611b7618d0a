"""Page cache, model weights and many files on Linux, without waiting for the disk."""

from ._nowait import (
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
    warm,
)

__all__ = [
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
    "warm",
]
