#!/usr/bin/env python3
"""Rows per second of a CPU-limited server, with and without an aggregator.

    bench/aggregate_capped.py [--weft build/weft] [--cap 0.05] [--age 20000] [--shares 0.5,0.7] [--rows 256]
                              [--dim 16] [--keys 2000000] [--workers 16] [--seconds 3] [--warmup 2]
                              [--mtu 65536] [--repetitions 3] [--out build/bench/aggregate_capped.jsonl]
    bench/aggregate_capped.py --from build/bench/aggregate_capped.jsonl

A control group (requires root) limits the server's process to the fraction --cap of one processor, in periods of
20 ms: cpu.cfs_quota_us, or cpu.max. The aggregator and the workers are not limited. `weft load` pushes in a
closed loop, with 16 pushes per worker in flight; both configurations take turns. rows/s counts pushes that the
server has confirmed. The server's CPU time divided by the duration of the measurement shows whether its CPU was
the limit. --mtu N runs all in a network namespace whose loopback interface has that MTU, so that packets are as short
as on Ethernet.
"""
import json
import os
import sys

import aggregate_run
import loads


def options():
    parser = loads.parser(__doc__, "build/bench/aggregate_capped.jsonl", 3)
    parser.set_defaults(seconds="3", warmup="2")
    parser.add_argument("--cap", type=float, default=0.05, help="CPU limit of the server, as a fraction of one processor")
    parser.add_argument("--age", type=int, default=20000, help="maximum age of a sum, in us")
    parser.add_argument("--shares", default="0.5,0.7", help="fractions of the updates that go to 20,000 frequent rows")
    for name, value in (("rows", 256), ("dim", 16), ("keys", 2000000), ("workers", 16), ("mtu", 65536)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def measure(args, share, age, turn, cap):
    job = aggregate_run.Job(args.weft, args.workers, cap=cap)
    try:
        if age != 0:
            job.box(0, ["--flush-by-age", "--flush-age-us", str(age)])
        load, span = job.load(
            ["--rows", str(args.rows), "--dim", str(args.dim), "--mix", "1:0", "--keys",
             str(args.keys), "--zipf-top", f"20000:{share}", "--in-flight", "16", "--eviction",
             "none", "--peer-timeout", "20", "--seed", str(turn + 1)],
            float(args.seconds), float(args.warmup))
    finally:
        job.end()
    return {"share": share, "age_us": age, "rows_per_s": load["rows_per_s"]["push"],
            "busy": span["server_cpu_s"] / span["seconds"], "cap": args.cap,
            "p50_us": load["latency_us"]["push"]["p50"], **span}


def make(args):
    cap = aggregate_run.cap_make("weft-aggregate-capped", args.cap)
    if cap is None:
        sys.exit("cannot create a control group: root and the controller cpu are required")
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    runs = []
    try:
        with open(args.out, "w", encoding="utf-8") as out:
            for turn in range(args.repetitions):
                for share in map(float, args.shares.split(",")):
                    for age in (0, args.age):
                        runs.append(measure(args, share, age, turn, cap))
                        out.write(json.dumps(runs[-1]) + "\n")
                        out.flush()
    finally:
        os.rmdir(cap)
    return runs


def table(runs):
    print("share  age us  n  rows/s: median min max  ratio: median min max  server busy  "
          "removed  p50 ms")
    for share in sorted({run["share"] for run in runs}):
        ways = [[run for run in runs if run["share"] == share and (run["age_us"] > 0) == by]
                for by in (False, True)]
        for some in ways:
            rows = aggregate_run.spread([run["rows_per_s"] for run in some])
            ratio = aggregate_run.spread([run["rows_per_s"] / direct["rows_per_s"]
                                          for run, direct in zip(some, ways[0])])
            print(f"{share:5} {some[0]['age_us']:7} {len(some):2}  {rows[0]:14.0f} {rows[1]:.0f} "
                  f"{rows[2]:.0f}  {ratio[0]:13.2f} {ratio[1]:.2f} {ratio[2]:.2f}  "
                  f"{loads.median(lambda run: run['busy'], some):11.3f}  "
                  f"{loads.median(lambda run: aggregate_run.removed(run), some):7.3f}  "
                  f"{loads.median(lambda run: run['p50_us'] / 1e3, some):6.1f}")


def main():
    args = options()
    if args.sources is None:
        aggregate_run.enter_mtu(args.mtu)
    table(loads.read(args.sources) if args.sources else make(args))


main()
