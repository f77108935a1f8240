#!/usr/bin/env python3
"""Training time over weft compared with the best tuned TCP, cell by cell, from pairs of adjacent runs.

    bench/training_matrix.py [--weft build/weft] [--out build/bench/training_matrix]
                             [--jobs adult3,mlp] [--rates 200mbit,1gbit] [--loss 0,0.01] [--busy 0,2]
                             [--background none,websearch:0.1] [--pilots 2] [--repetitions 5]
    bench/training_matrix.py --table --out build/bench/training_matrix

A cell is a job, a link rate, a loss rate, a number of other busy processes, and background traffic. For each
cell:

 1. Pilots: cubic, bbr and reno, each with a minimum retransmission timeout of 5 ms, and DCTCP with the same
    on switches that mark. The TCP with the lowest median time is the best TCP of this cell.
 2. Pairs, on separate runs: weft with bound 0, weft with bound 10 % and the best TCP take turns. The result
    is the ratio of weft's time to TCP's in the same turn: the geometric mean, and its 95 % interval
    (Student's t of the logarithms). If DCTCP is the best, all three run on switches that mark.

weft is authenticated, TCP is not; both carry weft's messages in the same encoding. Requires root. A measurement in
--out is not repeated, so an interrupted run can be continued; --table prints the results so far.
"""
import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys

JOBS = {
    "adult3": (["--workers", "8", "--epochs", "6"], ["--format", "adult3", "--lr", "0.02"]),
    # 1.1 million parameters in float32: 4.4 MB in each direction per worker and step
    "mlp": (["--workers", "4", "--epochs", "3"], ["--model", "mlp", "--batch", "1024"]),
}
PILOTS = ["tcp:cubic:rto5:none", "tcp:bbr:rto5:none", "tcp:reno:rto5:none"]
DCTCP = "tcp:dctcp:rto5:none"
MARKS = {"200mbit": "30kb", "1gbit": "65kb"}  # about the bandwidth-delay product, plus some packets
STUDENT_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--out", default="build/bench/training_matrix")
    parser.add_argument("--jobs", default="adult3,mlp")
    parser.add_argument("--rates", default="200mbit,1gbit")
    parser.add_argument("--loss", default="0,0.01")
    parser.add_argument("--busy", default="0,2")
    parser.add_argument("--background", default="none,websearch:0.1")
    parser.add_argument("--pilots", type=int, default=2, help="runs of each TCP to choose the best by")
    parser.add_argument("--repetitions", type=int, default=5, help="measured turns")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the results so far")
    return parser.parse_args()


def cells(args):
    axes = (args.jobs, args.rates, args.loss, args.busy, args.background)
    return itertools.product(*(axis.split(",") for axis in axes))


def folder(args, cell, what):
    return os.path.join(args.out, "-".join(cell).replace(":", ""), what)


def compare(args, cell, what, transports, repetitions, marks):
    """name of transport -> seconds of training, a value per repetition; inf if the target was not reached"""
    job, rate, loss, busy, background = cell
    out = folder(args, cell, what)
    answer = os.path.join(out, "answer.json")
    if not os.path.exists(answer):
        if args.table:
            return None
        of_compare, of_train = JOBS[job]
        command = [args.weft, "perf", "compare", "--train", "--json", "--buffer", "450kb", "--out", out,
                   "--rate", rate, "--loss", loss, "--busy", busy, "--background", background,
                   "--transports", ",".join(transports), "--repetitions", str(repetitions),
                   *(["--ecn", MARKS[rate]] if marks else []), *of_compare, "--", *of_train]
        os.makedirs(out, exist_ok=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{sys.argv[0]}: exit {done.returncode} of {' '.join(command)}")
        with open(answer + ".part", "w") as file:
            file.write(done.stdout)
        os.replace(answer + ".part", answer)
    with open(answer) as file:
        network = json.load(file)["networks"][0]
    return {one["name"]: [run["until"]["training_s"] if run["until"]["reached"] else math.inf
                          for run in one["runs"]]
            for one in network["cells"]}


def best_tcp(args, cell):
    """The TCP with the lowest median time, and whether it runs on marking switches."""
    plain = compare(args, cell, "pilots", PILOTS, args.pilots, False)
    marked = compare(args, cell, "pilots-marks", [DCTCP], args.pilots, True)
    if not plain or not marked:
        return None
    runs = {**plain, **marked}
    name = min(runs, key=lambda one: statistics.median(runs[one]))
    return name, name == DCTCP


def paired(ours, theirs):
    """Geometric mean over turns of weft's time / TCP's, and its 95 % interval."""
    logs = [math.log(a / b) for a, b in zip(ours, theirs) if math.isfinite(a) and math.isfinite(b)]
    if len(logs) < 2:
        return math.nan, math.nan, math.nan
    mean = statistics.fmean(logs)
    half = STUDENT_95.get(len(logs) - 1, 2.2) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def line(args, cell):
    best = best_tcp(args, cell)
    runs = best and compare(args, cell, "pairs", ["weft:0", "weft:0.1", best[0]], args.repetitions, best[1])
    if not runs:
        return None
    theirs = runs[best[0]]
    ratios = ["%.3f (%.3f-%.3f)" % paired(runs[name], theirs) for name in ("weft:0", "weft:0.1")]
    times = ["%.2f" % statistics.median(runs[name]) for name in ("weft:0", "weft:0.1", best[0])]
    missing = sum(not math.isfinite(value) for values in runs.values() for value in values)
    job, rate, loss, busy, background = cell
    return [job, rate, loss, busy, background, best[0].split(":")[1], *times, *ratios, str(missing)]


def main():
    args = options()
    heads = ["job", "rate", "loss", "busy", "background", "best TCP", "weft s", "10 % s", "TCP s",
             "weft / TCP (95 %)", "10 % / TCP (95 %)", "DNF"]
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|", flush=True)
    for cell in cells(args):
        row = line(args, cell)
        if row:
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
