#!/usr/bin/env python3
"""The scales S1 to S6 of [imc20] Table 2 (80 workers and 20 servers to 280 and 70) as logical workers and
shards on one machine: CPU on both sides as in Fig. 8, the stages of an RPC as in Fig. 5.

    bench/scales.py [--weft build/weft] [--scales S1,S2,S3,S4,S5,S6] [--rows 512] [--rate 0]
                    [--seconds 2] [--out build/bench/scales.jsonl] [--plot docs/pictures/scales.png]
    bench/scales.py --from build/bench/scales.jsonl --plot docs/pictures/scales.png

One machine cannot show the utilization of each host, because workers and shards share its processors. So the
plot shows the CPU per RPC of both sides, and the shares of its stages.
"""
import loads

STAGES = ("W_proc", "W_queue", "PS_proc", "PS_queue", "PS_wait", "N_tx")


def options():
    parser = loads.parser(__doc__, "build/bench/scales.jsonl", 1)
    parser.add_argument("--scales", default="S1,S2,S3,S4,S5,S6")
    parser.add_argument("--rows", default="512")
    parser.add_argument("--rate", type=float, default=0, help="requests/s; 0 = closed loop")
    return parser.parse_args()


def points(args):
    rate = ["--rate", str(args.rate)] if args.rate > 0 else []
    return [({"scale": scale}, ["--scale", scale, "--rows", args.rows, *rate])
            for scale in args.scales.split(",")]


def grouped(runs):
    """scale -> runs"""
    scales = {}
    for run in runs:
        scales.setdefault(run["scale"], []).append(run)
    return dict(sorted(scales.items()))


def server_us(run):
    return run["server_cpu_us_per_rpc"]


def worker_us(run):
    return run["worker_cpu_s"] / run["rpcs"] * 1e6


def share(run):
    """The servers' share of the CPU time of both sides."""
    return run["server_cpu_s"] / (run["server_cpu_s"] + run["worker_cpu_s"])


def stages(runs, kind):
    return [loads.median(lambda run, s=stage: run["breakdown_us"][kind][s], runs)
            for stage in STAGES]


def table(scales):
    print("scale workers shards  n  RPCs/s  server us/RPC (least, most)  worker us/RPC (least, most)  "
          "server share  active p50 p99  rss MB  kind  "
          + "  ".join(f"{stage:>8}" for stage in STAGES))
    for scale, runs in scales.items():
        about = runs[0]["run"]
        active = [loads.median(lambda run, q=q: run["active_connections_per_ms"][q], runs)
                  for q in ("p50", "p99")]
        cells = "  ".join("%13.1f (%5.1f, %5.1f)" % loads.spread(what, runs)
                          for what in (server_us, worker_us))
        head = (f"{scale:5} {about['workers']:7} {about['servers']:6} {len(runs):2}  "
                f"{loads.median(lambda run: run['rpcs_per_s'], runs):6.0f}  {cells}  "
                f"{loads.median(share, runs):12.2f}  {active[0]:10g} {active[1]:3g}  "
                f"{loads.median(lambda run: run['rss_mb'], runs):6.0f}")
        for kind in ("push", "pull"):
            print(f"{head}  {kind}  " + "  ".join(f"{us:8.1f}" for us in stages(runs, kind)))


SCRIPT = """set terminal pngcairo size 1000,420 font "Sans,9"
set output "%(path)s"
set multiplot layout 1,2 title "S1 to S6 of [imc20] as logical workers and shards on one machine"
set grid ytics
set style data histograms
set style histogram errorbars gap 1
set boxwidth 0.8
set style fill solid 0.7 border -1
set key outside top
set ylabel "CPU for each RPC, us"
set yrange [0:*]
plot $cpu using 2:3:4:xtic(1) title "shards", '' using 5:6:7 title "workers"
set style histogram rowstacked
set ylabel "share of an RPC's time (left push, right pull)"
set yrange [0:1]
set xtics font "Sans,7"
plot for [i=2:7] $stages using i:xtic(1) title columnheader(i)
unset multiplot
"""


def plot(scales, path):
    cpu = parts = ""
    for scale, runs in scales.items():
        cells = [*loads.spread(server_us, runs), *loads.spread(worker_us, runs)]
        cpu += f"{scale} " + " ".join(map(str, cells)) + "\n"
        for kind in ("push", "pull"):
            means = stages(runs, kind)
            shares = " ".join(str(mean / (sum(means) or 1)) for mean in means)
            parts += f"{scale if kind == 'push' else '-'} {shares}\n"
    header = "scale " + " ".join(stage.replace("_", "\\\\_") for stage in STAGES)
    script = (f"$cpu << EOD\n{cpu}EOD\n$stages << EOD\n{header}\n{parts}EOD\n"
              + SCRIPT % {"path": path})
    loads.draw(script, path)


def main():
    args = options()
    scales = grouped(loads.runs(args, points(args)))
    table(scales)
    if args.plot:
        plot(scales, args.plot)


main()
