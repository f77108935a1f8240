#!/usr/bin/env python3
"""Training time to a target with and without the transfer scheduler, in a lab.

    bench/scheduler_contended.py [--scenario contended|stragglers|uplinks|idle] [--model mlp|mlp-large|lda]
                                 [--servers 1] [--weft build/weft] [--repetitions 5]
                                 [--out build/bench/scheduler_contended]
                                 [--forms bsp,ssp:2,asp,scheduled,planned] [--rate 28] [--others 0.6]
                                 [--aggregators 3] [--compute CS2 --compute-scale 0.1] [--job='--seed 2']

    contended    one more host sends UDP to the first server, at the fraction --others of its link
    stragglers   no other traffic; --compute determines the time of each step
    uplinks      UDP on the uplinks of --contended-workers workers, at the fraction --others of each
    idle         no other traffic

8 workers, the servers, the aggregators and the scheduler each have a host. All forms take turns until the
same target:

    bsp, ssp:2, asp         workers push to the servers
    scheduled               asp with `--scheduler on`: updates are ordered, and sent to the servers
    planned                 asp with `--scheduler on --via on`: the plan also assigns sums to aggregators
    planned-ssp:2           the same in ssp:2 (not among the default forms)

    mlp    Adult, 252 KB per update, until a test AUC of 0.91. In `stragglers` weights are pulled as bf16 in all
           forms: pushes then need more of the servers' links than pulls, and only pushes can be summed
    mlp-large
           the default mlp of 1.1 million parameters, 4.4 MB per update, until the same AUC, which is tested
           after each 2 steps; a run has some 12 steps. With fewer workers each link may have a higher rate
    lda    uci-kos/docword.kos.txt.gz from $WEFT_DATA_DIR, 12 topics, about 90 KB per update, until a test
           perplexity of 2250; a step computes for at least 0.2 s in all scenarios

`contended` with --compute CS2 --compute-scale 0.1 has both, other traffic and stragglers.

Prints the median of each form and of the counts of its sums and, per turn, the ratio of the best form
without a scheduler (the lowest median) to each form with one: the speedup. Requires root. A run that is
in --out is not repeated; runs of scenarios, models and numbers of servers other than the first are in
subfolders.
"""
import argparse
import contextlib
import json
import math
import os
import shlex
import socket
import statistics
import subprocess
import sys
import time

