#!/usr/bin/env python3
"""What an RPC costs the server against the number of workers: Fig. 9 of [imc20], weft beside TCP.

    bench/connections.py [--weft build/weft] [--workers 1,10,50,100,200] [--rows 0,64]
                         [--transports weft,tcp] [--seconds 1] [--repetitions 3]
                         [--out build/bench/connections.jsonl] [--plot docs/pictures/connections.png]
    bench/connections.py --from build/bench/connections.jsonl --plot docs/pictures/connections.png

Each point is a run of `weft load --local 1`: one shard, a closed loop, one request of each worker at a
time. The same server code serves both transports; over TCP it has one connection for each worker.
Repetitions go through all points in turn, so that a slow minute of the machine hits all alike.
Prints a table with the median, least and most of server CPU for each RPC, and its ratio to one
worker. Plotting takes gnuplot.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--workers", default="1,10,50,100,200")
    parser.add_argument("--rows", default="0,64")
    parser.add_argument("--transports", default="weft,tcp")
    parser.add_argument("--seconds", default="1")
    parser.add_argument("--warmup", default="0.5")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", default="build/bench/connections.jsonl")
    parser.add_argument("--from", dest="source", help="draw these runs instead of making them")
    parser.add_argument("--plot")
    return parser.parse_args()


def measure(args):
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    runs = []
    with open(args.out, "w", encoding="utf-8") as out:
        for _ in range(args.repetitions):
            for rows in args.rows.split(","):
                for workers in args.workers.split(","):
                    for transport in args.transports.split(","):
                        command = [args.weft, "load", "--local", "1", "--workers", workers, "--rows",
                                   rows, "--transport", transport, "--seconds", args.seconds,
                                   "--warmup", args.warmup, "--json"]
                        done = subprocess.run(command, capture_output=True, text=True, check=False)
                        if done.returncode != 0:
                            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
                        run = json.loads(done.stdout)
                        out.write(json.dumps(run) + "\n")
                        out.flush()
                        runs.append(run)
    return runs


def points(runs):
    """(transport, rows) -> workers -> runs"""
    series = {}
    for run in runs:
        about = run["run"]
        key = (about["transport"], about["rows"])
        series.setdefault(key, {}).setdefault(about["workers"], []).append(run)
    return series


def cost(run):
    return run["server_cpu_us_per_rpc"]


def latency(run):
    return run["latency_us"]["pull"]["p50"]


def table(series):
    print("transport  rows  workers  n  server us/RPC: median least most   x1 worker   RPCs/s  "
          "pull p50 us  packets/RPC")
    for (transport, rows), by_workers in sorted(series.items()):
        first = statistics.median(map(cost, by_workers[min(by_workers)]))
        for workers, runs in sorted(by_workers.items()):
            costs = [cost(run) for run in runs]
            packets = statistics.median(
                (r["run"]["worker_packets"]["sent"] + r["run"]["worker_packets"]["received"])
                / r["rpcs"] for r in runs)
            print(f"{transport:9}  {rows:4}  {workers:7}  {len(runs)}  "
                  f"{statistics.median(costs):20.1f} {min(costs):5.1f} {max(costs):5.1f}  "
                  f"{statistics.median(costs) / first:9.2f}  "
                  f"{statistics.median(r['rpcs_per_s'] for r in runs):8.0f}  "
                  f"{statistics.median(map(latency, runs)):10.0f}  {packets:10.2f}")


SCRIPT = """set terminal pngcairo size 1000,420 font "Sans,9"
set output "%(path)s"
set multiplot layout 1,2 title "One shard, closed loop, loopback: weft and TCP (one connection for each worker)"
set grid
set key top left
set xlabel "workers"
set ylabel "server CPU for each RPC, us"
set yrange [0:*]
set logscale x
set xrange [0.8:300]
plot %(cost)s
set ylabel "pull, p50, us"
set logscale y
set yrange [*:*]
plot %(latency)s
unset multiplot
"""


def plot(series, path):
    """gnuplot; the data are in the script's blocks."""
    colours = {"weft": "blue", "tcp": "red"}
    blocks, plots = "", {"cost": [], "latency": []}
    for (transport, rows), by_workers in sorted(series.items()):
        for name, what in (("cost", cost), ("latency", latency)):
            block = f"${name}_{transport}_{rows}"
            blocks += f"{block} << EOD\n"
            for workers in sorted(by_workers):
                values = [what(run) for run in by_workers[workers]]
                blocks += f"{workers} {statistics.median(values)} {min(values)} {max(values)}\n"
            blocks += "EOD\n"
            title = f"{transport}, " + ("empty RPC" if rows == 0 else f"{rows} rows")
            style = f"lc '{colours.get(transport, 'black')}' dt {1 if rows == 0 else 2} pt 7 ps 0.5"
            plots[name].append(f"{block} using 1:2:3:4 with yerrorlines {style} title '{title}'")
    script = blocks + SCRIPT % {"path": path, **{k: ", ".join(v) for k, v in plots.items()}}
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
    print(f"picture: {path}")


def main():
    args = options()
    if args.source:
        with open(args.source, encoding="utf-8") as source:
            runs = [json.loads(line) for line in source]
    else:
        runs = measure(args)
    series = points(runs)
    table(series)
    if args.plot:
        plot(series, args.plot)


main()
