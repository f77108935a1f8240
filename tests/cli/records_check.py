#!/usr/bin/env python3
"""Compares the output of `weft trace` for a database of records with a simple computation:
all rows in memory, sorted.

    records_check.py DB summary|slow|hot ANSWER.json

Prints a line for each difference. Quantiles may be up to 3.2 % above the true value.
"""
import json
import sqlite3
import sys

STAGES = {"N_tx": "n_tx_ns", "PS_queue": "ps_queue_ns", "PS_wait": "ps_wait_ns",
          "PS_proc": "ps_proc_ns", "W_queue": "w_queue_ns", "W_proc": "w_proc_ns"}


def differ(what, seen, wanted):
    if abs(seen - wanted) > 1e-9 * max(abs(seen), abs(wanted)):
        print("%s: %r, wanted %r" % (what, seen, wanted))


def nearest_rank(values, percent):
    return values[max(0, (len(values) * percent + 99) // 100 - 1)]


def check_times(what, said, ns):
    ns = sorted(ns)
    differ(what + " mean", said["mean"], sum(ns) / len(ns) / 1e3)
    differ(what + " max", said["max"], ns[-1] / 1e3)
    for percent in 50, 90, 99:
        exact = nearest_rank(ns, percent) / 1e3
        seen = said["p%d" % percent]
        if not exact <= seen * (1 + 1e-12) or seen > exact * 1.032 + 1e-9:
            print("%s p%d: %r, exactly %r" % (what, percent, seen, exact))


def rows_of(db):
    db.row_factory = sqlite3.Row
    rows = [dict(r) for r in db.execute("SELECT * FROM rpc WHERE status = 0")]
    for r in rows:
        r["total"] = r["t1_ns"] - r["t0_ns"] + r["w_queue_ns"] + r["w_proc_ns"]
    return rows


def check_summary(db, said):
    rows = rows_of(db)
    differ("rpcs", said["rpcs"], db.execute("SELECT count(*) FROM rpc").fetchone()[0])
    for kind, number in ("push", 1), ("pull", 2):
        of_kind = [r for r in rows if r["kind"] == number]
        differ(kind, said[kind]["rpcs"], len(of_kind))
        total = sum(r["total"] for r in of_kind)
        check_times(kind, said[kind]["latency_us"], [r["total"] for r in of_kind])
        for name, column in STAGES.items():
            stage = said[kind]["stages_us"][name]
            check_times(kind + " " + name, stage, [r[column] for r in of_kind])
            differ(kind + " share of " + name, stage["share"],
                   sum(r[column] for r in of_kind) / total)
        for column in "rows", "request_bytes", "reply_bytes":
            differ(kind + " " + column, said[kind][column], sum(r[column] for r in of_kind))
    for server in said["by_server"]:
        of_server = [r["total"] for r in rows if r["server"] == server["server"]]
        differ("server's RPCs", server["rpcs"], len(of_server))
        differ("server's mean", server["mean_us"], sum(of_server) / len(of_server) / 1e3)
    active = sorted(r[0] for r in db.execute("SELECT workers FROM active"))
    for percent in 50, 90, 99:
        differ("active p%d" % percent, said["active_workers"]["p%d" % percent],
               nearest_rank(active, percent))
    differ("dropped", said["dropped"], db.execute("SELECT sum(dropped) FROM process").fetchone()[0])


def check_slow(db, said):
    rows = sorted(rows_of(db), key=lambda r: (-r["total"], r["t0_ns"]))
    for i, (seen, row) in enumerate(zip(said, rows)):
        differ("slow %d" % i, seen["latency_us"], row["total"] / 1e3)
        if (seen["worker"], seen["rpc"]) != (row["worker"], row["rpc"]):
            print("slow %d: another RPC" % i)
        for name, column in STAGES.items():
            differ("slow %d %s" % (i, name), seen["stages_us"][name], row[column] / 1e3)


def check_hot(db, said):
    updates = sorted(((u, t, i) for t, i, u in
                      db.execute("SELECT tbl, id, updates FROM hot")), key=lambda x: -x[0])
    total, removed = db.execute("SELECT sum(updates), sum(removed) FROM hot_total").fetchone()
    shortest = db.execute("SELECT min(n) FROM (SELECT count(*) AS n FROM hot"
                          " GROUP BY server)").fetchone()[0]  # no list is of all rows
    differ("updates", said["updates"], total)
    differ("removed", said["removed"], removed)
    for share in said["shares"]:
        top = updates[:share["top"]]
        differ("share of top %d" % share["top"], share["share"], sum(u[0] for u in top) / total)
        differ("high share of top %d" % share["top"], share["at_most"],
               min((sum(u[0] for u in top) + removed) / total, 1) if share["top"] <= shortest else 1)
    if said["shares"][-1]["top"] != len(updates):
        print("the last share is not of all")
    known = {(t, i % 2**64): u for u, t, i in updates}
    for i, hot in enumerate(said["hot"]):
        differ("hot %d" % i, hot["updates"], updates[i][0])
        differ("hot id %s" % hot["id"], known.get((hot["table"], int(hot["id"])), -1), hot["updates"])


def main():
    db = sqlite3.connect(sys.argv[1])
    with open(sys.argv[3]) as answer:
        said = json.load(answer)
    {"summary": check_summary, "slow": check_slow, "hot": check_hot}[sys.argv[2]](db, said)


main()
