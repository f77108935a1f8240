#!/usr/bin/env python3
"""Datagrams and messages at the server of a BSP job with aggregators, compared with the same job direct.

    bench/aggregate_clocks.py [--weft build/weft] [--workers 64] [--boxes 8] [--epochs 3] [--batch 64]
                              [--age 100000] [--instructions] [--way direct|aggregators]
                              [--worker-words "..."]

Two configurations: all workers direct, and all workers through the aggregators, assigned round-robin. Counted at
the server, over the whole job and per step (all workers' steps of one clock): datagrams received and sent,
messages of each kind; also the maximum number of connections, the minimum while all workers were active, the
maximum number of parked ranks, and how often a rank parked. "Alone" counts messages on connections of workers:
pushes, clocks and pulls that are in no message of an aggregator. With --instructions the server runs under
valgrind's callgrind, which counts its instructions, including start and end, per push. This is much slower, so
use few workers. The cost of a step is the difference of two runs. The results are counts, not times, so other
load changes them little. With a --weft of an earlier release, clocks are sent to the server.
"""
import argparse
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

import aggregate_run


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/weft")
    for name, value in (("workers", 64), ("boxes", 8), ("epochs", 3), ("batch", 64), ("age", 100000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--way", choices=("direct", "aggregators"), help="this one alone")
    parser.add_argument("--worker-words", default="", help="more options of weft worker")
    return parser.parse_args()


def wrapper(weft, folder):
    path = f"{folder}/weft"
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\nexec valgrind --tool=callgrind "
                   f"--callgrind-out-file={folder}/out.%p {shlex.quote(weft)} \"$@\"\n")
    os.chmod(path, 0o755)
    return path


def instructions(folder):
    counts = [0]
    for path in glob.glob(f"{folder}/out.*"):
        with open(path, encoding="utf-8", errors="replace") as file:
            found = re.search(r"^(?:summary|totals): (\d+)", file.read(), re.M)
        counts.append(int(found[1]) if found else 0)
    return max(counts)  # the server's file; `weft keygen` also writes one


def run(args, boxes):
    weft = os.path.abspath(args.weft)
    with tempfile.TemporaryDirectory(prefix="weft-callgrind-") as folder:
        job = aggregate_run.Job(wrapper(weft, folder) if args.instructions else weft, args.workers,
                                ["--aggregators", str(max(args.boxes, 1))])
        job.weft = weft
        try:
            for number in range(boxes):
                job.box(number, ["--flush-age-us", str(args.age)])
            workers = []
            for rank in range(args.workers):
                via = ["--via", job.box_addresses[rank % boxes]] if boxes else []
                workers.append(subprocess.Popen(
                    [weft, "worker", "--servers", job.address, "--key-file", job.key, "--workers",
                     str(args.workers), "--rank", str(rank), "--epochs", str(args.epochs), "--batch",
                     str(args.batch), *via, *shlex.split(args.worker_words)],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            connected, fewest, parked = 0, 1 << 30, 0
            while any(worker.poll() is None for worker in workers):
                read = aggregate_run.samples(job.metrics)
                connected = max(connected, read["weft_peers_connected"])
                at_work = read.get("weft_workers_connected", 0) + read.get("weft_workers_parked", 0)
                if at_work == args.workers and read['weft_requests_total{kind="clock"}'] > args.workers:
                    fewest = min(fewest, read["weft_peers_connected"])
                parked = max(parked, read.get("weft_workers_parked", 0))
                # fewer queries, because replies cost instructions
                time.sleep(5 if args.instructions else 0.3)
            if any(worker.returncode != 0 for worker in workers):
                sys.exit("a worker failed")
            read = aggregate_run.samples(job.metrics)
            boxes_read = [aggregate_run.samples(at) for at in job.box_metrics]
        finally:
            job.end()
        read["instructions"] = instructions(folder) if args.instructions else 0
    read["connected"], read["fewest"], read["parked"] = connected, fewest, parked
    read["clocks_passed"] = sum(box.get("weft_aggregator_clocks_passed_total", 0) for box in boxes_read)
    read["clocks_out"] = sum(box.get("weft_aggregator_clocks_out_total", 0) for box in boxes_read)
    read["fetches"] = sum(box["weft_aggregator_fetches_out_total"] for box in boxes_read)
    read["direct"] = sum(box["weft_aggregator_pushes_direct_total"] for box in boxes_read)
    return read


def main():
    args = options()
    print("way             steps  datagrams in, out a step  pushes, alone  sums  clocks alone, messages  "
          "pulls, alone  connections: most fewest  parked, times  instructions a push")
    for way, boxes in (("direct", 0), ("by aggregators", args.boxes)):
        if args.way and (args.way == "direct") != (boxes == 0):
            continue
        read = run(args, boxes)
        pushes, clocks, pulls = (read[f'weft_requests_total{{kind="{kind}"}}']
                                 for kind in ("push", "clock", "pull"))
        steps = clocks / args.workers
        alone = pushes - read["weft_aggregate_pushes_total"]
        clocks -= read.get("weft_aggregate_clocks_total", 0)
        print(f"{way:15} {steps:5.0f}  {read['weft_datagrams_received_total'] / steps:13.1f} "
              f"{read['weft_datagrams_sent_total'] / steps:9.1f}  {pushes / steps:6.1f} {alone / steps:6.2f}  "
              f"{read['weft_aggregates_total'] / steps:4.1f}  {clocks / steps:12.2f} "
              f"{read['clocks_out'] / steps:9.1f}  {pulls / steps:5.1f} "
              f"{(pulls - read['fetches']) / steps:6.2f}  {read['connected']:17.0f} {read['fewest']:6.0f}  "
              f"{read['parked']:6.0f} {read.get('weft_workers_parked_total', 0):6.0f}  "
              f"{read['instructions'] / pushes:19.0f}", flush=True)


main()
