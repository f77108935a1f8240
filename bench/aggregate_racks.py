#!/usr/bin/env python3
"""Rack aggregators below an oversubscribed core: bytes through the core, in both directions, and the time of a
step.

    bench/aggregate_racks.py [--weft build/weft] [--racks 4] [--rack-workers 4] [--rate 100mbit]
                             [--core-rate 100mbit] [--box-rate RATE] [--epochs 5] [--batch 256] [--worker-words "..."]
                             [--repetitions 3] [--out build/bench/aggregate_racks.jsonl]
    bench/aggregate_racks.py --from build/bench/aggregate_racks.jsonl

A lab (requires root) with one spine and racks + 1 leaves. The server is alone on leaf 0; each other leaf has its
workers and one host with `weft aggregate`, which the workers use, or not (direct). Both configurations take
turns. With the defaults a rack's four links of 100 Mbit/s share 100 Mbit/s to the spine: 4:1. The job is that of
`weft worker`, BSP, with the shipped data. Core bytes are those that the spine's ports sent and received on the
links to the racks' leaves during the whole job (each byte between a rack and the server counts once; Ethernet
headers included), per direction. Step time: from the first to the last epoch that rank 0 reports, divided by the
steps between.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import aggregate_run
import loads

LAB = f"aggracks{os.getpid()}"


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--racks", type=int, default=4)
    parser.add_argument("--rack-workers", type=int, default=4)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--core-rate", default="100mbit")
    parser.add_argument("--box-rate", help="of the aggregators' links (default: --rate)")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--worker-words", default="", help="more options of weft worker")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", default="build/bench/aggregate_racks.jsonl")
    parser.add_argument("--from", dest="sources", nargs="+", metavar="FILE",
                        help="read these runs instead of making them")
    return parser.parse_args()


class Rig:
    def __init__(self, args):
        self.args, self.weft = args, os.path.abspath(args.weft)
        self.leaf_hosts = args.rack_workers + 1
        self.workers = args.racks * args.rack_workers
        boxes = [(rack + 1) * self.leaf_hosts + args.rack_workers for rack in range(args.racks)]
        rates = [word for host in boxes if args.box_rate for way in ("up", "down")
                 for word in (f"--{way}link", f"{host}={args.box_rate}")]
        subprocess.run([self.weft, "lab", "up", LAB, "--until-pid", str(os.getpid()), "--topology",
                        "spine-leaf", "--spines", "1", "--leaves", str(args.racks + 1), "--hosts",
                        str(self.leaf_hosts), "--rate",
                        args.rate, "--core-rate", args.core_rate, *rates], check=True,
                       stdout=subprocess.DEVNULL)

    def down(self):
        subprocess.run([self.weft, "lab", "down", LAB], check=False, stdout=subprocess.DEVNULL)

    def inside(self, host):
        return [self.weft, "lab", "exec", LAB, str(host), "--"]

    def start(self, host, words, path):
        with open(path, "w", encoding="utf-8") as out:
            return subprocess.Popen([*self.inside(host), self.weft, *words], stdout=out, stderr=out)

    def core_bytes(self):
        """(bytes to the racks, bytes from them) of the spine's ports to the racks' leaves."""
        files = [f"/sys/class/net/leaf{leaf}/statistics/{way}_bytes" for way in ("tx", "rx")
                 for leaf in range(1, self.args.racks + 1)]
        read = subprocess.run([*self.inside("spine0"), "cat", *files], check=True,
                              capture_output=True, text=True).stdout.split()
        values = list(map(int, read))
        return sum(values[:self.args.racks]), sum(values[self.args.racks:])

    def address(self, host):
        return f"10.77.{(host + 1) // 256}.{(host + 1) % 256}"


def await_text(path, text):
    for _ in range(1500):
        with open(path, encoding="utf-8") as file:
            if text in file.read():
                return
        time.sleep(0.02)
    with open(path, encoding="utf-8") as file:
        sys.exit(f"{path}: {file.read()}")


def run(rig, by_boxes):
    args = rig.args
    folder = tempfile.mkdtemp(prefix="weft-racks-")
    key = f"{folder}/key"
    subprocess.run([rig.weft, "keygen", key], check=True, stdout=subprocess.DEVNULL)
    shared = ["--key-file", key]
    server_at = f"{rig.address(0)}:7700"
    server = rig.start(0, ["server", "--host", rig.address(0), "--port", "7700", "--workers",
                           str(rig.workers), "--aggregators", str(args.racks), *shared],
                       f"{folder}/server")
    await_text(f"{folder}/server", "shard 0")
    boxes, workers = [], []
    for rack in range(args.racks if by_boxes else 0):
        host = (rack + 1) * rig.leaf_hosts + args.rack_workers
        boxes.append(rig.start(host, ["aggregate", "--listen", f"{rig.address(host)}:7800",
                                      "--servers", server_at, "--number", str(rack), "--workers",
                                      str(rig.workers), "--flush-age-us", "400000", "--json",
                                      *shared], f"{folder}/box{rack}"))
        await_text(f"{folder}/box{rack}", "shard 0")
    before = rig.core_bytes()
    for rank in range(rig.workers):
        rack, place = divmod(rank, args.rack_workers)
        first = (rack + 1) * rig.leaf_hosts
        via = ["--via", f"{rig.address(first + args.rack_workers)}:7800"] if by_boxes else []
        words = ["worker", "--servers", server_at, "--workers", str(rig.workers), "--rank",
                 str(rank), "--epochs", str(args.epochs), "--batch", str(args.batch), "--loss-bound",
                 "0", *shlex.split(args.worker_words), *via, *shared]
        if rank == 0:
            first_worker = subprocess.Popen([*rig.inside(first), rig.weft, *words],
                                            stdout=subprocess.PIPE, text=True)
        else:
            workers.append(rig.start(first + place, words, f"{folder}/worker{rank}"))
    epochs, said = [], {}
    for line in first_worker.stdout:
        event = json.loads(line)
        said[event["event"]] = event
        if event["event"] == "epoch":
            epochs.append(time.monotonic())
    bad = [worker.wait() for worker in [first_worker, *workers]]
    after = rig.core_bytes()
    absorbed = {}
    for number, box in enumerate(boxes):
        box.terminate()
        box.wait()
        with open(f"{folder}/box{number}", encoding="utf-8") as file:
            counters = json.loads(file.read().split("\n", 1)[1])
        absorbed = {name: absorbed.get(name, 0) + value for name, value in counters.items()}
    server.terminate()
    server.wait()
    if any(bad) or len(epochs) < 2:
        sys.exit(f"a worker failed; see {folder}")
    subprocess.run(["rm", "-r", folder], check=True)
    steps = said["done"]["counters"]["client_clocks"] / args.epochs
    return {"boxes": by_boxes, "to_racks": after[0] - before[0], "from_racks": after[1] - before[1],
            "step_ms": 1e3 * (epochs[-1] - epochs[0]) / (len(epochs) - 1) / steps, "steps": steps,
            "test_logloss": said["test"]["test_logloss"],
            "train_logloss": said["epoch"]["train_logloss"],
            **{f"box_{name}": absorbed.get(name, 0)
               for name in ("pushes_in", "pushes_absorbed", "rows_in", "rows_out", "pulls_in",
                            "pulls_answered", "pull_rows_in", "pull_rows_fetched")}}


def make(args):
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    runs = []
    rig = Rig(args)
    try:
        with open(args.out, "w", encoding="utf-8") as out:
            for _ in range(args.repetitions):
                for by_boxes in (False, True):
                    runs.append(run(rig, by_boxes))
                    out.write(json.dumps(runs[-1]) + "\n")
                    out.flush()
    finally:
        rig.down()
    return runs


def table(runs):
    ways = {boxes: [run for run in runs if run["boxes"] == boxes] for boxes in (False, True)}
    for boxes, some in ways.items():
        print(f"{'by rack aggregators' if boxes else 'direct'}, n = {len(some)}")
        for name in ("from_racks", "to_racks", "step_ms", "test_logloss"):
            middle, least, most = aggregate_run.spread([run[name] for run in some])
            print(f"  {name:13} {middle:14.6g}  ({least:.6g} to {most:.6g})")
    for name in ("from_racks", "to_racks", "step_ms"):
        direct, boxes = (statistics.median(run[name] for run in some) for some in ways.values())
        print(f"{name}: direct / by aggregators = {direct / boxes:.2f}")
    last = ways[True][-1]
    print({name: value for name, value in last.items() if name.startswith("box_")})


def main():
    args = options()
    table(loads.read(args.sources) if args.sources else make(args))


main()
