#!/usr/bin/env python3
"""Checks a Chrome trace of `weft trace export` against the format and against its database.

    chrome_check.py TRACE.json DB

The format: docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event
Format"): complete events (X) with ts and dur in us, metadata (M) that names processes and threads. Slices of
one track must not overlap: viewers would drop them or nest them wrongly. Prints a line for each
fault.
"""
import collections
import json
import sqlite3
import sys

STAGES = {"N_tx": "n_tx_ns", "W_queue": "w_queue_ns", "W_proc": "w_proc_ns",
          "PS_queue": "ps_queue_ns", "PS_wait": "ps_wait_ns", "PS_proc": "ps_proc_ns"}
METADATA = {"process_name": "name", "process_sort_index": "sort_index",
            "thread_name": "name", "thread_sort_index": "sort_index"}


def ns(us):
    return round(us * 1000)


def is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_event(event):
    if event.get("ph") not in ("X", "M") or not isinstance(event.get("name"), str):
        return "neither slice nor metadata"
    if not is_whole(event.get("pid")) or not isinstance(event.get("args"), dict):
        return "without pid or args"
    if event["ph"] == "M":
        if METADATA.get(event["name"]) not in event["args"]:
            return "metadata that names nothing"
        if event["name"].startswith("thread") and not is_whole(event.get("tid")):
            return "without tid"
        return None
    if not is_whole(event.get("tid")) or event.get("cat") not in ("push", "pull"):
        return "without tid or category"
    if not is_number(event.get("ts")) or not is_number(event.get("dur")):
        return "without a time"
    if event["ts"] < 0 or event["dur"] <= 0:
        return "no length, or before the beginning"
    return None


def check_tracks(events):
    named = {(e["pid"], e.get("tid")) for e in events if e["ph"] == "M" and e["name"].endswith("_name")}
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
             if e["ph"] == "M" and e["name"] == "thread_name"}
    tracks = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            tracks[e["pid"], e["tid"]].append(e)
    for (pid, tid), slices in tracks.items():
        if (pid, None) not in named or (pid, tid) not in named:
            print("process or thread without a name: %s, %s" % (pid, tid))
        slices.sort(key=lambda e: e["ts"])
        for one, next_one in zip(slices, slices[1:]):
            if ns(one["ts"]) + ns(one["dur"]) > ns(next_one["ts"]):
                print("overlap on %s, %s: %r, %r" % (pid, tid, one, next_one))
        stage = names.get((pid, tid), "").split(" ")[0]
        for e in slices:
            if e["name"] != stage and not (stage == "RPC" and e["name"] in ("push", "pull")):
                print("a slice %s on the track %s" % (e["name"], stage))


def check_times(events, db):
    """The slices of each stage of each RPC last as long as its record says."""
    seen = collections.Counter()
    for e in events:
        if e["ph"] == "X":
            name = "RPC" if e["name"] in ("push", "pull") else e["name"]
            args = e["args"]
            seen[name, args["worker"], args["server"], args["rpc"]] += ns(e["dur"])
    for row in db.execute("SELECT * FROM rpc"):
        key = row["worker"], row["server"], row["rpc"]
        for name, column in STAGES.items():
            if seen.pop((name,) + key, 0) != row[column]:
                print("%s of %s is not as recorded" % (name, key))
        total = row["t1_ns"] - row["t0_ns"] + row["w_queue_ns"] + row["w_proc_ns"]
        if seen.pop(("RPC",) + key, 0) != total:
            print("RPC %s is not as recorded" % (key,))
    if seen:
        print("slices of no RPC: %r" % seen.most_common(3))


def main():
    with open(sys.argv[1]) as text:
        events = json.load(text)["traceEvents"]
    faults = [(check_event(e), e) for e in events]
    for fault, event in [f for f in faults if f[0]][:10]:
        print(fault, event)
    if not any(f for f, _ in faults):
        check_tracks(events)
        if len(sys.argv) > 2:
            db = sqlite3.connect(sys.argv[2])
            db.row_factory = sqlite3.Row
            check_times(events, db)
    if not any(e["ph"] == "X" for e in events):
        print("there is no slice in it")


main()
