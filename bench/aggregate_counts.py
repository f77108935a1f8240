#!/usr/bin/env python3
"""Instructions that an aggregator saves a server, and those that messages, rows and packets account for.

    bench/aggregate_counts.py [--weft build/weft] [--sums 0,1,5,41] [--shares 0.5,0.7] [--rows 64,256,1024]
                              [--mtu 65536] [--keys 2000000] [--dim 16] [--workers 16] [--count server]
                              [--in-flight 6] [--seconds 8] [--warmup 3] [--repetitions 1]
                              [--out build/bench/aggregate_counts.jsonl]
    bench/aggregate_counts.py --from FILE...

As aggregate_age.py, but the server (--count boxes: the aggregator; --count both) runs under valgrind's callgrind,
and what is counted are its instructions in user mode, which other load on the machine hardly changes. Such a
process is slow, so the load is a closed loop, with --in-flight pushes of each worker, and a sum is sent when it
has --sums pushes, 0 = direct: 41, 5 and 1.4 are what ages of 20, 2 and 0.2 ms give at 2,000 pushes a second.
Sums are of pushes of 256 rows; direct pushes have each of --rows. Most rows exist before.
--mtu N runs all in a network namespace whose loopback interface has that MTU (requires root), which sets the
number of packets. A run with few pushes, or far more datagrams than others, was starved of processor time.

All runs of the given files determine a, b, c and d of

    instructions = a x messages + b x rows + c x datagrams, received and sent, + d x rows created

by least squares of relative errors. `predicted` is the saving of a run with sums against direct pushes of as many
rows by a, b and c; `messages`, `rows` and `packets` are its parts. `saved` is the measured one, without d. `rows
alone` is the saving of what remains without a, c and d, to be compared with `removed`, the fraction of updates.
`PS_proc` are instructions of the functions whose time it is, for an update; `less` is their saving.
"""
import json
import os

import aggregate_run
import loads


