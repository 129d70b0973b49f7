#!/usr/bin/env python3
"""protocol.py URI [READ_ONLY_URI]: legal and illegal requests through libnbd against a writable export of at least 8 MiB.

The first 8 MiB of the export are overwritten. Exit status: 0 good, 1 a difference, 77 libnbd is missing.
"""
import errno
import os
import socket
import struct
import sys
import urllib.parse

try:
    import nbd
except ImportError:
    sys.exit(77)

URI = sys.argv[1]
MIB = 1 << 20


def connect(uri=URI, structured=True, contexts=True):
    handle = nbd.NBD()
    handle.set_strict_mode(0)
    handle.set_request_structured_replies(structured)
    if contexts:
        handle.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    handle.connect_uri(uri)
    return handle


def refused(expected, call, *arguments, **named):
    """The call fails with this error number."""
    try:
        call(*arguments, **named)
    except nbd.Error as error:
        assert error.errnum == expected, f"{call.__name__}{arguments}: {error} instead of {errno.errorcode[expected]}"
        return str(error)
    raise AssertionError(f"{call.__name__}{arguments} did not fail with {errno.errorcode[expected]}")


def extents(handle, length, offset, flags=0):
    found = []
    handle.block_status(length, offset, lambda context, at, list_, error: found.extend(list_) or 0, flags)
    return list(zip(found[::2], found[1::2]))


def announced(handle, size):
    for name in ["flush", "fua", "trim", "zero", "fast_zero", "cache", "multi_conn"]:
        assert getattr(handle, "can_" + name)(), name
    assert size >= 8 * MIB and size % 512 == 0
    sizes = [handle.get_block_size(kind) for kind in (nbd.SIZE_MINIMUM, nbd.SIZE_PREFERRED, nbd.SIZE_MAXIMUM)]
    assert sizes == [1, 4096, 32 * MIB], sizes


def legal(handle):
    data = os.urandom(64 * 1024)
    handle.pwrite(data, 4096)
    assert handle.pread(len(data), 4096) == data
    handle.pwrite(data[:512], 512, nbd.CMD_FLAG_FUA)
    assert handle.pread(1024, 0)[512:] == data[:512]
    # What e2fsck and tune2fs do: two bytes, also across two blocks.
    for offset in (0, 511, 4095, 8191):
        handle.pwrite(b"wr", offset)
        assert handle.pread(4, offset)[:2] == b"wr" and handle.pread(2, offset) == b"wr"
    expected = bytearray(handle.pread(32768, 0))
    handle.zero(4099, 8190, nbd.CMD_FLAG_NO_HOLE)
    expected[8190:8190 + 4099] = bytes(4099)
    handle.trim(8195, 16381)
    expected[16381:16381 + 8195] = bytes(8195)
    assert handle.pread(32768, 0) == expected
    handle.pwrite(data, 4096)
    if handle.can_df():
        assert handle.pread(len(data), 4096, nbd.CMD_FLAG_DF) == data
    handle.flush()
    handle.cache(MIB, 0)
    handle.zero(8192, 4096, nbd.CMD_FLAG_FAST_ZERO)
    handle.zero(8192, 12288, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_FUA)
    assert handle.pread(16384, 4096) == bytes(16384)
    assert handle.pread(4096, 20480) == data[16384:20480]
    handle.trim(MIB, 0, nbd.CMD_FLAG_FUA)
    assert handle.pread(4096, 4096) == bytes(4096), "trimmed blocks read as zeroes"
    large = os.urandom(32 * MIB if handle.get_size() >= 32 * MIB else 8 * MIB)
    handle.pwrite(large, 0)
    assert handle.pread(len(large), 0) == large


