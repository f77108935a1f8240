#!/usr/bin/env python3
"""Server CPU saved by an aggregator, as a function of the age of its sums, for the keys of [imc20].

    bench/aggregate_age.py [--weft build/weft] [--ages 0,200,2000,20000] [--shares 0.5,0.7]
                           [--hot 0] [--rate 2000] [--rows 256] [--dim 16] [--keys 2000000] [--workers 16]
                           [--seconds 3] [--warmup 2] [--repetitions 3]
                           [--out build/bench/aggregate_age.jsonl] [--plot docs/pictures/aggregate-age.png]
    bench/aggregate_age.py --from build/bench/aggregate_age.jsonl --plot docs/pictures/aggregate-age.png
    bench/aggregate_age.py --expected [--hot 1000,5000,20000,80000,0] [--ages ...] [--plot-hot PNG]

Each point is a server process with one shard, `weft load` with only pushes in an open loop, and, except for age
0 = direct, `weft aggregate --flush-by-age --flush-age-us AGE` between them. All ages use the same keys and rate.
Per update of a row, before combining: CPU of the server's process, CPU of the aggregator's process, and the
server's PS_proc. The share of updates that combining removed is (rows received - rows sent) / all updates. Output:
median, minimum and maximum over repetitions; savings are relative to the direct runs of the same share. The line of
the plot is the expected value: with n draws of keys in a sum, 1 - E[different keys] / n, n = rows + rate x rows x
age, up to the capacity of a sum (256 pushes, 131072 rows). Plotting requires gnuplot.

--hot has sizes of the hot set (`--hot-rows` of the server and the load): only updates of those rows go through the
aggregator; 0 = all do. The expected value is then of the K most frequent keys: (E[their draws] - E[different keys
of them]) / n. --expected computes this table without a run, for all ages and sizes; --plot-hot draws it, with the
points of runs if --from names some. What counts is rate x age, so a run with another rate is drawn at the age that
gives the same product.
"""
import functools
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
    parser.add_argument("--hot", default="0", help="sizes of the hot set; 0 = no hot set")
    parser.add_argument("--expected", action="store_true", help="no runs: expected values only")
    parser.add_argument("--plot-hot", metavar="PNG", help="takes gnuplot")
    parser.add_argument("--rate", default="2000", help="pushes a second")
    for name, value in (("rows", 256), ("dim", 16), ("keys", 2000000), ("workers", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def measure(args, share, hot, age, turn):
    hot_words = ["--hot-rows", str(hot)] if hot != 0 else []
    job = aggregate_run.Job(args.weft, args.workers, hot_words)
    try:
        if age != 0:
            job.box(0, ["--flush-by-age", "--flush-age-us", str(age)])
        load, span = job.load(
            ["--rows", str(args.rows), "--dim", str(args.dim), "--mix", "1:0", "--keys",
             str(args.keys), "--zipf-top", f"20000:{share}", "--in-flight", "16", "--rate",
             args.rate, "--eviction", "none", "--seed", str(turn + 1), *hot_words],
            float(args.seconds), float(args.warmup))
    finally:
        job.end()
    run = load["run"]
    return {"share": share, "hot": hot, "age_us": age, "exponent": run["zipf_exponent"], "keys": args.keys,
            "rows": args.rows, "rate": float(args.rate), "p50_us": load["latency_us"]["push"]["p50"],
            "unanswered": run["unanswered"], "refused": run["refused"], **span}


def points(args):
    """Direct runs, of age 0, once for each share."""
    hots, ages = list(map(int, args.hot.split(","))), list(map(int, args.ages.split(",")))
    for share in map(float, args.shares.split(",")):
        for hot in hots:
            for age in ages:
                if age != 0 or hot == hots[0]:
                    yield share, hot if age != 0 else 0, age


def make(args):
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    runs = []
    with open(args.out, "w", encoding="utf-8") as out:
        for turn in range(args.repetitions):
            for share, hot, age in points(args):
                runs.append(measure(args, share, hot, age, turn))
                out.write(json.dumps(runs[-1]) + "\n")
                out.flush()
    return runs


# ---- expected values -------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def popularity(keys, s, top):
    """(number of keys, probability of one) of groups of nearly equal popularity, of the top keys."""
    groups, total, first = [], 0.0, 1
    while first <= keys:
        count = min(max(1, first // 200), keys - first + 1)
        if first <= top:
            count = min(count, top - first + 1)
        weight = (first + (count - 1) / 2) ** -s
        if first <= top:
            groups.append((count, weight))
        total += count * weight
        first += count
    return [(count, weight / total) for count, weight in groups]


def exponent(keys, top, share):
    """That of Zipf's law with this share of the draws in the top keys."""
    low, high = 0.0, 3.0
    for _ in range(50):
        middle = (low + high) / 2
        if sum(count * part for count, part in popularity(keys, middle, top)) < share:
            low = middle
        else:
            high = middle
    return high


def different(n, keys, s, top=None):
    """Expected number of different keys in n draws, of the top keys."""
    return sum(-count * math.expm1(-n * part) for count, part in popularity(keys, s, top or keys))


def removed(n, keys, s, top=None):
    """Share of all draws that is removed if those of the top keys are combined."""
    draws_of_top = sum(count * part for count, part in popularity(keys, s, top or keys)) if top else 1
    return draws_of_top - different(n, keys, s, top) / n


def draws(run, age_us):
    """Updates in a sum: the first push, and those that arrive within its age, as far as they fit."""
    n = run["rows"] * (1 + run["rate"] * age_us / 1e6)
    return min(n, PUSHES_MAX * run["rows"])


def expected(run, age_us):
    n, top = draws(run, age_us), run.get("hot", 0)
    while different(n, run["keys"], run["exponent"], top) > ROWS_MAX:
        n *= 0.98
    return removed(n, run["keys"], run["exponent"], top)


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
    """(share, size of the hot set) -> age -> runs; the direct runs of a share are in each."""
    series = {}
    for run in runs:
        if run["age_us"] != 0:
            series.setdefault((run["share"], run.get("hot", 0)), {}).setdefault(
                run["age_us"], []).append(run)
    for (share, _), ages in series.items():
        direct = [run for run in runs if run["age_us"] == 0 and run["share"] == share]
        ages.update({0: direct} if direct else {})
    return series


def removed_of_all(run):
    """Share of all updates, also of those that were not sent to the aggregator."""
    return (run["rows_in"] - run["rows_out"]) / run["updates"]


def saving(what, some, direct):
    base = statistics.median(ns(run, what) for run in direct)
    return aggregate_run.spread([1 - ns(run, what) / base for run in some])


def table(series):
    print("share     hot  age us   n  server ns: median least most  box ns  PS_proc ns  removed  expected  "
          "saved CPU: median least most  saved PS_proc  went direct  pushes/sum  p50 ms")
    for (share, hot), ages in sorted(series.items()):
        for age, some in sorted(ages.items()):
            def middle(what, some=some):
                return statistics.median(map(what, some))
            cpu = aggregate_run.spread([ns(run, "server_cpu_s") for run in some])
            cut = saving("server_cpu_s", some, ages[0])
            proc = saving("ps_proc_s", some, ages[0])
            print(f"{share:5} {hot:7} {age:7} {len(some):3}  {cpu[0]:17.0f} {cpu[1]:5.0f} {cpu[2]:4.0f}  "
                  f"{middle(lambda run: ns(run, 'box_cpu_s')):6.0f}  "
                  f"{middle(lambda run: ns(run, 'ps_proc_s')):10.0f}  "
                  f"{middle(removed_of_all):7.3f}  {expected(some[0], age) if age else 0:8.3f}  "
                  f"{cut[0]:17.3f} {cut[1]:5.3f} {cut[2]:4.3f}  {proc[0]:13.3f}  "
                  f"{middle(lambda run: run['pushes_direct'] / max(1, run['pushes_in'])):11.3f}  "
                  f"{middle(lambda run: run['pushes_absorbed'] / max(1, run['aggregates_out'])):10.1f}  "
                  f"{middle(lambda run: run['p50_us']) / 1e3:6.1f}")
        run = next(some for age, some in sorted(ages.items()) if age != 0)[0]
        if hot != 0:
            continue
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
set ylabel "%(ylabel)s"
set title "%(title)s"
plot %(plots)s
"""


def plot(series, path):
    colours = ["blue", "red", "black"]
    blocks, plots = "", []
    whole = {share: ages for (share, hot), ages in series.items() if hot == 0}
    for i, (share, ages) in enumerate(sorted(whole.items())):
        colour, run = colours[i % 3], ages[0][0]
        blocks += f"$line{i} << EOD\n"
        for step in range(61):
            age_us = 100 * 10 ** (4.3 * step / 60)
            blocks += f"{age_us / 1e3} {100 * expected(run, age_us)}\n"
        blocks += "EOD\n"
        plots.append(f"$line{i} with lines lc '{colour}' title "
                     f"'updates removed, expected; {share:.0%} in 20,000 rows'")
        for name, values, style in (
                ("removed", lambda some, ages: aggregate_run.spread(list(map(removed_of_all, some))),
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
    loads.draw(blocks + SCRIPT % {"path": path, "title": title, "ylabel": "% of direct",
                               "plots": ", ".join(plots)}, path)


# ---- the size of the hot set -----------------------------------------------------------------------


def expected_runs(args):
    """A run of each share and size, without measured values."""
    return [{"share": share, "hot": hot, "keys": args.keys, "rows": args.rows,
             "rate": float(args.rate), "exponent": exponent(args.keys, 20000, share)}
            for share in map(float, args.shares.split(",")) for hot in map(int, args.hot.split(","))]


def table_hot(args):
    ages = [age for age in map(int, args.ages.split(",")) if age != 0]
    print(f"expected share of all updates removed, {args.rate} pushes/s of {args.rows} rows, {args.keys} keys")
    print("share  hot rows  updates of them  " + "  ".join(f"{age / 1e3:6g} ms" for age in ages))
    for run in expected_runs(args):
        top = run["hot"] or run["keys"]
        part = sum(count * p for count, p in popularity(run["keys"], run["exponent"], top))
        print(f"{run['share']:5}  {run['hot'] or 'all':>8}  {part:15.3f}  "
              + "  ".join(f"{expected(run, age):9.3f}" for age in ages))


def plot_hot(args, runs, path):
    colours = ["blue", "red", "black", "dark-green", "orange", "violet"]
    blocks, plots = "", []
    wanted = expected_runs(args)
    sizes = sorted({run["hot"] for run in wanted}, key=lambda hot: hot or sys.maxsize)
    for i, run in enumerate(wanted):
        colour = colours[sizes.index(run["hot"]) % len(colours)]
        blocks += f"$line{i} << EOD\n"
        for step in range(61):
            age_us = 100 * 10 ** (4.3 * step / 60)
            blocks += f"{age_us / 1e3} {100 * expected(run, age_us)}\n"
        blocks += "EOD\n"
        dash = 1 if run["share"] == wanted[-1]["share"] else 2
        plots.append(f"$line{i} with lines lc '{colour}' dt {dash} title "
                     f"'{run['hot'] or 'all'} rows; {run['share']:.0%} in 20,000'")
        same = [one for one in runs if one["age_us"] != 0 and one.get("hot", 0) == run["hot"]
                and one["share"] == run["share"]]
        if same:
            blocks += f"$points{i} << EOD\n"
            blocks += "".join(f"{one['age_us'] / 1e3 * one['rate'] / run['rate']} "
                              f"{100 * removed_of_all(one)}\n" for one in same)
            blocks += "EOD\n"
            plots.append(f"$points{i} with points lc '{colour}' pt 7 notitle")
    title = (f"Size of the hot set: {float(args.rate):.0f} pushes/s of {args.rows} rows, {args.keys} keys; "
             "points measured")
    loads.draw(blocks + SCRIPT % {"path": path, "title": title, "ylabel": "% of all updates removed",
                               "plots": ", ".join(plots)}, path)


def main():
    args = options()
    if args.expected:
        table_hot(args)
        if args.plot_hot:
            plot_hot(args, loads.read(args.sources) if args.sources else [], args.plot_hot)
        return
    runs = loads.read(args.sources) if args.sources else make(args)
    series = group(runs)
    if args.plot_hot:
        plot_hot(args, runs, args.plot_hot)
    if any(0 not in ages for ages in series.values()):
        sys.exit("age 0 (direct) is required: the others are compared with it")
    table(series)
    if args.plot:
        plot(series, args.plot)


main()
