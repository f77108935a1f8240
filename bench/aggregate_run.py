"""Processes for the scripts in this folder: a server, aggregators, `weft load`, and their costs.

A span is the difference of two readings of all processes: the CPU clocks of server and aggregators, and
their /metrics. It begins when `weft load` reports that it measures, and ends before that does; no queries are
made in between. CPU times are of whole processes; for a server with one shard this is almost only its thread.
With `counted` processes run under valgrind's callgrind, and a span also has their instructions in user mode.
"""
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request


# callgrind counts each byte that `rep movsb` or `rep stosb` copies as an instruction.
NO_REP = {"GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=1000000000:"
                            "glibc.cpu.x86_rep_stosb_threshold=1000000000"}
# The functions whose time is PS_proc: of a push, and of a sum.
PS_PROC = ("weft_shard_push_take", "received")


def cpu_s(pid):
    """CPU clock of all threads of a process, as numbered by clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | 2)


def cap_make(name, share):
    """A Linux control group limited to this share of one processor; None if that is refused."""
    for root, one, text in (("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", f"{int(share * 20000)}"),
                            ("/sys/fs/cgroup", "cpu.max", f"{int(share * 20000)} 20000")):
        path = f"{root}/{name}"
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            if one == "cpu.cfs_quota_us":
                with open(f"{path}/cpu.cfs_period_us", "w", encoding="ascii") as file:
                    file.write("20000")
            with open(f"{path}/{one}", "w", encoding="ascii") as file:
                file.write(text)
            return path
        except OSError:
            os.rmdir(path)
    return None


def enter_mtu(mtu):
    """Run this program again in a network namespace whose loopback interface has this MTU."""
    if mtu != 65536 and os.environ.get("WEFT_BENCH_MTU") is None:
        os.environ["WEFT_BENCH_MTU"] = str(mtu)
        os.execvp("unshare", ["unshare", "-n", "sh", "-c", f"ip link set lo mtu {mtu} up && exec \"$@\"",
                              "sh", sys.executable, *sys.argv])


class Job:
    """One server with one shard, and the processes started with it. Ends all of them, by pid."""

    def __init__(self, weft, workers, server_words=(), enter=None, cap=None, counted=()):
        """counted: "server", "boxes" or both: these processes count their instructions in spans."""
        self.weft, self.workers, self.enter = weft, workers, enter or (lambda host: [])
        self.counted = counted
        self.folder = tempfile.mkdtemp(prefix="weft-aggregate-")
        self.key = f"{self.folder}/job.key"
        self.count = 0
        subprocess.run([weft, "keygen", self.key], check=True, stdout=subprocess.DEVNULL)
        self.boxes, self.box_addresses, self.box_metrics = [], [], []
        self.server, lines = self.start(
            ["server", "--port", "0", "--workers", str(workers), "--metrics", "0", *server_words],
            "server" in counted)
        if cap is not None:
            with open(f"{cap}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(self.server.pid))
        self.address = re.search(r"^shard 0.*: (\S+)$", lines, re.M)[1]
        self.metrics = re.search(r"^metrics: (\S+)$", lines, re.M)[1]

    def start(self, words, is_counted=False):
        self.count += 1
        path = f"{self.folder}/{self.count}"
        before = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no",
                  "--separate-threads=yes",
                  f"--callgrind-out-file={path}.callgrind"] if is_counted else []
        with open(f"{path}.out", "w", encoding="utf-8") as out, \
                open(f"{path}.err", "w", encoding="utf-8") as err:
            process = subprocess.Popen([*before, self.weft, *words, "--key-file", self.key],
                                       stdout=out, stderr=err,
                                       env=os.environ | (NO_REP if is_counted else {}))
        process.path, process.is_counted = path, is_counted
        for _ in range(6000 if is_counted else 1000):
            with open(f"{path}.out", encoding="utf-8") as out:
                text = out.read()
            if "metrics: " in text and text.endswith("\n"):
                return process, text
            if process.poll() is not None:
                break
            time.sleep(0.01)
        with open(f"{path}.err", encoding="utf-8") as err:
            sys.exit(f"{' '.join(words)}: {err.read()}")

    def box(self, number, words):
        process, lines = self.start(
            ["aggregate", "--listen", "127.0.0.1:0", "--number", str(number), "--servers",
             self.address, "--workers", str(self.workers), "--metrics", "0", *words],
            "boxes" in self.counted)
        self.boxes.append(process)
        self.box_addresses.append(re.search(r"^shard 0: (\S+)$", lines, re.M)[1])
        self.box_metrics.append(re.search(r"^metrics: (\S+)$", lines, re.M)[1])

    def instructions(self, action):
        """action: on, off, or dump: instructions of each process's busiest thread since the last dump (the
        server's, the boxes', and those of PS_PROC)."""
        counts = []
        for process in [self.server, *self.boxes]:
            if process.is_counted:
                words = ["--dump"] if action == "dump" else [f"--instr={action}"]
                subprocess.run(["callgrind_control", *words, str(process.pid)], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            counts.append(dumped(process.path) if action == "dump" and process.is_counted else (0, 0))
        return counts[0][0], sum(count for count, _ in counts[1:]), counts[0][1]

    def reading(self):
        """Counters first, clocks last, within a millisecond. Instructions are before both, at the beginning
        as at the end, so that the delays between them cancel out."""
        counts = self.instructions("dump") if self.counted else (0, 0, 0)
        read = {"server": samples(self.metrics), "boxes": [samples(at) for at in self.box_metrics]}
        read["server_instructions"], read["boxes_instructions"], read["ps_proc_instructions"] = counts
        read["server_cpu_s"] = cpu_s(self.server.pid)
        read["boxes_cpu_s"] = [cpu_s(box.pid) for box in self.boxes]
        read["at_s"] = time.monotonic()
        return read

    def load(self, words, seconds, warmup):
        """Run `weft load` for this many seconds: (its JSON, the span)."""
        vias = [word for at in self.box_addresses for word in ("--via", at)]
        command = [self.weft, "load", "--servers", self.address, "--server-pid",
                   str(self.server.pid), "--key-file", self.key, "--workers", str(self.workers),
                   *vias, *words, "--seconds", str(seconds), "--warmup", str(warmup), "--json"]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = ""
        for line in load.stderr:
            said += line
            if line.startswith("measuring"):
                break
        began = time.monotonic()
        first = self.reading() if load.poll() is None else None
        took = time.monotonic() - began
        time.sleep(max(0.2, seconds - 0.3 - 3 * took))  # the next reading may take twice as long
        last = self.reading() if load.poll() is None else None
        out, err = load.communicate()
        if load.returncode != 0 or first is None or last is None:
            sys.exit(f"{' '.join(command)}: {said}{err}")
        return json.loads(out), span(first, last)

    def fill(self, words, keys):
        """Create nearly all rows, by pushes of even popularity, so that spans create few. Call before box()."""
        for _ in range(3):
            _, made = self.load([*words, "--keys", str(keys), "--zipf-top", f"20000:{1.05 * 20000 / keys}",
                                 "--rows", "4096", "--in-flight", "2"], 4, 0.1)
            if made["rows_created"] < 0.03 * made["updates"]:
                return

    def end(self):
        for process in [*self.boxes, self.server]:
            process.terminate()
        for process in [*self.boxes, self.server]:
            process.wait()
        shutil.rmtree(self.folder)


def called(text, names):
    """Instructions of all calls of these functions, and of what they call, in a file of callgrind."""
    total, is_call, is_cost = 0, False, False
    numbers = {number for number, name in re.findall(r"^c?fn=(\(\d+\)) (\S+)$", text, re.M) if name in names}
    for line in text.splitlines():
        if line.startswith("cfn="):
            is_call = line[4:].split(" ")[0] in numbers
        elif line.startswith("calls="):
            is_cost = is_call
        elif is_cost:
            total += int(line.split()[1])
            is_cost = False
    return total


def dumped(path):
    """Instructions of the busiest thread in the newest files of callgrind, PATH.callgrind.DUMP-THREAD, and those
    of PS_PROC."""
    files = [(int(name.rsplit(".", 1)[1].split("-")[0]), name) for name in glob.glob(f"{path}.callgrind.*-*")]
    counts = [(0, 0)]
    for number, name in files:
        if number == max(files)[0]:
            with open(name, encoding="utf-8", errors="replace") as file:
                text = file.read()
            totals = map(int, re.findall(r"^totals: (\d+)", text, re.M))
            counts.append((max(totals, default=0), called(text, PS_PROC)))
    return max(counts)


def samples(url):
    """/metrics: name with labels, except labels that differ between runs -> value."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    read = {}
    for line in text.splitlines():
        if line.startswith("#") or "_bucket{" in line:
            continue
        name, value = line.rsplit(" ", 1)
        read[re.sub(r'shard="0",?', "", name).replace("{}", "")] = float(value)
    return read


