#!/usr/bin/env python3
"""Write a journal of `weft coordinator` (src/job/coordinator_journal.h) as after many changes: members_make.py FILE
BYTES. A worker joins and leaves repeatedly; at the end one is a member. Epochs count from 1."""
import struct
import sys

MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (11400714785074694791, 14029467366897019727, 1609587929392839161,
                      9650029242287828579, 2870177450012600261)


def rotate(x, r):
    return (x << r | x >> (64 - r)) & MASK


def turn(acc, lane):
    return rotate((acc + lane * P2) & MASK, 31) * P1 & MASK


def xxh64(data, seed):
    at = 0
    if len(data) >= 32:
        v = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while at + 32 <= len(data):
            v = [turn(a, b) for a, b in zip(v, struct.unpack_from("<4Q", data, at))]
            at += 32
        h = sum(rotate(a, r) for a, r in zip(v, (1, 7, 12, 18))) & MASK
        for a in v:
            h = ((h ^ turn(0, a)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + len(data)) & MASK
    while at + 8 <= len(data):
        h = (rotate(h ^ turn(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(data):
        h = (rotate(h ^ struct.unpack_from("<I", data, at)[0] * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def record(op, epoch):
    none = (1 << 32) - 1
    body = struct.pack(">IBBHQQIIIIIIQQ32s", 1, 2, 0, 0, 77, 1, 0, 2, 1, none, 0, 0, epoch, 0, b"")
    head = struct.pack(">IB", len(body), op)
    head += struct.pack(">I", xxh64(head, 0) & 0xFFFFFF)[1:]
    return head + struct.pack(">Q", xxh64(body, xxh64(head, 0))) + body


REGISTER, LEAVE = 32, 35
with open(sys.argv[1], "wb") as file:
    file.write(b"weft members 1\n\0")
    epoch = 0
    while file.tell() < int(sys.argv[2]):
        epoch += 1
        file.write(record(REGISTER, epoch) + record(LEAVE, epoch))
    file.write(record(REGISTER, epoch + 1))
