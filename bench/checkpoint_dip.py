#!/usr/bin/env python3
"""A checkpoint under load: consistency, cost, and restoring on another number of shards.

One worker fills a BSP table, then pushes continuously: in every clock pairs of rows, +1 to one row
and -1 to the other, on any shards. So the sum of each pair is zero at the end of every clock. In a
torn checkpoint - shards saved at different clocks, or a row saved after the next clock had changed
it - some sums are not zero. Meanwhile SIGUSR1 requests a checkpoint. Output: the server's memory
per row; rows per second before, during and after the checkpoint, and in the slowest window of
0.1 s; CPU use of the machine, of the server's threads and of the worker; then a check of the pairs
after restoring on twice and on half as many shards.

    WEFT_BIN=build/weft PYTHONPATH=python bench/checkpoint_dip.py --rows 10000000 --folder /tmp/dip
    ... --check                      only the second part: restore from the folder, and check

Loopback, security none, all on one machine: the thread that writes the checkpoint competes with the
shards for processors, which is included in the results. bench/NOTEBOOK.md has results.
"""

import argparse
import collections
import json
import os
import signal
import subprocess
import time

import numpy as np

import weft
from weft import checkpoint

DIM = 16
BATCH = 65536
WINDOW_S = 0.1
BATCHES = 32  # drawn in advance and used in turn
TABLE = {"number": 0, "dim": DIM, "learning_rate": -1.0, "consistency": "bsp", "name": "pairs"}


