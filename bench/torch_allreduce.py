#!/usr/bin/env python3
"""all_reduce through torch.distributed between the hosts of a lab: weft beside Gloo, in turn.

    weft lab run --hosts 8 --rate 50mbit --buffer 64kb --loss 0.01 -- \\
        python3 bench/torch_allreduce.py --rate-mbps 50

Each repetition starts every backend once, with a process on each host, and times rounds of all_reduce of
each size; the time of a round is that of the slowest rank. The result is the median over rounds and
repetitions, in ms, and over the ideal of docs/COLLECTIVES.md (weft's headers). Backends are

    weft          as init_process_group makes it, authenticated
    weft:0.1      the hook's all_reduce with a loss bound and error feedback
    gloo          with the host's TCP
    gloo:bbr:rto5 with this congestion control and a minimum RTO of 5 ms on all routes of the hosts

Without a lab (no WEFT_LAB) it runs on loopback, where Gloo's TCP is the host's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backends", default="weft,weft:0.1,gloo,gloo:bbr:rto5,gloo:cubic:rto5")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--sizes", default="200000,1000000,4000000", help="bytes, comma between")
    parser.add_argument("--rounds", type=int, default=5, help="of each size and repetition")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rate-mbps", type=float, default=0.0, help="of the links, for the ideal")
    parser.add_argument("--rtt-us", type=float, default=100.0, help="for the ideal")
    parser.add_argument("--give-up", type=float, default=180.0, help="seconds for one backend")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- a rank ----


def rank_main(a):
    import torch
    import torch.distributed as dist

    sys.path.insert(0, os.path.join(ROOT, "python"))
    import weft.torch
    from weft.coll import Feedback

    torch.set_num_threads(1)
    name, _, bound = a.backend.partition(":")
    store = dist.FileStore(os.path.join(a.folder, "store"), a.ranks)
    dist.init_process_group(name, store=store, rank=a.rank, world_size=a.ranks)
    times = {}
    for size in map(int, a.sizes.split(",")):
        tensor = torch.ones(size // 4)
        feedback = Feedback(size // 4) if name == "weft" and bound else None
        times[size] = []
        for i in range(a.rounds + 1):  # the first is not counted
            tensor.fill_(1)
            dist.barrier()
            begin = time.perf_counter()
            if feedback:
                weft.torch.all_reduce(tensor, bound=float(bound), feedback=feedback)
            else:
                dist.all_reduce(tensor)
            took = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
            if not feedback and tensor[-1].item() != a.ranks:
                sys.exit("the sum is wrong")
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            times[size] += [took.item()] if i else []
    dist.barrier()
    if a.rank == 0:
        with open(os.path.join(a.folder, "times"), "w") as file:
            json.dump(times, file)
    dist.destroy_process_group()


# ---- all of them ----


WEFT = os.environ.get("WEFT_BIN", os.path.join(ROOT, "build", "weft"))


def on(host, *command):
    lab = os.environ.get("WEFT_LAB")
    return [WEFT, "lab", "exec", lab, str(host), "--", *command] if lab else list(command)


def out_of(host, script):
    return subprocess.run(
        on(host, "sh", "-c", script), check=True, capture_output=True, text=True
    ).stdout


def tune(a, backend):
    """The TCP of all hosts; what no backend names is the kernel's default."""
    if not os.environ.get("WEFT_LAB"):
        return
    _, cc, rto = (backend.split(":") + ["", ""])[:3] if backend.startswith("gloo") else ("", "", "")
    for host in range(a.ranks):
        out_of(
            host,
            f"sysctl -qw net.ipv4.tcp_congestion_control={cc or 'cubic'};"
            "ip -o route show | while read -r route; do"
            "  route=$(echo \"$route\" | sed 's/rto_min lock [^ ]*//; s/rto_min [^ ]*//');"
            f" ip route replace $route {'rto_min ' + rto[3:] + 'ms' if rto else ''}; done",
        )


def addresses(a):
    if not os.environ.get("WEFT_LAB"):
        return [("127.0.0.1", "lo")] * a.ranks
    found = []
    for host in range(a.ranks):
        line = out_of(host, "ip -o -4 address show scope global").split()
        found.append((line[3].split("/")[0], line[1]))
    return found


def once(a, backend, hosts, key):
    """One job. -> {size: [seconds]}, or None where it did not end in time"""
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank, (address, interface) in enumerate(hosts):
            environment = {
                "WEFT_HOST": address,
                "WEFT_KEY_FILE": key,
                "GLOO_SOCKET_IFNAME": interface,
                "WEFT_LIBRARY": os.environ.get(
                    "WEFT_LIBRARY", os.path.join(ROOT, "build", "libweft.so.0")
                ),
            }
            settings = [f"{name}={value}" for name, value in environment.items()]
            command = [sys.executable, os.path.abspath(__file__), "--rank", str(rank)]
            command += ["--folder", folder, "--backend", backend, "--sizes", a.sizes]
            command += ["--ranks", str(a.ranks), "--rounds", str(a.rounds)]
            processes.append(
                subprocess.Popen(on(rank, "env", *settings, *command), stderr=subprocess.DEVNULL)
            )
        end = time.monotonic() + a.give_up
        try:
            for process in processes:
                process.wait(max(0.1, end - time.monotonic()))
            with open(os.path.join(folder, "times")) as file:
                return {int(size): values for size, values in json.load(file).items()}
        except (subprocess.TimeoutExpired, FileNotFoundError):
            return None
        finally:
            for process in processes:
                if process.poll() is None:
                    process.terminate()
                process.wait()


def ideal_s(a, size):
    part = -(-size // a.ranks)
    wire = 2 * (a.ranks - 1) * (part + 78 * -(-part // 1408)) * 8
    return wire / (a.rate_mbps * 1e6) + 2 * a.rtt_us / 1e6 if a.rate_mbps else 0.0


def main():
    a = parsed()
    if a.rank is not None:
        rank_main(a)
        return
    backends, hosts = a.backends.split(","), addresses(a)
    times = {backend: {} for backend in backends}
    with tempfile.TemporaryDirectory() as folder:
        key = os.path.join(folder, "job.key")
        subprocess.run([WEFT, "keygen", key], check=True, capture_output=True)
        for repetition in range(a.repetitions):
            for backend in backends:
                tune(a, backend)
                got = once(a, backend, hosts, key)
                print(
                    f"repetition {repetition + 1}, {backend}: "
                    + ("done" if got else f"not done within {a.give_up:g} s, or failed"),
                    file=sys.stderr,
                )
                for size, values in (got or {}).items():
                    times[backend].setdefault(size, []).extend(values)
        tune(a, "")
    if a.json:
        print(json.dumps(times))
        return
    print(f"{'bytes':>10} {'ideal ms':>9}  " + "  ".join(f"{b:>16}" for b in backends))
    for size in map(int, a.sizes.split(",")):
        ideal, cells = ideal_s(a, size), []
        for backend in backends:
            values = times[backend].get(size)
            middle = statistics.median(values) if values else 0.0
            ratio = f" {middle / ideal:5.2f}" if values and ideal else ""
            cells.append(f"{middle * 1e3:.1f}{ratio}" if values else "-")
        print(f"{size:>10} {ideal * 1e3:>9.1f}  " + "  ".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
