"""walk() lists the directories of a tree ahead of the program, unless they are cached."""

from os import fspath, scandir
from os.path import islink, join
from time import perf_counter

from ._nowait import DirEntry, Tree, list_cached

#: A directory was not cached if it took longer to list than `_SLOW`, and `_SLOW_ENTRY` for each entry, in
#: seconds. After two of them, since a thread may be delayed once, the next `_AHEAD` are listed ahead.
_SLOW, _SLOW_ENTRY, _AHEAD = 2e-4, 2e-6, 256
#: The number of directories that are passed to the tree at once. It lists fewer of them at the same time.
_TOLD = 1024


def walk(top, topdown=True, onerror=None, followlinks=False, *, entries=False):
    """Walk a tree, with the interface and the results of os.walk().

    If the directories are not cached, up to 64 are listed ahead, at the same time and without the GIL,
    in the order in which they will be returned. What the program removes from the list of directories
    is not entered.

    Args:
        top: The root: str, bytes or os.PathLike.
        topdown: Return a directory before those in it. The list of its directories may be edited.
        onerror: A function that is called with the OSError of a directory that cannot be listed.
        followlinks: Enter the directories that symbolic links lead to.
        entries: Return lists of `DirEntry` instead of names. Their stat() needs no system call if the
            directory was listed ahead.

    Returns:
        An iterator of (path, directories, other files).

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     os.makedirs(f"{directory}/a/b")
    ...     [dirnames for dirpath, dirnames, filenames in walk(directory)]
    [['a'], ['b'], []]
    """
    top = fspath(top)
    # Its threads are started when a directory was not cached.
    tree = None
    # The path, the number in the tree if it has one, and the lists of a directory to be returned.
    stack = [[top, None, None]]
    slow, ahead = 0, 0
    while stack:
        path, number, listed = stack.pop()
        if listed:
            yield path, *listed
            continue
        try:
            found = None
            if not ahead and number is None:
                if entries:
                    found = list_cached(path, followlinks, _SLOW, _SLOW_ENTRY)
                    is_slow = found is None
                else:
                    found, is_slow = _list(path, followlinks)
                slow = slow + 1 if is_slow else 0
                ahead = _AHEAD if slow > 1 else 0
            if found:
                directories, others, numbers = found
            else:
                tree = tree or Tree(isinstance(top, bytes), followlinks, entries)
                if number is None:
                    number = _tell(tree, path, stack if ahead else [])
                listing = tree.list(number, path)
                directories, others = listing.directories, listing.others
                known = [_LINK if number is None else number for number in listing.numbers]
                numbers = dict(zip(_names(directories), known))
                ahead -= ahead > 0
        except OSError as error:
            if onerror is not None:
                onerror(error)
            continue
        if topdown:
            yield path, directories, others
        else:
            stack.append([path, number, (directories, others)])
        if not directories and not numbers:
            continue
        wanted = []
        for name in _names(directories):
            below = join(path, name)
            # A name that the program has added has no number.
            number = numbers.pop(name, _ADDED)
            if number == _LINK or (topdown and not followlinks and islink(below)):
                # Also what the program has replaced by a link since.
                numbers[name] = number
                continue
            wanted.append([below, None if number is _ADDED else number, None])
        if tree is not None:
            told = [number for _, number, _ in wanted if number is not None]
            unwanted = [number for number in numbers.values() if isinstance(number, int)]
            tree.descend(told, unwanted)
        stack.extend(reversed(wanted))


#: The numbers of a link that is not entered, and of a name that was not listed.
_LINK, _ADDED = "link", "added"


def _tell(tree, path, stack):
    """Adds a directory, and those that will be wanted after it, to the tree."""
    first = tree.add(path)
    numbers = [first]
    for item in reversed(stack[-_TOLD:]):
        if item[1] is None and item[2] is None:
            item[1] = tree.add(item[0])
            numbers.append(item[1])
    tree.descend(numbers, [])
    return first


def _list(path, followlinks):
    """The names of a directory as os.walk() lists them, with what is known of each directory; and if it
    was not cached."""
    begin = perf_counter()
    directories, others, numbers = [], [], {}
    with scandir(path) as found:
        for entry in found:
            try:
                is_directory = entry.is_dir()
            except OSError:
                is_directory = False
            if not is_directory:
                others.append(entry.name)
                continue
            directories.append(entry.name)
            is_entered = followlinks or not entry.is_symlink()
            numbers[entry.name] = None if is_entered else _LINK
    limit = _SLOW + _SLOW_ENTRY * (len(directories) + len(others))
    return (directories, others, numbers), perf_counter() - begin > limit


def _names(directories):
    """The names in the list of directories, as the program has left it."""
    return [entry.name if isinstance(entry, DirEntry) else fspath(entry) for entry in directories]
