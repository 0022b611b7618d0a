"""walk() lists the directories of a tree ahead of the program."""

from os import fspath
from os.path import islink, join

from ._nowait import DirEntry, Tree


def walk(top, topdown=True, onerror=None, followlinks=False, *, entries=False):
    """Walk a tree, with the interface and the results of os.walk().

    Up to 64 directories are listed ahead, at the same time and without the GIL, in the order in which
    they will be returned. What the program removes from the list of directories is not entered.

    Args:
        top: The root: str, bytes or os.PathLike.
        topdown: Return a directory before those in it. The list of its directories may be edited.
        onerror: A function that is called with the OSError of a directory that cannot be listed.
        followlinks: Enter the directories that symbolic links lead to.
        entries: Return lists of `DirEntry` instead of names. Their stat() needs no system call.

    Returns:
        An iterator of (path, directories, other files).

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     os.makedirs(f"{directory}/a/b")
    ...     [dirnames for dirpath, dirnames, filenames in walk(directory)]
    [['a'], ['b'], []]
    """
    top = fspath(top)
    tree = Tree(top, followlinks, entries)
    stack = [(top, 0, None)]
    while stack:
        path, number, listed = stack.pop()
        if listed:
            yield path, *listed
            continue
        try:
            listing = tree.list(number, path)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            continue
        directories, others = listing.directories, listing.others
        numbers = dict(zip(_names(directories), listing.numbers))
        if topdown:
            yield path, directories, others
        else:
            stack.append((path, number, (directories, others)))
        wanted = []
        for name in _names(directories):
            below = join(path, name)
            # A name that the program has added has no number.
            number = numbers.pop(name, -1)
            if number is None or (topdown and not followlinks and islink(below)):
                # Also what the program has replaced by a link since.
                numbers[name] = None if number == -1 else number
                continue
            if number == -1:
                number = tree.add(below)
            wanted.append((below, number, None))
        tree.descend(
            [number for _, number, _ in wanted], [n for n in numbers.values() if n is not None]
        )
        stack.extend(reversed(wanted))


def _names(directories):
    """The names in the list of directories, as the program has left it."""
    return [entry.name if isinstance(entry, DirEntry) else fspath(entry) for entry in directories]
