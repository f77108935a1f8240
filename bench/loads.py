"""Runs of `weft load` for the scripts in this folder: running, storing as lines of JSON, reading, plotting.

A point is (label, options): the fields added to the run's JSON, and the options of weft load. Each repetition
runs all points in turn, so that other load affects all points equally.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys


def parser(doc, out, repetitions):
    """Options common to all such scripts; each script adds its own."""
    made = argparse.ArgumentParser(description=doc,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--weft", default="build/weft")
    made.add_argument("--seconds", default="1", help="measured, of each run")
    made.add_argument("--warmup", default="0.5")
    made.add_argument("--repetitions", type=int, default=repetitions)
    made.add_argument("--out", default=out)
    made.add_argument("--from", dest="sources", nargs="+", metavar="FILE",
                      help="read these runs instead of making them")
    made.add_argument("--plot", metavar="PNG", help="takes gnuplot")
    return made


def make(args, points):
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    runs = []
    with open(args.out, "w", encoding="utf-8") as out:
        for label, words in points * args.repetitions:
            command = [args.weft, "load", *words, "--seconds", args.seconds, "--warmup", args.warmup,
                       "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
            runs.append(json.loads(done.stdout) | label)
            out.write(json.dumps(runs[-1]) + "\n")
            out.flush()
    return runs


def read(paths):
    runs = []
    for path in paths:
        with open(path, encoding="utf-8") as source:
            runs += [json.loads(line) for line in source]
    return runs


def runs(args, points):
    return read(args.sources) if args.sources else make(args, points)


def median(what, some):
    return statistics.median(map(what, some))


def spread(what, some):
    """Median, minimum, maximum."""
    values = list(map(what, some))
    return statistics.median(values), min(values), max(values)


def draw(script, path):
    """Data are in the script's blocks."""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
    print(f"picture: {path}")
