#!/usr/bin/env python3
"""Runs a program whose system calls of io_uring fail with EPERM, as in a container: deny-io-uring.py PROGRAM [ARGUMENT...]"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000 | errno.EPERM
IO_URING_SETUP = 425  # The number is the same on all architectures.

program = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, FAIL), (RETURN, 0, 0, ALLOW)]
)
code = ctypes.create_string_buffer(program)
filter_ = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_, 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
