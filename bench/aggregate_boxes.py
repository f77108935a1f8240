#!/usr/bin/env python3
"""Server cost of many workers behind a few aggregators, compared with few direct workers.

    bench/aggregate_boxes.py [--weft build/weft] [--workers 64] [--boxes 8] [--age 20000] [--rate 2000]
                             [--rows 256] [--dim 16] [--keys 2000000] [--share 0.5] [--seconds 3] [--warmup 2]
                             [--instructions] [--in-flight 2] [--sum 5] [--mtu 65536] [--repetitions 3] [--out build/bench/aggregate_boxes.jsonl]
    bench/aggregate_boxes.py --from build/bench/aggregate_boxes.jsonl

Three configurations take turns, with one shard and the same total push rate (open loop): as many direct workers
as aggregators, all workers direct, and all workers through the aggregators, assigned round-robin. Output: CPU of
the server's process per push of a worker and per row, before combining; the server's connections at the end
(behind aggregators each worker also has a direct one, for requests that are not summed (CLOCK, TABLE), idle in
this load); datagrams received per push.

With --instructions the server runs under valgrind's callgrind, and the table has its instructions in user mode
per push and row instead of CPU times. It is slow, so the load is then a closed loop, with --in-flight pushes of
each worker, and aggregators send a sum when it has --sum pushes. Most rows exist before. --mtu: see aggregate_counts.py.
"""
import json
import os

import aggregate_run
import loads

WAYS = ("few direct", "all direct", "by aggregators")


def options():
    parser = loads.parser(__doc__, "build/bench/aggregate_boxes.jsonl", 3)
    parser.set_defaults(seconds="3", warmup="2")
    parser.add_argument("--instructions", action="store_true", help="count them, under callgrind")
    parser.add_argument("--rate", default="2000", help="pushes a second")
    parser.add_argument("--share", default="0.5", help="of updates, in 20000 rows")
    for name, value in (("workers", 64), ("boxes", 8), ("age", 20000), ("rows", 256), ("dim", 16),
                        ("keys", 2000000), ("in-flight", 2), ("sum", 5), ("mtu", 65536)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def measure(args, way, turn):
    workers = args.boxes if way == "few direct" else args.workers
    job = aggregate_run.Job(args.weft, workers, ["--aggregators", str(args.boxes)],
                            counted=("server",) if args.instructions else ())
    words = ["--dim", str(args.dim), "--mix", "1:0", "--eviction", "none", "--peer-timeout", "60",
             "--start-timeout", "60"]
    try:
        if args.instructions:
            job.fill(words, args.keys)
        for number in range(args.boxes if way == "by aggregators" else 0):
            job.box(number, ["--flush-by-age", "--peer-timeout", "60", *(
                ["--flush-age-us", "800000", "--flush-count", str(args.sum)] if args.instructions
                else ["--flush-age-us", str(args.age)])])
        job.instructions("on")
        load, span = job.load(
            [*words, "--rows", str(args.rows), "--keys", str(args.keys), "--zipf-top",
             f"20000:{args.share}", "--seed", str(turn + 1), *(
                 ["--in-flight", str(args.in_flight)] if args.instructions
                 else ["--in-flight", "16", "--rate", args.rate])],
            float(args.seconds), float(args.warmup))
    finally:
        job.end()
    return {"way": way, "workers": workers, "unanswered": load["run"]["unanswered"], **span}


def make(args):
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    runs = []
    with open(args.out, "w", encoding="utf-8") as out:
        for turn in range(args.repetitions):
            for way in WAYS:
                runs.append(measure(args, way, turn))
                out.write(json.dumps(runs[-1]) + "\n")
                out.flush()
    return runs


def table_instructions(runs):
    print("way             workers  n  instructions/push: median least most  /row  connections  sums/push  "
          "datagrams in, out/push  created  removed")
    for way in WAYS:
        some = [run for run in runs if run["way"] == way]
        push = aggregate_run.spread([run["server_instructions"] / run["pushes"] for run in some])

        def middle(what, some=some):
            return loads.median(what, some)
        print(f"{way:15} {some[0]['workers']:7} {len(some):2}  {push[0]:24.0f} {push[1]:.0f} {push[2]:.0f}  "
              f"{middle(lambda run: run['server_instructions'] / run['updates']):4.0f}  "
              f"{middle(lambda run: run['connections']):11.0f}  "
              f"{middle(lambda run: run['aggregates'] / run['pushes']):9.3f}  "
              f"{middle(lambda run: run['datagrams'] / run['pushes']):12.2f} "
              f"{middle(lambda run: run['datagrams_sent'] / run['pushes']):9.2f}  "
              f"{middle(lambda run: run['rows_created'] / run['updates']):7.3f}  "
              f"{middle(lambda run: aggregate_run.removed(run)):7.3f}")


def table(runs):
    print("way             workers  n  us/push: median least most  ns/row  box ns/row  connections  "
          "datagrams in/push  removed")
    for way in WAYS:
        some = [run for run in runs if run["way"] == way]
        push = aggregate_run.spread([1e6 * run["server_cpu_s"] / run["pushes"] for run in some])

        def middle(what, some=some):
            return loads.median(what, some)
        print(f"{way:15} {some[0]['workers']:7} {len(some):2}  {push[0]:15.1f} {push[1]:.1f} {push[2]:.1f}  "
              f"{middle(lambda run: 1e9 * run['server_cpu_s'] / run['updates']):6.0f}  "
              f"{middle(lambda run: 1e9 * run['box_cpu_s'] / run['updates']):10.0f}  "
              f"{middle(lambda run: run['connections']):11.0f}  "
              f"{middle(lambda run: run['datagrams'] / run['pushes']):17.2f}  "
              f"{middle(lambda run: aggregate_run.removed(run)):7.3f}")


def main():
    args = options()
    if args.sources is None:
        aggregate_run.enter_mtu(args.mtu)
    runs = loads.read(args.sources) if args.sources else make(args)
    (table_instructions if args.instructions else table)(runs)


main()
