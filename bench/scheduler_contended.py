#!/usr/bin/env python3
"""Time of training behind a server whose link carries other traffic, with the transfer scheduler and without.

    bench/scheduler_contended.py [--weft build/weft] [--out build/bench/scheduler_contended] [--repetitions 5]
                                 [--rate 28] [--others 0.6] [--aggregators 3] [--forms bsp,ssp:2,asp,planned]

A dense model (252 KB an update); 8 workers, one server, the aggregators and the scheduler are on hosts of their own
in a lab. One more host sends UDP to the server, --others of its link. All forms take turns until the same test AUC:

    bsp, ssp:2, asp  workers push to the server
    planned          asp with `--scheduler on --via on`: who is added up, and where, by the plan

Prints the median of each, and by turns the ratio of the best form without a scheduler (the least median) to
`planned`: how many times sooner it was. Takes root. A run that is in --out is not repeated.
"""
import argparse
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time

HOSTS = 11  # and the aggregators
JOB = ["--model", "mlp", "--format", "adult", "--factors", "8", "--batch", "128", "--until-auc", "0.91",
       "--check-steps", "8", "--workers", "8", "--servers", "1", "--quiet"]
FORMS = {
    "bsp": ["--mode", "bsp"],
    "ssp:2": ["--mode", "ssp:2"],
    "asp": ["--mode", "asp"],
    "planned": ["--mode", "asp", "--scheduler", "on", "--via", "on"],
}
FRAME_BYTES = 1500
HEADER_BYTES = 42  # Ethernet, IPv4, UDP


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--out", default="build/bench/scheduler_contended")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rate", type=float, default=28, help="Mbit/s of each link")
    parser.add_argument("--others", type=float, default=0.6, help="of the server's link, for UDP")
    parser.add_argument("--aggregators", type=int, default=3)
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--send", nargs=2, metavar=("ADDRESS", "MBPS"), help=argparse.SUPPRESS)
    return parser.parse_args()


def send(address, mbps):
    """Constant rate to a port that nobody listens at, until it is ended; at most half an hour."""
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.connect((address, 9))
    payload = bytes(FRAME_BYTES - HEADER_BYTES)
    gap = FRAME_BYTES * 8 / (mbps * 1e6)
    begin = due = time.monotonic()
    while due - begin < 1800:
        time.sleep(max(due - time.monotonic(), 0.001))
        while due <= time.monotonic():
            try:
                out.send(payload)
            except OSError:
                pass  # the server's host says that the port is closed
            due += gap


def one(args, lab, form, repetition):
    """Seconds of training; inf where the AUC was not reached."""
    report = os.path.join(args.out, f"{form.replace(':', '')}-{repetition}.json")
    if not os.path.exists(report):
        command = [args.weft, "train", "--lab", lab, "--report", report + ".part", *JOB, *FORMS[form],
                   *(["--aggregators", str(args.aggregators)] if form == "planned" else [])]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            sys.exit(f"{sys.argv[0]}: exit {done.returncode} of {' '.join(command)}")
        os.replace(report + ".part", report)
    with open(report) as file:
        until = json.load(file)["until"]
    return until["training_s"] if until["reached"] else math.inf


def measure(args, lab):
    forms = args.forms.split(",")
    times = {form: [] for form in forms}
    for repetition in range(args.repetitions):
        for form in forms:
            times[form].append(one(args, lab, form, repetition))
            print(f"{form} {times[form][-1]:.2f} s", flush=True)
    return times


def main():
    args = options()
    if args.send:
        return send(args.send[0], float(args.send[1]))
    args.weft = os.path.abspath(args.weft)
    os.makedirs(args.out, exist_ok=True)
    lab = f"contended{os.getpid()}"
    hosts = HOSTS + args.aggregators
    subprocess.run([args.weft, "lab", "up", lab, "--hosts", str(hosts), "--rate", f"{args.rate:g}mbit",
                    "--buffer", "450kb"], check=True, stdout=subprocess.DEVNULL)
    others = None
    try:
        server = subprocess.run([args.weft, "lab", "exec", lab, "0", "--", "hostname", "-I"], check=True,
                                capture_output=True, text=True).stdout.split()[0]
        others = subprocess.Popen([args.weft, "lab", "exec", lab, str(hosts - 1), "--", sys.executable,
                                   os.path.abspath(__file__), "--send", server,
                                   f"{args.rate * args.others:g}"])
        times = measure(args, lab)
    finally:
        if others is not None:
            others.terminate()
            others.wait()
        subprocess.run([args.weft, "lab", "down", lab], check=False, stdout=subprocess.DEVNULL)
    for form, values in times.items():
        print(f"{form}: median {statistics.median(values):.2f} s of {len(values)}")
    without = [form for form in times if form != "planned"]
    if "planned" in times and without:
        best = min(without, key=lambda form: statistics.median(times[form]))
        ratios = sorted(a / b for a, b in zip(times[best], times["planned"]))
        print(f"{best} / planned: median {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
