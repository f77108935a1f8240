#!/usr/bin/env python3
"""all_reduce through torch.distributed between the hosts of a lab: weft beside Gloo, in turn.

    weft lab run --hosts 8 --rate 50mbit --buffer 64kb --loss 0.01 -- \\
        python3 bench/torch_allreduce.py --rate-mbps 50

Each repetition starts every backend once, with a new process on each host, and times rounds of all_reduce of
each size; the time of a round is that of the slowest rank. The result is the median over rounds and
repetitions, in ms, and over the ideal of docs/COLLECTIVES.md (weft's headers). Backends are

    weft          with the defaults of init_process_group, authenticated
    weft:0.1      the hook's all_reduce with a loss bound and error feedback
    box           weft through an aggregation box, see --box
    gloo          with the host's TCP
    gloo:bbr:rto5 with this congestion control and a minimum RTO of 5 ms on all routes of the hosts
    openmpi       bench/mpi_allreduce.c over TCP, only on loopback (requires mpicc and mpirun)

Without a lab (no WEFT_LAB) it runs on loopback, where Gloo's TCP is the host's:

    python3 bench/torch_allreduce.py --ranks 2 --backends weft,gloo,openmpi \\
        --sizes 1024,65536,1048576,4194304 --bytes-each 20000000 --plot sweep.png

Sums of the ranks and through a box in turn (docs/COLLECTIVES.md, "Through an aggregation box"); --box host
starts the box's process on the host after those of the ranks:

    weft lab run --hosts 8 --rate 1gbit --aggregate xdp -- \\
        python3 bench/torch_allreduce.py --backends weft,box --box xdp --rate-mbps 1000
    weft lab run --hosts 9 --rate 1gbit -- \\
        python3 bench/torch_allreduce.py --backends weft,box --box host --rate-mbps 1000

--bytes-each makes more rounds of small vectors. --samples stores the times; --from plots and prints them
later.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch_ranks
from torch_ranks import ROOT



def parsed():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backends", default="weft,weft:0.1,gloo,gloo:bbr:rto5,gloo:cubic:rto5")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--sizes", default="200000,1000000,4000000", help="bytes, comma between")
    parser.add_argument("--rounds", type=int, default=5, help="of each size and repetition")
    parser.add_argument("--bytes-each", type=float, default=0.0,
                        help="more rounds than --rounds, up to 300, until this many bytes are transferred")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rate-mbps", type=float, default=0.0, help="of the links, for the ideal")
    parser.add_argument("--rtt-us", type=float, default=100.0, help="for the ideal")
    parser.add_argument("--box", metavar="xdp|host", help="for the backend box: that of the lab's leaf, which "
                        "sums blocks of floats as integers, or a process, which sums floats")
    parser.add_argument("--box-bytes-min", type=int, default=262144, help="smaller vectors do not go through it")
    parser.add_argument("--timeout-s", type=float, default=180.0, help="seconds for one backend")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--samples", metavar="FILE", help="write all times there, as --json prints them")
    parser.add_argument("--from", dest="from_", metavar="FILE", help="of --samples; measures nothing")
    parser.add_argument("--plot", metavar="PNG", help="draw them with gnuplot")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def rounds_of(a, size):
    return max(a.rounds, min(300, int(a.bytes_each / size)))


# ---- an aggregation box ----

def box_address(a):
    lab = os.environ.get("WEFT_LAB")
    if a.box == "xdp":
        return "10.77.255.254:7701"
    return f"10.77.0.{a.ranks + 1}:7701" if lab else "127.0.0.1:7701"


def box_environment(a):
    form = "WEFT_BOX_BLOCK_FLOAT" if a.box == "xdp" else "WEFT_BOX_FLOAT32"
    return {"WEFT_BOX": box_address(a), "WEFT_BOX_INSECURE": "1",
            "WEFT_BOX_BYTES_MIN": str(a.box_bytes_min), form: "1"}


@contextlib.contextmanager
def box_of(a):
    """The box while the ranks run."""
    if a.box == "xdp":
        lab = os.environ["WEFT_LAB"]
        subprocess.run([torch_ranks.WEFT, "lab", "box", lab, "--members", str(a.ranks), "--reset"],
                       check=True, stdout=subprocess.DEVNULL)
    if a.box != "host":
        yield
        return
    command = [torch_ranks.WEFT, "aggregate", "--dense", box_address(a), "--members", str(a.ranks),
               "--security", "none", "--insecure-network", "--float32"]
    with subprocess.Popen(torch_ranks.on(a.ranks, *command), stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()  # it listens
            yield
        finally:
            process.terminate()


# ---- a rank ----


def measured(a, backend, number):
    """One backend's times, the slowest rank's. -> {size: [seconds]}"""
    import torch
    import torch.distributed as dist
    import weft.torch
    from weft.coll import Feedback

    name, _, bound = backend.partition(":")
    if name == "box":
        os.environ.update(box_environment(a))
        name = "weft"
    store = dist.FileStore(os.path.join(a.folder, f"store{number}"), a.ranks)
    dist.init_process_group(name, store=store, rank=a.rank, world_size=a.ranks)
    times = {}
    for size in map(int, a.sizes.split(",")):
        tensor = torch.ones(size // 4)
        feedback = Feedback(size // 4) if name == "weft" and bound else None
        times[size] = []
        for i in range(rounds_of(a, size) + 1):  # the first is a warm-up
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
    if backend == "box" and a.rank == 0:
        counters = weft.torch.process_group.of(None).communicator.counters()
        if counters["box_fallbacks"] or not counters["box_operations"]:
            print(f"box: it summed {counters['box_operations']} vectors, the ranks "
                  f"{counters['box_fallbacks']} in its place", file=sys.stderr)
    dist.barrier()
    dist.destroy_process_group()
    return times


def rank_main(a):
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import torch
    import torch.distributed  # noqa: F401  for the forked processes

    torch.set_num_threads(1)
    torch_ranks.serve(lambda backend, number: measured(a, backend, number))


# ---- all of them ----


def of_openmpi(a):
    """The same for Open MPI. -> {size: [seconds]}, or None"""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "mpi_allreduce")
        source = os.path.join(ROOT, "bench", "mpi_allreduce.c")
        sizes = [f"{size}:{rounds_of(a, int(size))}" for size in a.sizes.split(",")]
        run = ["mpirun", "--oversubscribe", "-np", str(a.ranks), "--mca", "btl", "tcp,self"]
        run += ["--mca", "pml", "ob1"]  # otherwise UCX may use shared memory
        run += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        try:
            subprocess.run(["mpicc", "-O2", "-o", program, source], check=True)
            done = subprocess.run([*run, program, *sizes], check=True, stdout=subprocess.PIPE,
                                  timeout=a.timeout_s)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"openmpi: {error}", file=sys.stderr)
            return None
        return {int(size): values for size, values in json.loads(done.stdout).items()}


def ideal_s(a, size):
    part = -(-size // a.ranks)
    wire = 2 * (a.ranks - 1) * (part + 78 * -(-part // 1408)) * 8
    return wire / (a.rate_mbps * 1e6) + 2 * a.rtt_us / 1e6 if a.rate_mbps else 0.0


def measure(a):
    """-> {backend: {size: [seconds]}}, of all repetitions"""
    backends = a.backends.split(",")
    times = {backend: {} for backend in backends}
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--folder", folder, "--sizes", a.sizes, "--ranks", str(a.ranks)]
        arguments += ["--rounds", str(a.rounds), "--bytes-each", str(a.bytes_each)]
        arguments += ["--box", a.box, "--box-bytes-min", str(a.box_bytes_min)] if a.box else []
        with box_of(a), torch_ranks.Ranks(__file__, a.ranks, folder, arguments) as ranks:
            for repetition in range(a.repetitions):
                for backend in backends:
                    of_mpi = backend == "openmpi"
                    got = of_openmpi(a) if of_mpi else ranks.job(backend, a.timeout_s)
                    print(
                        f"repetition {repetition + 1}, {backend}: "
                        + ("done" if got else f"not done within {a.timeout_s:g} s, or failed"),
                        file=sys.stderr,
                    )
                    for size, values in (got or {}).items():
                        times[backend].setdefault(int(size), []).extend(values)
    return times


def read(path):
    with open(path) as file:
        return {
            backend: {int(size): values for size, values in sizes.items()}
            for backend, sizes in json.load(file).items()
        }


def table(a, times):
    sizes = sorted({size for of_size in times.values() for size in of_size})
    print(f"{'bytes':>10} {'ideal ms':>9}  " + "  ".join(f"{b:>24}" for b in times))
    for size in sizes:
        ideal, cells = ideal_s(a, size), []
        for backend in times:
            values = times[backend].get(size)
            if not values:
                cells.append("-")
                continue
            middle = statistics.median(values)
            least, _, most = (quartile * 1e3 for quartile in statistics.quantiles(values, n=4))
            ratio = f" {middle / ideal:5.2f}" if ideal else ""
            cells.append(f"{middle * 1e3:.3g} ({least:.3g}, {most:.3g}){ratio}")
        print(f"{size:>10} {ideal * 1e3:>9.1f}  " + "  ".join(f"{cell:>24}" for cell in cells))
    print("median in ms (quartiles)" + (", over the ideal" if a.rate_mbps else ""))


SCRIPT = """set terminal pngcairo noenhanced size 760,460 font "Sans,10"
set output "%(path)s"
set title "all_reduce of %(ranks)d ranks: median of rounds, quartiles"
set logscale xy
set format x "%%.0s %%cB"
set xlabel "vector"
set ylabel "time of the slowest rank, ms"
set grid
set key top left
"""


def plot(a, times):
    script = SCRIPT % {"path": a.plot, "ranks": a.ranks}
    curves = []
    for number, (backend, sizes) in enumerate(times.items()):
        script += f"$b{number} << EOD\n"
        for size, values in sorted(sizes.items()):
            least, middle, most = (quartile * 1e3 for quartile in statistics.quantiles(values, n=4))
            script += f"{size} {middle} {least} {most}\n"
        script += "EOD\n"
        curves.append(f'$b{number} with yerrorlines linewidth 1.5 title "{backend}"')
    script += "plot " + ", ".join(curves) + "\n"
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def main():
    a = parsed()
    if a.rank is not None:
        rank_main(a)
        return
    if "box" in a.backends.split(",") and a.box not in ("xdp", "host"):
        sys.exit("the backend box needs --box xdp or --box host")
    times = read(a.from_) if a.from_ else measure(a)
    if a.samples:
        with open(a.samples, "w") as file:
            json.dump(times, file)
    if a.json:
        print(json.dumps(times))
    else:
        table(a, times)
    if a.plot:
        plot(a, times)


if __name__ == "__main__":
    main()
