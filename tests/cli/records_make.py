#!/usr/bin/env python3
"""Creates a database of records (docs/RECORDS.md) from a seed: a synthetic run with known
results.

    records_make.py FILE [--rpcs N] [--workers W] [--servers S] [--seed X] [--slow STAGE]
                         [--dropped D] [--part I/N]

Pushes and pulls in turn, each worker one RPC after another, servers drawn by lot; server 0 applies
three times as slowly as the others. The stages have heavy tails, and times add up as those of a run do: the request
takes half of N_tx, then come PS_queue, PS_wait and PS_proc, then the other half. --slow adds 50 ms to
one stage of every 1000th RPC. --part keeps the records of every Nth worker and server, as a run whose processes wrote a
file each. What a test wants to know exactly it asks of the database itself, by SQL.
"""
import argparse
import random
import sqlite3

SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE process(id INTEGER PRIMARY KEY, role TEXT, rank INTEGER, pid INTEGER,
    records INTEGER, dropped INTEGER, cpu_ns INTEGER, wall_ns INTEGER);
CREATE TABLE rpc(worker INTEGER, server INTEGER, rpc INTEGER, iteration INTEGER, kind INTEGER,
    tbl INTEGER, status INTEGER, rows INTEGER, t0_ns INTEGER, t1_ns INTEGER,
    request_bytes INTEGER, reply_bytes INTEGER, w_proc_ns INTEGER, w_queue_ns INTEGER,
    ps_proc_ns INTEGER, ps_overlap_ns INTEGER, ps_wait_ns INTEGER, ps_queue_ns INTEGER,
    n_tx_ns INTEGER);
CREATE TABLE served(server INTEGER, worker INTEGER, rpc INTEGER, kind INTEGER,
    arrival_ns INTEGER, departure_ns INTEGER, ps_proc_ns INTEGER, ps_wait_ns INTEGER,
    ps_queue_ns INTEGER);
CREATE TABLE active(server INTEGER, start_ns INTEGER, window_ns INTEGER, workers INTEGER);
CREATE TABLE hot(server INTEGER, tbl INTEGER, id INTEGER, updates INTEGER, error INTEGER);
CREATE TABLE hot_total(server INTEGER, tbl INTEGER, updates INTEGER, exact INTEGER,
    removed INTEGER);
