#!/usr/bin/env python3
"""Server CPU saved by an aggregator, as a function of the age of its sums, for the keys of [imc20].

    bench/aggregate_age.py [--weft build/weft] [--ages 0,200,2000,20000] [--shares 0.5,0.7]
                           [--rate 2000] [--rows 256] [--dim 16] [--keys 2000000] [--workers 16]
                           [--seconds 3] [--warmup 2] [--repetitions 3]
                           [--out build/bench/aggregate_age.jsonl] [--plot docs/pictures/aggregate-age.png]
    bench/aggregate_age.py --from build/bench/aggregate_age.jsonl --plot docs/pictures/aggregate-age.png

Each point is a server process with one shard, `weft load` with only pushes in an open loop, and, except for age
0 = direct, `weft aggregate --flush-by-age --flush-age-us AGE` between them. All ages use the same keys and rate.
Per update of a row, before combining: CPU of the server's process, CPU of the aggregator's process, and the
server's PS_proc. The share of updates that combining removed is 1 - rows sent / rows received. Output: median,
minimum and maximum over repetitions; savings are relative to the direct runs of the same share. The line of the
plot is the expected value: with n draws of keys in a sum, 1 - E[different keys] / n, n = rows + rate x rows x
age, up to the capacity of a sum (256 pushes, 131072 rows). Plotting requires gnuplot.
"""
import json
import math
import os
import statistics
import sys

import aggregate_run
import loads

PUSHES_MAX, ROWS_MAX = 256, 131072


