#!/usr/bin/env python3
"""Unusual reads through several shares of one directory: each must end as through the first share.

usage: edges.py PORT USER PASSWORD DIRECTORY SHARE...

All shares are used on one connection, so one process of smbd serves them. The reads are at and beyond the end of the file,
of 8 MiB, at offsets near 2^63 and 2^64, of locked ranges, of an alternate data stream, of a FIFO, and of a file that
shrinks meanwhile.
"""

import hashlib
import os
import random
import sys

from smbprotocol.exceptions import SMBException, SMBResponseException
from smbprotocol.open import LockFlags, SMB2LockElement, SMB2LockRequest

from differential import Client

SIZE = (12 << 20) + 123
MOST = 8 << 20
LOCKED = 10 << 20  # and the 64 KiB after it, which two of the longest reads do not reach
RANGES = [
    (0, MOST), (1_000_001, MOST - 4096), (SIZE - MOST, MOST), (SIZE - 300_000, MOST), (SIZE - 100, 4096), (SIZE - 1, 1),
    (SIZE, 1), (SIZE, 4096), (SIZE + 1, 1), (SIZE + 5000, MOST), (0, 0), (100, 0), (SIZE, 0), (1 << 40, 4096),
    ((1 << 63) - 1, 1), ((1 << 63) - 4096, 4096), ((1 << 63) - 4095, 4096), ((1 << 63) - MOST, MOST), (1 << 63, 1),
    ((1 << 64) - 1, 1), ((1 << 64) - 2, 4096), ((1 << 64) - 4096, 4096), ((1 << 64) - 4096, MOST),
    (LOCKED - 4096, 4096), (LOCKED - 4096, 4097), (LOCKED, 65536), (LOCKED + 65535, 1), (LOCKED + 65536, 4096),
]


def outcome(read):
    try:
        got = bytes(read())
        return len(got), hashlib.sha256(got).hexdigest()
    except SMBResponseException as error:
        return f"{error.status:#x}"


def evict(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def lock(client):
    element = SMB2LockElement()
    element["offset"], element["length"] = LOCKED, 65536
    element["flags"].set_flag(LockFlags.SMB2_LOCKFLAG_EXCLUSIVE_LOCK)
    element["flags"].set_flag(LockFlags.SMB2_LOCKFLAG_FAIL_IMMEDIATELY)
    request = SMB2LockRequest()
    request["file_id"] = client.file.file_id
    request["locks"] = [element]
    client.call(request)


def reads(client, path):
    """The outcomes of all ranges, one at a time and all at once, uncached and cached."""
    outcomes = []
    for _ in range(2):
        for offset, length in RANGES:
            outcomes.append((offset, length, outcome(lambda: client.file.read(offset, length))))
    evict(path)
    begun = [(offset, length, client.begin(offset, length)) for offset, length in RANGES]
    for offset, length, (request, unpack) in begun:
        outcomes.append((offset, length, outcome(lambda: unpack(request))))
    return outcomes


def opened(open_file, use):
    """The outcome of a file that may not be opened."""
    try:
        client = open_file()
    except SMBException as error:
        return f"open: {getattr(error, 'status', 0):#x}"
    result = outcome(lambda: use(client))
    client.file.close()
    return result


def stream_bytes(client):
    client.file.write(b"alternate" * 1000, 0)
    return client.file.read(5, 8000)


def shrink(client, path, data, chance):
    """Reads of a file that is truncated meanwhile return its bytes, zeros, or fewer bytes."""
    for _ in range(20):
        with open(path, "r+b") as file:
            file.write(data)
        evict(path)
        offsets = [chance.randrange(len(data)) for _ in range(8)]
        begun = [client.begin(offset, 65536) for offset in offsets]
        os.truncate(path, chance.randrange(len(data)))
        for offset, one in zip(offsets, begun):
            got = client.end(one)
            expected = data[offset : offset + 65536]
            same = len(os.path.commonprefix([got, expected]))
            if len(got) > len(expected) or got[same:].strip(b"\0"):
                sys.exit(f"wrong bytes of a file that shrinks at {offset}: {len(got)} bytes, {same} of them right")


def main():
    port, user, password, directory = sys.argv[1:5]
    shares = sys.argv[5:]
    chance = random.Random(1)
    data = chance.randbytes(SIZE)
    path, shrinking, fifo = (f"{directory}/{name}" for name in ("edges", "shrinks", "fifo"))
    for name in path, shrinking:
        with open(name, "wb") as file:
            file.write(data)
        os.chmod(name, 0o666)
    if not os.path.exists(fifo):
        os.mkfifo(fifo)
        os.chmod(fifo, 0o666)

    def client(*args):
        return Client(int(port), user, password, *args)

    other = client(shares[0], "edges")
    lock(other)
    first = client(shares[0], "edges")
    first.connection.echo(sid=first.session.session_id, credit_request=8000)
    expected = None
    for share in shares:
        one = client(share, "edges", first)
        evict(path)
        outcomes = reads(one, path)
        outcomes.append(("stream", opened(lambda: client(share, "edges:stream", first), stream_bytes)))
        outcomes.append(("FIFO", opened(lambda: client(share, "fifo", first), lambda fifo: fifo.file.read(0, 10))))
        expected = expected or outcomes
        for here, there in zip(outcomes, expected, strict=True):
            if here != there:
                sys.exit(f"{share}: {here}, but {shares[0]}: {there}")
        shrink(client(share, "shrinks", first), shrinking, data[: 4 << 20], chance)
        print(f"{share}: {len(outcomes)} unusual reads")
    first.connection.disconnect()
    other.connection.disconnect()


main()
