from collections.abc import Callable, Iterator
from os import PathLike
from typing import AnyStr, Literal, overload

from ._nowait import DirEntry

@overload
def walk(
    top: AnyStr | PathLike[AnyStr],
    topdown: bool = True,
    onerror: Callable[[OSError], object] | None = None,
    followlinks: bool = False,
    *,
    entries: Literal[False] = False,
) -> Iterator[tuple[AnyStr, list[AnyStr], list[AnyStr]]]: ...
@overload
def walk(
    top: AnyStr | PathLike[AnyStr],
    topdown: bool = True,
    onerror: Callable[[OSError], object] | None = None,
    followlinks: bool = False,
    *,
    entries: Literal[True],
) -> Iterator[tuple[AnyStr, list[DirEntry[AnyStr]], list[DirEntry[AnyStr]]]]: ...