def illegal(handle, size):
    sector = bytes(512)
    for offset, length in [(0, 0), (511, 0)]:
        refused(errno.EINVAL, handle.pwrite, bytes(length), offset)
        refused(errno.EINVAL, handle.pread, length, offset)
        refused(errno.EINVAL, handle.trim, length, offset)
        refused(errno.EINVAL, handle.zero, length, offset)
        refused(errno.EINVAL, handle.cache, length, offset)
    for offset in [size, size - 512, 1 << 62]:
        length = 1024 if offset < size else 512
        refused(errno.ENOSPC, handle.pwrite, bytes(length), offset)
        refused(errno.ENOSPC, handle.zero, length, offset)
        refused(errno.EINVAL, handle.pread, length, offset)
        refused(errno.EINVAL, handle.trim, length, offset)
        refused(errno.EINVAL, handle.cache, length, offset)
    refused(errno.EINVAL, handle.pread, 32 * MIB + 512, 0)
    refused(errno.EINVAL, handle.pwrite, bytes(32 * MIB + 512), 0)
    refused(errno.EINVAL, handle.pwrite, sector, 0, nbd.CMD_FLAG_REQ_ONE)
    refused(errno.EINVAL, handle.pread, 512, 0, nbd.CMD_FLAG_FAST_ZERO)
    refused(errno.EINVAL, handle.trim, 512, 0, nbd.CMD_FLAG_NO_HOLE)
    assert handle.pread(512, size - 512) is not None, "the connection goes on"


def block_status(handle):
    handle.trim(8 * MIB, 0)
    handle.pwrite(b"x" * 65536, MIB)
    handle.zero(65536, MIB + 65536, nbd.CMD_FLAG_NO_HOLE)
    expected = [(MIB, 3), (65536, 0), (65536, 2), (7 * MIB - 131072, 3)]
    assert extents(handle, 8 * MIB, 0) == expected, extents(handle, 8 * MIB, 0)
    assert extents(handle, 8 * MIB, 0, nbd.CMD_FLAG_REQ_ONE) == expected[:1]
    # States are those of blocks, wherever a question begins and ends.
    assert extents(handle, 4096, MIB - 1) == [(1, 3), (4095, 0)]
    assert extents(handle, 2, MIB + 131071) == [(1, 2), (1, 3)]
    handle.trim(4096 + 2, MIB + 4095)
    assert extents(handle, 3 * 4096, MIB) == [(4096, 0), (4096, 3), (4096, 0)]
    refused(errno.EINVAL, extents, handle, 512, handle.get_size())
    refused(errno.EINVAL, extents, connect(contexts=False), 512, 0)


def read_only(uri):
    handle = connect(uri)
    assert handle.is_read_only()
    for call in (lambda: handle.pwrite(bytes(512), 0), lambda: handle.trim(512, 0), lambda: handle.zero(512, 0)):
        refused(errno.EPERM, call)
    handle.pread(512, 0)
    handle.flush()


def unknown_command():
    """libnbd cannot send this, so by hand: unknown commands are refused one by one, good-bye ends the connection."""
    path = urllib.parse.parse_qs(urllib.parse.urlparse(URI).query).get("socket")
    if not path:
        return
    line = socket.socket(socket.AF_UNIX)
    line.connect(path[0])
    stream = line.makefile("rwb")
    stream.read(18)
    name = urllib.parse.urlparse(URI).path.lstrip("/").encode()
    stream.write(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name)
    stream.flush()
    stream.read(10)
    for kind in (8, 99):
        stream.write(struct.pack(">IHHQQI", 0x25609513, 0, kind, kind, 0, 512))
    stream.write(struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0))
    stream.flush()
    for kind in (8, 99):
        assert struct.unpack(">IIQ", stream.read(16)) == (0x67446698, errno.EINVAL, kind)
    assert stream.read(1) == b""


def two_connections():
    first, second = connect(), connect()
    first.pwrite(b"a" * 4096, 0)
    second.flush()
    assert second.pread(4096, 0) == b"a" * 4096
    for handle in (first, second):
        handle.shutdown()


def main():
    for structured in (True, False):
        handle = connect(structured=structured, contexts=structured)
        announced(handle, handle.get_size())
        legal(handle)
        illegal(handle, handle.get_size())
        if structured:
            block_status(handle)
        handle.shutdown()
    two_connections()
    unknown_command()
    parts = urllib.parse.urlparse(URI)
    refused(errno.ENOENT, connect, f"{parts.scheme}://{parts.netloc}/nosuchexport?{parts.query}")
    if len(sys.argv) > 2:
        read_only(sys.argv[2])


main()