def options():
    parser = loads.parser(__doc__, "build/bench/aggregate_age.jsonl", 3)
    parser.set_defaults(seconds="3", warmup="2")
    parser.add_argument("--ages", default="0,200,2000,20000", help="us; 0 = no aggregator")
    parser.add_argument("--shares", default="0.5,0.7", help="of updates, in 20000 rows")
    parser.add_argument("--rate", default="2000", help="pushes a second")
    for name, value in (("rows", 256), ("dim", 16), ("keys", 2000000), ("workers", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def measure(args, share, age, turn):
    job = aggregate_run.Job(args.weft, args.workers)
    try:
        if age != 0:
            job.box(0, ["--flush-by-age", "--flush-age-us", str(age)])
        load, span = job.load(
            ["--rows", str(args.rows), "--dim", str(args.dim), "--mix", "1:0", "--keys",
             str(args.keys), "--zipf-top", f"20000:{share}", "--in-flight", "16", "--rate",
             args.rate, "--eviction", "none", "--seed", str(turn + 1)],
            float(args.seconds), float(args.warmup))
    finally:
        job.end()
    run = load["run"]
    return {"share": share, "age_us": age, "exponent": run["zipf_exponent"], "keys": args.keys,
            "rows": args.rows, "rate": float(args.rate), "p50_us": load["latency_us"]["push"]["p50"],
            "unanswered": run["unanswered"], "refused": run["refused"], **span}


def make(args):
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    runs = []
    with open(args.out, "w", encoding="utf-8") as out:
        for turn in range(args.repetitions):
            for share in map(float, args.shares.split(",")):
                for age in map(int, args.ages.split(",")):
                    runs.append(measure(args, share, age, turn))
                    out.write(json.dumps(runs[-1]) + "\n")
                    out.flush()
    return runs


# ---- expected values -------------------------------------------------------------------------------


def different(n, keys, s):
    """Expected number of different keys in n draws; keys are grouped by nearly equal popularity."""
    groups, total, first = [], 0.0, 1
    while first <= keys:
        count = min(max(1, first // 200), keys - first + 1)
        weight = (first + (count - 1) / 2) ** -s
        groups.append((count, weight))
        total += count * weight
        first += count
    return sum(-count * math.expm1(-n * weight / total) for count, weight in groups)


def removed(n, keys, s):
    return 1 - different(n, keys, s) / n


def draws(run, age_us):
    """Updates in a sum: the first push, and those that arrive within its age, as far as they fit."""
    n = run["rows"] * (1 + run["rate"] * age_us / 1e6)
    return min(n, PUSHES_MAX * run["rows"])


def expected(run, age_us):
    n = draws(run, age_us)
    while different(n, run["keys"], run["exponent"]) > ROWS_MAX:
        n *= 0.98
    return removed(n, run["keys"], run["exponent"])


def rows_for(run, share):
    """Number of draws at which this share is removed."""
    n = 64.0
    while removed(n, run["keys"], run["exponent"]) < share:
        n *= 1.02
    return n


# ---- figures ---------------------------------------------------------------------------------------


def ns(run, what):
    return 1e9 * run[what] / run["updates"]


def group(runs):
    """share -> age -> runs"""
    series = {}
    for run in runs:
        series.setdefault(run["share"], {}).setdefault(run["age_us"], []).append(run)
    return series


def saving(what, some, direct):
    base = statistics.median(ns(run, what) for run in direct)
    return aggregate_run.spread([1 - ns(run, what) / base for run in some])


def table(series):
    print("share  age us   n  server ns: median least most  box ns  PS_proc ns  removed  expected  "
          "saved CPU: median least most  saved PS_proc  went direct  pushes/sum  p50 ms")
    for share, ages in sorted(series.items()):
        for age, some in sorted(ages.items()):
            def middle(what, some=some):
                return statistics.median(map(what, some))
            cpu = aggregate_run.spread([ns(run, "server_cpu_s") for run in some])
            cut = saving("server_cpu_s", some, ages[0])
            proc = saving("ps_proc_s", some, ages[0])
            print(f"{share:5} {age:7} {len(some):3}  {cpu[0]:17.0f} {cpu[1]:5.0f} {cpu[2]:4.0f}  "
                  f"{middle(lambda run: ns(run, 'box_cpu_s')):6.0f}  "
                  f"{middle(lambda run: ns(run, 'ps_proc_s')):10.0f}  "
                  f"{middle(aggregate_run.removed):7.3f}  {expected(some[0], age) if age else 0:8.3f}  "
                  f"{cut[0]:17.3f} {cut[1]:5.3f} {cut[2]:4.3f}  {proc[0]:13.3f}  "
                  f"{middle(lambda run: run['pushes_direct'] / max(1, run['pushes_in'])):11.3f}  "
                  f"{middle(lambda run: run['pushes_absorbed'] / max(1, run['aggregates_out'])):10.1f}  "
                  f"{middle(lambda run: run['p50_us']) / 1e3:6.1f}")
        run = ages[0][0]
        n = rows_for(run, 0.5)
        print(f"  half is removed of {n:.0f} updates in a sum: at {run['rate'] * run['rows']:.0f} updates/s "
              f"after {(n - run['rows']) / run['rate'] / run['rows']:.3f} s; they are "
              f"{n / 2:.0f} rows, and a sum holds {ROWS_MAX}")


SCRIPT = """set terminal pngcairo size 900,480 font "Sans,9"
set output "%(path)s"
set grid
set key top left
set logscale x
set xrange [0.1:2000]
set yrange [*:80]
set xlabel "flush age, ms (from the first push of a sum until it is sent)"
set ylabel "%% of direct"
set title "%(title)s"
plot %(plots)s
"""


def plot(series, path):
    colours = ["blue", "red", "black"]
    blocks, plots = "", []
    for i, (share, ages) in enumerate(sorted(series.items())):
        colour, run = colours[i % 3], ages[0][0]
        blocks += f"$line{i} << EOD\n"
        for step in range(61):
            age_us = 100 * 10 ** (4.3 * step / 60)
            blocks += f"{age_us / 1e3} {100 * expected(run, age_us)}\n"
        blocks += "EOD\n"
        plots.append(f"$line{i} with lines lc '{colour}' title "
                     f"'updates removed, expected; {share:.0%} in 20,000 rows'")
        for name, values, style in (
                ("removed", lambda some, ages: aggregate_run.spread(list(map(aggregate_run.removed, some))),
                 "pt 7"),
                ("server CPU saved", lambda some, ages: saving("server_cpu_s", some, ages[0]),
                 "pt 4")):
            block = f"$p{len(plots)}"
            blocks += f"{block} << EOD\n"
            for age, some in sorted(ages.items()):
                if age != 0:
                    middle, least, most = values(some, ages)
                    blocks += f"{age / 1e3} {100 * middle} {100 * least} {100 * most}\n"
            blocks += "EOD\n"
            plots.append(f"{block} using 1:2:3:4 with yerrorbars lc '{colour}' {style} title "
                         f"'{name}, {share:.0%}'")
    run = next(iter(series.values()))[0][0]
    title = (f"16 workers, {run['rate']:.0f} pushes/s of {run['rows']} rows, one shard, one aggregator")
    loads.draw(blocks + SCRIPT % {"path": path, "title": title, "plots": ", ".join(plots)}, path)


def main():
    args = options()
    runs = loads.read(args.sources) if args.sources else make(args)
    series = group(runs)
    if any(0 not in ages for ages in series.values()):
        sys.exit("age 0 (direct) is required: the others are compared with it")
    table(series)
    if args.plot:
        plot(series, args.plot)


main()
