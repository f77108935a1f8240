#!/usr/bin/env python3
"""Server CPU per RPC as a function of the number of workers: Fig. 9 of [imc20], for weft and TCP.

    bench/connections.py [--weft build/weft] [--workers 1,10,50,100,200] [--rows 0,64]
                         [--transports weft,tcp] [--rates 0,2000] [--seconds 1] [--repetitions 3]
                         [--out build/bench/connections.jsonl] [--plot docs/pictures/connections.png]
    bench/connections.py --from build/bench/connections.jsonl --plot docs/pictures/connections.png

Each point is a run of `weft load --local 1`: one shard, and either a closed loop with one request per worker in
flight, or a fixed total request rate, independent of the number of workers. The same server code serves both
transports; over TCP it has one connection per worker. Prints the median, minimum and maximum of server CPU per
RPC, and its ratio to one worker. Plotting requires gnuplot.
"""
import loads


def options():
    parser = loads.parser(__doc__, "build/bench/connections.jsonl", 3)
    parser.add_argument("--workers", default="1,10,50,100,200")
    parser.add_argument("--rows", default="0,64")
    parser.add_argument("--transports", default="weft,tcp")
    parser.add_argument("--rates", default="0,2000", help="requests/s; 0 = closed loop")
    return parser.parse_args()


def points(args):
    return [({}, ["--local", "1", "--workers", workers, "--rows", rows, "--transport", transport,
                  *([] if rate == "0" else ["--rate", rate])])
            for rate in args.rates.split(",") for rows in args.rows.split(",")
            for workers in args.workers.split(",") for transport in args.transports.split(",")]


def grouped(runs):
    """(transport, rows, requests/s or 0) -> workers -> runs"""
    series = {}
    for run in runs:
        about = run["run"]
        key = (about["transport"], about["rows"], about["rate"] or 0)
        series.setdefault(key, {}).setdefault(about["workers"], []).append(run)
    return series


def cost(run):
    return run["server_cpu_us_per_rpc"]


def latency(run):
    return run["latency_us"]["pull"]["p50"]


def packets(run):
    moved = run["run"]["worker_packets"]
    return (moved["sent"] + moved["received"]) / run["rpcs"]


def table(series):
    print("transport  rows  rate  workers  n  server us/RPC: median least most   x1 worker   RPCs/s  "
          "pull p50 us  packets/RPC")
    for (transport, rows, rate), by_workers in sorted(series.items()):
        first = loads.median(cost, by_workers[min(by_workers)])
        for workers, runs in sorted(by_workers.items()):
            middle, least, most = loads.spread(cost, runs)
            print(f"{transport:9}  {rows:4}  {rate:4g}  {workers:7}  {len(runs)}  "
                  f"{middle:20.1f} {least:5.1f} {most:5.1f}  {middle / first:9.2f}  "
                  f"{loads.median(lambda run: run['rpcs_per_s'], runs):8.0f}  "
                  f"{loads.median(latency, runs):10.0f}  {loads.median(packets, runs):10.2f}")


SCRIPT = """set terminal pngcairo size 1000,760 font "Sans,9"
set output "%(path)s"
set multiplot layout 2,2 title "One shard, loopback: weft and TCP (one connection for each worker)"
set grid
set key top left
set xlabel "workers"
set logscale x
set xrange [0.8:300]
set title "one request per worker in flight"
set ylabel "server CPU for each RPC, us"
set yrange [0:*]
plot %(cost)s
set ylabel "pull, p50, us"
set logscale y
set yrange [10:20000]
plot %(latency)s
set title "%(rate)g requests/s, of all workers together"
unset logscale y
set ylabel "server CPU for each RPC, us"
set yrange [0:*]
plot %(open_cost)s
set ylabel "pull, p50, us"
set logscale y
set yrange [10:20000]
plot %(open)s
unset multiplot
"""


def plot(series, path):
    colours = {"weft": "blue", "tcp": "red"}
    blocks, plots = "", {"cost": [], "latency": [], "open_cost": [], "open": []}
    for (transport, rows, rate), by_workers in sorted(series.items()):
        drawn = (("cost", cost), ("latency", latency))
        if rate != 0:
            drawn = (("open_cost", cost), ("open", latency))
        for name, what in drawn:
            block = f"${name}_{transport}_{rows}"
            blocks += f"{block} << EOD\n"
            for workers in sorted(by_workers):
                middle, least, most = loads.spread(what, by_workers[workers])
                blocks += f"{workers} {middle} {least} {most}\n"
            blocks += "EOD\n"
            title = f"{transport}, " + ("empty RPC" if rows == 0 else f"{rows} rows")
            style = f"lc '{colours.get(transport, 'black')}' dt {1 if rows == 0 else 2} pt 7 ps 0.5"
            plots[name].append(f"{block} using 1:2:3:4 with yerrorlines {style} title '{title}'")
    rate = max(key[2] for key in series)
    script = blocks + SCRIPT % {"path": path, "rate": rate,
                                **{k: ", ".join(v) or "NaN" for k, v in plots.items()}}
    loads.draw(script, path)


def main():
    args = options()
    series = grouped(loads.runs(args, points(args)))
    table(series)
    if args.plot:
        plot(series, args.plot)


main()
