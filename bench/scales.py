#!/usr/bin/env python3
"""The scales S1 to S6 of [imc20] Table 2 (80 workers and 20 servers to 280 and 70) as logical workers and
shards on one machine: CPU on both sides as in Fig. 8, the stages of an RPC as in Fig. 5.

    bench/scales.py [--weft build/weft] [--scales S1,S2,S3,S4,S5,S6] [--rows 512] [--rate 0]
                    [--seconds 2] [--out build/bench/scales.jsonl] [--plot docs/pictures/scales.png]
    bench/scales.py --from build/bench/scales.jsonl --plot docs/pictures/scales.png

One machine cannot show the utilisation of each host: workers and shards share its processors, so the
picture has the shares of the CPU time and what an RPC costs either side. Plotting takes gnuplot.
"""
import argparse
import json
import os
import subprocess
import sys

STAGES = ("W_proc", "W_queue", "PS_proc", "PS_queue", "PS_wait", "N_tx")


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--scales", default="S1,S2,S3,S4,S5,S6")
    parser.add_argument("--rows", default="512")
    parser.add_argument("--rate", type=float, default=0, help="requests/s; 0 = closed loop")
    parser.add_argument("--seconds", default="2")
    parser.add_argument("--warmup", default="0.5")
    parser.add_argument("--out", default="build/bench/scales.jsonl")
    parser.add_argument("--from", dest="source", help="draw these runs instead of making them")
    parser.add_argument("--plot")
    return parser.parse_args()


def measure(args):
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    runs = []
    with open(args.out, "w", encoding="utf-8") as out:
        for scale in args.scales.split(","):
            command = [args.weft, "load", "--scale", scale, "--rows", args.rows, "--seconds",
                       args.seconds, "--warmup", args.warmup, "--json"]
            command += ["--rate", str(args.rate)] if args.rate > 0 else []
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
            run = json.loads(done.stdout) | {"scale": scale}
            out.write(json.dumps(run) + "\n")
            out.flush()
            runs.append(run)
    return runs


def share(run):
    """Of the CPU time of both sides, the servers'."""
    return run["server_cpu_s"] / (run["server_cpu_s"] + run["worker_cpu_s"])


def table(runs):
    print("scale workers shards  RPCs/s  server us/RPC worker us/RPC server share  active p50 p99  "
          "rss MB  kind  " + "  ".join(f"{stage:>8}" for stage in STAGES))
    for run in runs:
        about, active = run["run"], run["active_connections_per_ms"]
        for kind in ("push", "pull"):
            head = (f"{run['scale']:5} {about['workers']:7} {about['servers']:6}  "
                    f"{run['rpcs_per_s']:6.0f}  {run['server_cpu_us_per_rpc']:13.1f} "
                    f"{run['worker_cpu_s'] / run['rpcs'] * 1e6:13.1f} {share(run):12.2f}  "
                    f"{active['p50']:10} {active['p99']:3}  {run['rss_mb']:6.0f}")
            stages = "  ".join(f"{run['breakdown_us'][kind][stage]:8.1f}" for stage in STAGES)
            print(f"{head}  {kind}  {stages}")


SCRIPT = """set terminal pngcairo size 1000,420 font "Sans,9"
set output "%(path)s"
set multiplot layout 1,2 title "S1 to S6 of [imc20] as logical workers and shards on one machine"
set grid ytics
set style data histograms
set boxwidth 0.8
set style fill solid 0.7 border -1
set key outside top
set ylabel "CPU for each RPC, us"
set yrange [0:*]
plot $cpu using 2:xtic(1) title "shards", '' using 3 title "workers"
set style histogram rowstacked
set ylabel "share of an RPC's time (left push, right pull)"
set yrange [0:1]
set xtics font "Sans,7"
plot for [i=2:7] $stages using i:xtic(1) title columnheader(i)
unset multiplot
"""


def plot(runs, path):
    cpu = stages = ""
    for run in runs:
        cpu += (f"{run['scale']} {run['server_cpu_us_per_rpc']} "
                f"{run['worker_cpu_s'] / run['rpcs'] * 1e6}\n")
        for kind in ("push", "pull"):
            parts = [run["breakdown_us"][kind][stage] for stage in STAGES]
            shares = " ".join(str(part / (sum(parts) or 1)) for part in parts)
            stages += f"{run['scale'] if kind == 'push' else '-'} {shares}\n"
    header = "scale " + " ".join(stage.replace("_", "\\\\_") for stage in STAGES)
    script = f"$cpu << EOD\n{cpu}EOD\n$stages << EOD\n{header}\n{stages}EOD\n" + SCRIPT % {"path": path}
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
    print(f"picture: {path}")


def main():
    args = options()
    if args.source:
        with open(args.source, encoding="utf-8") as source:
            runs = [json.loads(line) for line in source]
    else:
        runs = measure(args)
    table(runs)
    if args.plot:
        plot(runs, args.plot)


main()
