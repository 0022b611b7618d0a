#!/usr/bin/env python3
"""Random reads and writes of two clients through several shares of one directory, beside a model of the bytes.

usage: differential.py PORT USER PASSWORD DIRECTORY SEED OPERATIONS SHARE...

Each share has a file of its own in DIRECTORY, and both clients make the same operations on it: reads, up to eight of them
in flight, writes, truncations, evictions from the page cache. Each read must return the bytes of the model, and be short
only at the end of the file.
"""

import os
import random
import sys
import uuid

from smbprotocol.connection import Connection, Dialects
from smbprotocol.exceptions import EndOfFile
from smbprotocol.file_info import FileEndOfFileInformation
from smbprotocol.open import (
    CreateDisposition, CreateOptions, FileAttributes, FilePipePrinterAccessMask, ImpersonationLevel, Open, ShareAccess,
    SMB2SetInfoRequest,
)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

MAX = 3 << 20
LENGTHS = 1, 511, 4096, 5000, 65536, 300_000, 1 << 20


class Client:
    """An open file. `beside` is another client, whose connection is used."""

    def __init__(self, port, user, password, share, name, beside=None):
        if beside:
            self.connection, self.session = beside.connection, beside.session
        else:
            self.connection = Connection(uuid.uuid4(), "127.0.0.1", port, require_signing=False)
            self.connection.connect(Dialects.SMB_2_1_0, timeout=30)
            self.session = Session(self.connection, user, password, require_encryption=False, auth_protocol="ntlm")
            self.session.connect()
        self.tree = TreeConnect(self.session, rf"\\127.0.0.1\{share}")
        self.tree.connect()
        self.file = Open(self.tree, name)
        self.file.create(
            ImpersonationLevel.Impersonation,
            FilePipePrinterAccessMask.GENERIC_READ | FilePipePrinterAccessMask.GENERIC_WRITE,
            FileAttributes.FILE_ATTRIBUTE_NORMAL,
            ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE,
            CreateDisposition.FILE_OPEN_IF,
            CreateOptions.FILE_NON_DIRECTORY_FILE,
        )

    def begin(self, offset, length):
        message, unpack = self.file.read(offset, length, send=False)
        return self.connection.send(message, sid=self.session.session_id, tid=self.tree.tree_connect_id), unpack

    def end(self, begun):
        request, unpack = begun
        try:
            return bytes(unpack(request))
        except EndOfFile:
            return b""

    def call(self, request):
        sent = self.connection.send(request, sid=self.session.session_id, tid=self.tree.tree_connect_id)
        self.connection.receive(sent)

    def truncate(self, length):
        info = FileEndOfFileInformation()
        info["end_of_file"] = length
        request = SMB2SetInfoRequest()
        request["info_type"] = info.INFO_TYPE
        request["file_info_class"] = info.INFO_CLASS
        request["file_id"] = self.file.file_id
        request["buffer"] = info
        self.call(request)

    def close(self):
        self.file.close()
        self.connection.disconnect()


def evict(path, chance):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    offset, length = chance.choice([(0, 0), (chance.randrange(MAX), 1 << 16)])
    os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def run(port, user, password, directory, seed, operations, share):
    chance = random.Random(seed)
    name = f"random-{share}"
    clients = [Client(port, user, password, share, name) for _ in range(2)]
    model = bytearray(chance.randbytes(MAX))
    for offset in range(0, MAX, 1 << 16):
        clients[0].file.write(bytes(model[offset : offset + (1 << 16)]), offset)
    reads = 0
    for step in range(operations):
        client = chance.choice(clients)
        kind = chance.random()
        if kind < 0.5:
            evict(f"{directory}/{name}", chance)
        if kind < 0.8:
            wanted = [(chance.randrange(MAX), chance.choice(LENGTHS)) for _ in range(chance.randint(1, 8))]
            begun = [client.begin(offset, length) for offset, length in wanted]
            for (offset, length), one in zip(wanted, begun):
                got = client.end(one)
                if got != bytes(model[offset : offset + length]):
                    sys.exit(f"{share}, seed {seed}, step {step}: wrong bytes at {offset}, {len(got)} of {length}")
                reads += 1
        elif kind < 0.97:
            offset = chance.randrange(len(model))
            data = chance.randbytes(chance.choice(LENGTHS[:5]))[: MAX - offset]
            client.file.write(data, offset)
            model[offset : offset + len(data)] = data
        else:
            length = chance.randrange(MAX // 2, MAX)
            client.truncate(length)
            model = model[:length].ljust(length, b"\0")
    for client in clients:
        client.close()
    with open(f"{directory}/{name}", "rb") as file:
        if file.read() != bytes(model):
            sys.exit(f"{share}, seed {seed}: the file has other bytes at the end")
    print(f"{share}: {reads} reads")


if __name__ == "__main__":
    port, user, password, directory, seed, operations = sys.argv[1:7]
    for share in sys.argv[7:]:
        run(int(port), user, password, directory, int(seed), int(operations), share)