def difference(first, last):
    return {name: last[name] - value for name, value in first.items() if name in last}


def span(first, last):
    server = difference(first["server"], last["server"])
    boxes = [difference(a, b) for a, b in zip(first["boxes"], last["boxes"])]
    return {
        "seconds": last["at_s"] - first["at_s"],
        "server_cpu_s": last["server_cpu_s"] - first["server_cpu_s"],
        "box_cpu_s": sum(last["boxes_cpu_s"]) - sum(first["boxes_cpu_s"]),
        "server_instructions": last["server_instructions"],
        "box_instructions": last["boxes_instructions"],
        "ps_proc_instructions": last["ps_proc_instructions"],
        "updates": server["weft_updates_applied_total"],
        **{name: server.get(f"weft_{name}_total", 0)
           for name in ("aggregates", "aggregate_pushes", "aggregate_rows", "aggregate_updates")},
        "pushes": server['weft_requests_total{kind="push"}'],
        "ps_proc_s": server['weft_served_latency_seconds_sum{kind="push",part="ps_proc"}'],
        "connections": last["server"]["weft_peers_connected"],
        "rows_created": server["weft_rows_created_total"],
        "datagrams": server["weft_datagrams_received_total"],
        "datagrams_sent": server["weft_datagrams_sent_total"],
        **{name: sum(box.get(f"weft_aggregator_{name}_total", 0) for box in boxes)
           for name in ("rows_in", "rows_out", "pushes_in", "pushes_absorbed", "pushes_direct",
                        "aggregates_out", "flushed_complete", "flushed_age", "flushed_count",
                        "flushed_memory", "bytes_in", "bytes_out")},
    }


def removed(run):
    """Share of the updates removed by combining."""
    return 1 - run["rows_out"] / run["rows_in"] if run["rows_in"] else 0


def spread(values):
    return statistics.median(values), min(values), max(values)