FORMS = {
    "bsp": ["--mode", "bsp"],
    "ssp:2": ["--mode", "ssp:2"],
    "asp": ["--mode", "asp"],
    "scheduled": ["--mode", "asp", "--scheduler", "on"],
    "planned": ["--mode", "asp", "--scheduler", "on", "--via", "on"],
    "planned-ssp:2": ["--mode", "ssp:2", "--scheduler", "on", "--via", "on"],
}
DEFAULT_FORMS = [form for form in FORMS if form != "planned-ssp:2"]
MODELS = {
    "mlp": ["--model", "mlp", "--format", "adult", "--factors", "8", "--batch", "128", "--check-steps", "8"],
    "mlp-large": ["--model", "mlp", "--format", "adult", "--batch", "128", "--check-steps", "2"],
    "lda": ["--model", "lda", "--format", "docword", "--data", "uci-kos/docword.kos.txt.gz", "--factors", "12",
            "--batch", "32", "--epochs", "1000", "--check-steps", "11", "--timeout-s", "300"],
}
TARGETS = {"mlp": ("--until-auc", "0.91"), "mlp-large": ("--until-auc", "0.91"), "lda": ("--until-perplexity", "2250")}
# Setting and scale of the compute times; None: real computation only.
COMPUTE = {
    # 0.2 s, one step in ten 0.6 s; a push needs 0.07 s on an idle link
    ("stragglers", "mlp"): ("CS2", 0.1),
    ("stragglers", "lda"): ("CS2", 0.1),  # a push needs 0.03 s
    ("contended", "lda"): ("fixed", 0.1),
    ("uplinks", "lda"): ("fixed", 0.1),
    ("idle", "lda"): ("fixed", 0.1),
}
BF16_PULLS = {("stragglers", "mlp")}
FRAME_BYTES = 1500
HEADER_BYTES = 42  # Ethernet, IPv4, UDP


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", choices=["contended", "stragglers", "uplinks", "idle"], default="contended")
    parser.add_argument("--model", choices=list(MODELS), default="mlp")
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--out", default="build/bench/scheduler_contended")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rate", type=float, default=28, help="Mbit/s of each link")
    parser.add_argument("--others", type=float, default=0.6, help="of a contended link, for UDP")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--aggregators", type=int, default=3)
    parser.add_argument("--contended-workers", type=int, default=3, help="uplinks: workers 0 to this - 1")
    parser.add_argument("--compute", metavar="NAME|FILE", help="of `weft train`; default: CS2 in stragglers")
    parser.add_argument("--compute-scale", type=float, metavar="X", help="of `weft train`")
    parser.add_argument("--until", metavar="X", help="the target, instead of the model's")
    parser.add_argument("--job", default="", metavar="WORDS", help="more options of `weft train`, for all forms")
    parser.add_argument("--forms", default=",".join(DEFAULT_FORMS))
    parser.add_argument("--send", nargs=2, metavar=("ADDRESS", "MBPS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    for form in args.forms.split(","):
        if form not in FORMS:
            parser.error(f"--forms: {form} is none of {', '.join(FORMS)}")
    if not 0 < args.others < 1:
        parser.error("--others must be above 0 and below 1")
    if args.scenario == "uplinks" and not 0 < args.contended_workers <= args.workers:
        parser.error("--contended-workers must be from 1 to the number of workers")
    return args


def send(address, mbps):
    """Send at a constant rate to a port without a listener, until ended; at most half an hour."""
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
                pass  # the receiver's host reports a closed port
            due += gap


def compute_of(args):
    setting, scale = COMPUTE.get((args.scenario, args.model), (None, None))
    setting = args.compute or setting
    scale = args.compute_scale or (None if args.compute else scale)
    words = ["--compute", setting] if setting else []
    return words + (["--compute-scale", f"{scale:g}"] if scale else [])


def job_of(args):
    """Options common to all forms."""
    until, target = TARGETS[args.model]
    return [
        *MODELS[args.model], until, args.until or target,
        "--workers", str(args.workers), "--servers", str(args.servers), "--quiet",
        *(["--pull-value-type", "bf16"] if (args.scenario, args.model) in BF16_PULLS else []),
        *compute_of(args), *shlex.split(args.job),
    ]


def folder_of(args):
    """Folder of a scenario; the first one uses the top folder, as in earlier releases."""
    if (args.scenario, args.model, args.servers) == ("contended", "mlp", 1):
        return args.out
    return os.path.join(args.out, f"{args.scenario}-{args.model}-{args.servers}")


def check_folder(args, folder):
    """Refuse to mix runs with different options in one series."""
    os.makedirs(folder, exist_ok=True)
    names = ["rate", "others", "aggregators"] + (["contended_workers"] if args.scenario == "uplinks" else [])
    series = {"job": job_of(args), **{name: getattr(args, name) for name in names}}
    path = os.path.join(folder, "series.json")
    if os.path.exists(path):
        with open(path) as file:
            before = json.load(file)
        if before != series:
            sys.exit(f"{sys.argv[0]}: {folder} has runs with other options: {before}\nuse another --out")
    with open(path, "w") as file:
        json.dump(series, file)


def one(args, folder, lab, form, repetition):
    """The report of a run."""
    report = os.path.join(folder, f"{form.replace(':', '')}-{repetition}.json")
    if not os.path.exists(report):
        command = [args.weft, "train", "--lab", lab, "--report", report + ".part", *job_of(args), *FORMS[form],
                   *(["--aggregators", str(args.aggregators)] if "--via" in FORMS[form] else [])]
        with other_traffic(args, lab):
            done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            sys.exit(f"{sys.argv[0]}: exit {done.returncode} of {' '.join(command)}")
        os.replace(report + ".part", report)
    with open(report) as file:
        return json.load(file)


def seconds_of(report):
    """Seconds of training; inf if the target was not reached."""
    until = report["until"]
    return until["training_s"] if until["reached"] else math.inf


def counts_of(report):
    """Counts of a run: its updates, and the sums that the servers received, each an average of all shards."""
    counters = report["counters"]
    shards = report["servers"] * report["shards_per_server"]
    counts = {
        "updates": counters.get("client_updates", 0),
        "in sums": counters.get("aggregator_pushes_absorbed", 0) / shards,
        "sums": counters.get("aggregator_aggregates_out", 0) / shards,
        "without a grant": counters.get("sched_direct", 0),
        "overdue": ((report["scheduler"] or {}).get("planned") or {}).get("overdue", 0),
    }
    rows_in, rows_out = counters.get("aggregator_rows_in", 0), counters.get("aggregator_rows_out", 0)
    counts["members of a sum"] = counts["in sums"] / counts["sums"] if counts["sums"] else 0
    # 1 / members for a dense model; more for a sparse one, whose sums have the rows of all members
    counts["rows kept"] = rows_out / rows_in if rows_in else 0
    return counts


def text_of(counts):
    return (f"{counts['updates']:.0f} updates; {counts['in sums']:.0f} in sums of {counts['members of a sum']:.2f}, "
            f"with {counts['rows kept']:.2f} of their rows; {counts['without a grant']:.0f} without a grant; "
            f"{counts['overdue']:.0f} overdue")


def measure(args, folder, lab):
    forms = args.forms.split(",")
    reports = {form: [] for form in forms}
    for repetition in range(args.repetitions):
        for form in forms:
            report = one(args, folder, lab, form, repetition)
            reports[form].append(report)
            print(f"{form} {seconds_of(report):.2f} s, {report['until']['steps']} steps, median step "
                  f"{report['step_ms']['p50']:.0f} ms; {text_of(counts_of(report))}", flush=True)
    return reports


def hosts_of(args):
    """Those of the job, one for its scheduler, and one without a process."""
    return args.servers + args.workers + args.aggregators + 2


@contextlib.contextmanager
def other_traffic(args, lab):
    """UDP senders of the scenario, during one run; the last host has no process of the job."""
    first_worker, last = args.servers, hosts_of(args) - 1
    pairs = {"contended": [(last, 0)],
             "uplinks": [(first_worker + w, last) for w in range(args.contended_workers)]}
    senders = []
    try:
        for source, target in pairs.get(args.scenario, []):
            address = subprocess.run([args.weft, "lab", "exec", lab, str(target), "--", "hostname", "-I"],
                                     check=True, capture_output=True, text=True).stdout.split()[0]
            senders.append(subprocess.Popen([args.weft, "lab", "exec", lab, str(source), "--", sys.executable,
                                             os.path.abspath(__file__), "--send", address,
                                             f"{args.rate * args.others:g}"]))
        yield
    finally:
        for sender in senders:
            sender.terminate()
            sender.wait()


def conclude(reports):
    times = {form: [seconds_of(report) for report in each] for form, each in reports.items()}
    for form, values in times.items():
        print(f"{form}: median {statistics.median(values):.2f} s of {len(values)} "
              f"({min(values):.2f} to {max(values):.2f})")
    for form, each in reports.items():
        if "--via" in FORMS[form]:
            counts = [counts_of(report) for report in each]
            print(f"{form}: medians: "
                  + text_of({name: statistics.median(run[name] for run in counts) for name in counts[0]}))
    without = [form for form in times if "--scheduler" not in FORMS[form]]
    if not without:
        return
    best = min(without, key=lambda form: statistics.median(times[form]))
    for form in times:
        if form in without:
            continue
        ratios = sorted(a / b for a, b in zip(times[best], times[form]) if not math.isinf(a) or not math.isinf(b))
        if ratios:
            print(f"{best} / {form}: median {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def main():
    args = options()
    if args.send:
        return send(args.send[0], float(args.send[1]))
    args.weft = os.path.abspath(args.weft)
    if args.compute and os.path.exists(args.compute):
        args.compute = os.path.abspath(args.compute)
    folder = folder_of(args)
    check_folder(args, folder)
    lab = f"contended{os.getpid()}"
    subprocess.run([args.weft, "lab", "up", lab, "--hosts", str(hosts_of(args)), "--rate", f"{args.rate:g}mbit",
                    "--buffer", "450kb", "--until-pid", str(os.getpid())], check=True,
                   stdout=subprocess.DEVNULL)
    try:
        reports = measure(args, folder, lab)
    finally:
        subprocess.run([args.weft, "lab", "down", lab], check=False, stdout=subprocess.DEVNULL)
    conclude(reports)
    return 0


if __name__ == "__main__":
    sys.exit(main())