def cpu_times(pid):
    """CPU seconds: of the machine by state, of a process by thread, and of this process."""
    tick = os.sysconf("SC_CLK_TCK")
    with open("/proc/stat") as file:
        fields = [int(word) / tick for word in file.readline().split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = fields
    times = {"user": user + nice, "system": system + irq + softirq, "idle": idle + iowait,
             "steal": steal}
    for task in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
        try:
            with open(f"/proc/{pid}/task/{task}/stat") as file:
                words = file.read().rpartition(")")[2].split()
        except OSError:  # the thread has ended
            continue
        times[f"thread {task - pid}"] = [int(words[11]) / tick, int(words[12]) / tick]
    times["worker"] = list(os.times()[:2])
    return times


def cpu_share(before, after, seconds):
    """Processors used between two readings; for a thread in user and in kernel mode."""
    def share(name):
        if isinstance(after[name], list):
            then = before.get(name, [0, 0])
            return [round((b - a) / seconds, 2) for a, b in zip(then, after[name])]
        return round((after[name] - before[name]) / seconds, 2)
    return {name: share(name) for name in after}


class Server:
    """`weft server` with all shards in one process, and one worker's connection to it."""

    def __init__(self, options, shards, *arguments):
        rows = options.rows // shards * 9 // 8 + 4096  # hashing distributes rows unevenly
        command = [os.environ.get("WEFT_BIN", "weft"), "server", "--security", "none"]
        command += ["--port", "0", "--workers", "1", "--shards-per-server", str(shards)]
        command += ["--rows-max", str(rows), "--checkpoint", options.folder]
        command += ["--checkpoint-every", "36000s", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines = [self.process.stdout.readline() for _ in range(shards)]
        servers = ",".join(line.split(": ")[1].strip() for line in lines)
        self.ps = weft.connect(servers, security="none", worker=0, workers=1, dim_max=DIM,
                               rows_max=BATCH, ops_max=4, peer_timeout_ns=120 * 10**9)
        self.table = self.ps.table(**TABLE)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self):
        self.ps.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def ids_of(first, count):
    """Ids of rows by number: spread over all u64, so over the shards."""
    return np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def fill(server, rows):
    """One push to every row: each pair starts as +1, -1."""
    values = np.ones((BATCH, DIM), dtype=np.float32)
    values[1::2] = -1
    begin = time.monotonic()
    for first in range(0, rows, BATCH):
        n = min(BATCH, rows - first)
        server.table.push(ids_of(first, n), values[:n])
        server.table.clock()
    server.ps.flush()
    return rows / (time.monotonic() - begin)


class Load:
    """Push pairs, up to three pushes in flight, and record when pushes were done."""

    def __init__(self, server, rows, batch):
        draw = np.random.default_rng(1)
        self.server = server
        self.batches = []
        for _ in range(BATCHES):
            first = draw.choice(rows // 2, size=batch // 2, replace=False).astype(np.uint64) * 2
            ids = np.empty(batch, dtype=np.uint64)
            ids[0::2] = first
            ids[1::2] = first + 1
            self.batches.append(ids * np.uint64(0x9E3779B97F4A7C15))
        self.values = np.ones((batch, DIM), dtype=np.float32)
        self.values[1::2] = -1
        self.ops = collections.deque()
        self.turn = 0
        self.done = []  # (time, rows)

    def step(self):
        self.ops.append(
            self.server.table.push_async(self.batches[self.turn % BATCHES], self.values))
        self.server.table.clock()
        self.turn += 1
        if len(self.ops) == 3:
            self.ops.popleft().wait()
            self.done.append((time.monotonic(), len(self.values)))

    def rate(self, begin, end):
        """Rows per second, and the slowest window."""
        times = np.array([t for t, _ in self.done if begin <= t < end])
        edges = np.arange(begin, max(end, begin + 2 * WINDOW_S), WINDOW_S)
        counts, _ = np.histogram(times, edges)
        size = len(self.values)
        return len(times) * size / (end - begin), counts.min() * size / WINDOW_S


def load(options):
    server = Server(options, options.shards)
    before = server.resident_bytes()
    filled = fill(server, options.rows)
    row_bytes = (server.resident_bytes() - before) / options.rows
    work = Load(server, options.rows, min(options.batch, options.rows // 2 * 2))
    pid = server.process.pid
    cpu = [cpu_times(pid)]
    begin = time.monotonic()
    while time.monotonic() < begin + options.seconds or len(work.done) < 4:
        work.step()
    known = checkpoint.numbers(options.folder)
    cpu.append(cpu_times(pid))
    asked = time.monotonic()
    server.process.send_signal(signal.SIGUSR1)
    while checkpoint.numbers(options.folder) == known:
        work.step()
        if time.monotonic() > asked + 600:
            raise SystemExit("no checkpoint was made")
    written = time.monotonic()
    cpu.append(cpu_times(pid))
    most = server.resident_bytes()
    while time.monotonic() < written + options.seconds:
        work.step()
    quiet, quiet_least = work.rate(begin, asked)
    during, during_least = work.rate(asked, written)
    after, _ = work.rate(written, time.monotonic())
    halves = [work.rate(t, t + 0.5)[0] for t in np.arange(asked, written - 0.5, 0.5)]
    server.stop()
    files = [os.path.join(options.folder, name) for name in os.listdir(options.folder)]
    print(json.dumps({
        "rows": options.rows, "shards": options.shards, "filled_rows_per_s": round(filled),
        "payload_bytes_per_row": DIM * 4 + 8, "memory_bytes_per_row": round(row_bytes, 1),
        "file_bytes_per_row": round(sum(map(os.path.getsize, files)) / options.rows, 1),
        "checkpoint_s": round(written - asked, 3),
        "memory_while_written_bytes_per_row": round((most - before) / options.rows, 1),
        "rows_per_s": {"before": round(quiet), "during": round(during), "after": round(after)},
        "rows_per_s_of_half_seconds": [round(rate) for rate in halves],
        "processors": {"before": cpu_share(cpu[0], cpu[1], asked - begin),
                       "during": cpu_share(cpu[1], cpu[2], written - asked)},
        "slowest_window": {"before": round(quiet_least), "during": round(during_least)},
        "during_over_before": round(during / quiet, 3)}), flush=True)


def check(options):
    """Check all pairs, on twice and on half as many shards."""
    for shards in (2 * options.shards, max(1, options.shards // 2)):
        server = Server(options, shards, "--restore")
        torn = more = 0
        for first in range(0, options.rows, BATCH):
            rows = server.table.pull(ids_of(first, min(BATCH, options.rows - first)))
            torn += int((rows[0::2] + rows[1::2] != 0).any(axis=1).sum())
            more += int((rows[0::2, 0] != 1).sum())
        server.stop()
        print(json.dumps({"restored_on_shards": shards, "pairs": options.rows // 2,
                          "pairs_changed_since_filled": more, "torn": torn}), flush=True)
        if torn or not more:
            raise SystemExit("the checkpoint is torn" if torn else "nothing was pushed before it")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", required=True,
                        help="of the checkpoints; must not exist, except with --check")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--batch", type=int, default=BATCH, help="rows in a clock")
    parser.add_argument("--seconds", type=float, default=5,
                        help="of load before and after the checkpoint")
    parser.add_argument("--check", action="store_true", help="only restore and check")
    parser.add_argument("--no-check", action="store_true")
    options = parser.parse_args()
    options.rows -= options.rows % 2
    if not options.check:
        load(options)
    if not options.no_check:
        check(options)


main()