"""
INDEXES = """
CREATE INDEX rpc_name ON rpc(server, worker, rpc);
CREATE INDEX served_name ON served(server, worker, rpc);
CREATE INDEX rpc_time ON rpc(kind, t0_ns);
CREATE INDEX active_time ON active(server, start_ns);
CREATE INDEX hot_updates ON hot(tbl, updates);
"""
STAGES = ["n_tx", "ps_queue", "ps_wait", "ps_proc", "w_queue", "w_proc"]
MEANS_US = {1: [60, 10, 0, 30, 5, 10], 2: [50, 8, 20, 12, 5, 10]}  # of push, of pull
WINDOW_NS = 1000000


def rpcs(args, rng, windows):
    """Rows of rpc and served, in the order in which requests are sent per worker."""
    clocks = [1000000000 + 1000 * w for w in range(args.workers)]
    number = [0] * args.workers
    # random.random() inside the loop would be half of the run time, so the tail is drawn from a
    # table.
    tail = [rng.lognormvariate(0, 0.6) for _ in range(4096)]
    slow = STAGES.index(args.slow) if args.slow else -1
    for i in range(args.rpcs):
        w = i % args.workers
        number[w] += 1
        server = rng.randrange(args.servers)
        kind = 1 + number[w] % 2
        pick = rng.randrange(4096)
        ns = [int(1000 * mean * tail[(pick + 577 * j) % 4096])
              for j, mean in enumerate(MEANS_US[kind])]
        if server == 0:
            ns[3] *= 3
        if slow >= 0 and i % 1000 == 999:
            ns[slow] += 50000000
        rows = 100 + pick % 100
        t0 = clocks[w]
        b = t0 + ns[0] // 2
        departure = b + ns[1] + ns[2] + ns[3]
        t1 = departure + ns[0] - ns[0] // 2
        windows.setdefault((server, b // WINDOW_NS), set()).add(w)
        # Sometimes the worker computes before its next request.
        clocks[w] = t1 + ns[4] + ns[5] + (2000000 if number[w] % 10 == 0 else 5000)
        yield ((w, server, number[w], number[w] // 10, kind, 0, 0, rows, t0, t1,
                rows * (72 if kind == 1 else 8), 24 if kind == 1 else rows * 72,
                ns[5], ns[4], ns[3], 0, ns[2], ns[1], ns[0]),
               (server, w, number[w], kind, b, departure, ns[3], ns[2], ns[1]))


def part_of(args):
    idx, count = (int(x) for x in args.part.split("/"))
    return lambda party: party % count == idx


def fill(db, args):
    rng = random.Random(args.seed)
    mine = part_of(args)
    windows = {}
    calls, served = [], []
    kept = {"worker": [0] * args.workers, "server": [0] * args.servers}
    insert_rpc = "INSERT INTO rpc VALUES(" + ",".join("?" * 19) + ")"
    insert_served = "INSERT INTO served VALUES(" + ",".join("?" * 9) + ")"
    for call, answer in rpcs(args, rng, windows):
        kept["worker"][call[0]] += 1
        kept["server"][answer[0]] += 1
        if mine(call[0]):
            calls.append(call)
        if mine(answer[0]):
            served.append(answer)
        if len(calls) + len(served) > 20000:
            db.executemany(insert_rpc, calls)
            db.executemany(insert_served, served)
            calls, served = [], []
    db.executemany(insert_rpc, calls)
    db.executemany(insert_served, served)
    db.executemany("INSERT INTO active VALUES(?,?,?,?)",
                   [(s, at * WINDOW_NS, WINDOW_NS, len(ws))
                    for (s, at), ws in sorted(windows.items()) if mine(s)])
    wall = 1000000 * max(at for _, at in windows)
    for w in filter(mine, range(args.workers)):
        db.execute("INSERT INTO process VALUES(NULL,'worker',?,?,?,?,?,?)",
                   (w, 1000 + w, kept["worker"][w], args.dropped if w == 0 else 0, wall // 4, wall))
    for s in filter(mine, range(args.servers)):
        db.execute("INSERT INTO process VALUES(NULL,'server',?,?,?,0,?,?)",
                   (s, 2000 + s, kept["server"][s], wall // 2, wall))


def heat(db, args):
    """Parameter k of a server was updated 10000 / (k + 1) times; half of all is in the tail."""
    mine = part_of(args)
    for s in filter(mine, range(args.servers)):
        counts = [10000 // (k + 1) for k in range(2000)]
        for k, updates in enumerate(counts):
            # The first id has its highest bit set: ids are unsigned.
            ident = k * args.servers + s - (1 << 63 if k == 0 else 0)
            db.execute("INSERT INTO hot VALUES(?,0,?,?,?)", (s, ident, updates, 0))
        db.execute("INSERT INTO hot_total VALUES(?,0,?,0,?)", (s, 2 * sum(counts), sum(counts) // 4))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--rpcs", type=int, default=20000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slow", choices=STAGES)
    parser.add_argument("--dropped", type=int, default=0)
    parser.add_argument("--part", default="0/1")
    args = parser.parse_args()
    db = sqlite3.connect(args.file)
    db.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;" + SCHEMA)
    db.executemany("INSERT INTO meta VALUES(?,?)",
                   [("schema_version", "1"), ("weft_version", "test"), ("host", "nowhere"),
                    ("started_utc", "2026-11-22T00:00:00Z"), ("window_ns", str(WINDOW_NS)),
                    ("command", "records_make.py --seed %d" % args.seed)])
    fill(db, args)
    heat(db, args)
    db.executescript(INDEXES)
    db.commit()


main()