def options():
    parser = loads.parser(__doc__, "build/bench/aggregate_counts.jsonl", 1)
    parser.set_defaults(seconds="8", warmup="3")
    parser.add_argument("--sums", default="0,1,5,41", help="pushes in a sum; 0 = no aggregator")
    parser.add_argument("--shares", default="0.5,0.7", help="of updates, in 20000 rows")
    parser.add_argument("--rows", default="64,256,1024", help="of a push")
    parser.add_argument("--count", choices=("server", "boxes", "both"), default="server")
    for name, value in (("mtu", 65536), ("dim", 16), ("keys", 2000000), ("workers", 16), ("in-flight", 6)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def measure(args, share, rows, pushes, turn):
    counted = ("server", "boxes") if args.count == "both" else (args.count,)
    job = aggregate_run.Job(args.weft, args.workers, counted=counted)
    words = ["--dim", str(args.dim), "--mix", "1:0", "--eviction", "none", "--peer-timeout", "60",
             "--start-timeout", "60"]
    try:
        if args.count != "boxes":
            job.fill(words, args.keys)
        if pushes != 0:
            job.box(0, ["--flush-by-age", "--peer-timeout", "60", "--flush-age-us", "800000",
                        "--flush-count", str(pushes)])
        job.instructions("on")
        load, span = job.load([*words, "--keys", str(args.keys), "--zipf-top", f"20000:{share}",
                               "--rows", str(rows), "--in-flight", str(args.in_flight),
                               "--seed", str(turn + 1)], float(args.seconds), float(args.warmup))
    finally:
        job.end()
    return {"share": share, "rows": rows, "sum": pushes, "mtu": args.mtu, "count": args.count, "turn": turn,
            "unanswered": load["run"]["unanswered"], **span}


def make(args):
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    runs = []
    points = [(share, int(rows), pushes) for share in map(float, args.shares.split(","))
              for pushes in map(int, args.sums.split(","))
              for rows in (args.rows.split(",") if pushes == 0 else ["256"])]
    with open(args.out, "w", encoding="utf-8") as out:
        for turn in range(args.repetitions):
            for point in points:
                runs.append(measure(args, *point, turn))
                out.write(json.dumps(runs[-1]) + "\n")
                out.flush()
    return runs


# ---- the model -------------------------------------------------------------------------------------


def counts(run):
    """Messages, rows, datagrams and new rows at the server."""
    return [run["pushes"] - run["aggregate_pushes"] + run["aggregates"],
            run["updates"] - run["aggregate_updates"] + run["aggregate_rows"],
            run["datagrams"] + run["datagrams_sent"], run["rows_created"]]


def removed(run):
    """Fraction of the updates that combining removed, of those that the server got."""
    return (run["aggregate_updates"] - run["aggregate_rows"]) / run["updates"]


def solve(matrix, right):
    """Gauss elimination; small and regular."""
    n = len(right)
    rows = [line[:] + [value] for line, value in zip(matrix, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(n):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def fit(runs):
    """[a, b, c, d], by least squares of relative errors; of too few runs b alone. 0: of what no run has, such as
    rows created."""
    if len(runs) < 6:
        return [0, sum(run["server_instructions"] for run in runs) / sum(counts(run)[1] for run in runs), 0, 0]
    lines = [[value / run["server_instructions"] for value in counts(run)] for run in runs]
    used = [part for part in range(4) if any(line[part] for line in lines)]
    square = [[sum(line[i] * line[k] for line in lines) for k in used] for i in used]
    factors = dict(zip(used, solve(square, [sum(line[i] for line in lines) for i in used])))
    return [factors.get(part, 0) for part in range(4)]


def cost(factors, run, parts=(0, 1, 2, 3)):
    return sum(factors[part] * counts(run)[part] for part in parts) / run["updates"]


def comparison(run, direct, factors):
    """Columns of a run with sums."""
    of = run["server_instructions"] / run["updates"]
    before = direct["server_instructions"] / direct["updates"]
    made = [cost(factors, one, (3,)) for one in (run, direct)]
    base = cost(factors, direct, (0, 1, 2))
    parts = [(cost(factors, direct, (part,)) - cost(factors, run, (part,))) / base for part in (0, 1, 2)]
    rest = [total - cost(factors, one, (0, 2, 3)) for total, one in ((of, run), (before, direct))]
    return (f"{1 - (of - made[0]) / (before - made[1]):6.3f} {sum(parts):10.3f} {parts[0]:9.3f} {parts[1]:5.3f} "
            f"{parts[2]:8.3f} {1 - rest[0] / rest[1]:11.3f} ")


def table(runs):
    served = [run for run in runs if run["count"] != "boxes"]
    factors = fit(served)
    print(f"{len(served)} runs: a = {factors[0]:.0f} instructions a message, b = {factors[1]:.1f} a row, "
          f"c = {factors[2]:.0f} a datagram, d = {factors[3]:.1f} a new row")
    heads = ("share  rows    sum     mtu  pushes  messages/push  datagrams/push  created  instr/update  model  removed  "
             "saved  predicted  messages  rows  packets  rows alone  PS_proc   less  box instr/update")
    print(heads)
    for run in runs:
        line = (f"{run['share']:5} {run['rows']:5} {run['sum']:6} {run['mtu']:7} {run['pushes']:7.0f} "
                f"{counts(run)[0] / run['pushes']:14.3f} {counts(run)[2] / run['pushes']:15.2f} "
                f"{run['rows_created'] / run['updates']:8.3f} "
                f"{run['server_instructions'] / run['updates']:13.1f} {cost(factors, run):6.1f} ")
        base = [one for one in served if one["sum"] == 0 and
                all(one.get(key) == run.get(key) for key in ("share", "rows", "mtu", "turn"))]
        if run["sum"] != 0:
            line += f"{removed(run):8.3f} "
            line += comparison(run, base[0], factors) if base and run["count"] != "boxes" else ""
        box, proc = (run.get(name, 0) / run["updates"] for name in ("box_instructions", "ps_proc_instructions"))
        less = 1 - proc * base[0]["updates"] / base[0]["ps_proc_instructions"] \
            if run["sum"] != 0 and base and base[0].get("ps_proc_instructions") else 0
        print(f"{line:{heads.index('PS_proc') - 1}}{proc:8.1f} {less:6.3f}" + (f"{box:17.1f}" if box else ""))


def main():
    args = options()
    if args.sources is None:
        aggregate_run.enter_mtu(args.mtu)
    table(loads.read(args.sources) if args.sources else make(args))


main()
