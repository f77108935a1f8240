"""A process on each host of a lab, or several on this machine, for bench/torch_*.py.

Each imports PyTorch once and forks a process per job, because a fork takes a second and an import ten
on few processors. A job is a backend: its name is written to all ranks, which reply with a line of JSON.
"""

import json
import os
import select
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEFT = os.environ.get("WEFT_BIN", os.path.join(ROOT, "build", "weft"))


def on(host, *command):
    lab = os.environ.get("WEFT_LAB")
    return [WEFT, "lab", "exec", lab, str(host), "--", *command] if lab else list(command)


def out_of(host, script):
    return subprocess.run(
        on(host, "sh", "-c", script), check=True, capture_output=True, text=True
    ).stdout


def tune(ranks, backend):
    """Set the TCP of all hosts; settings not named by the backend are the kernel's defaults."""
    if not os.environ.get("WEFT_LAB"):
        return
    _, cc, rto = (backend.split(":") + ["", ""])[:3] if backend.startswith("gloo") else ("", "", "")
    for host in range(ranks):
        out_of(
            host,
            f"sysctl -qw net.ipv4.tcp_congestion_control={cc or 'cubic'};"
            "ip -o route show | while read -r route; do"
            "  route=$(echo \"$route\" | sed 's/rto_min lock [^ ]*//; s/rto_min [^ ]*//');"
            f" ip route replace $route {'rto_min ' + rto[3:] + 'ms' if rto else ''}; done",
        )


def addresses(ranks):
    """(address, interface) of each host."""
    if not os.environ.get("WEFT_LAB"):
        return [("127.0.0.1", "lo")] * ranks
    found = []
    for host in range(ranks):
        line = out_of(host, "ip -o -4 address show scope global").split()
        found.append((line[3].split("/")[0], line[1]))
    return found


def serve(job):
    """In a rank's process: run job(backend, number) in a child for each line of standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Gloo prints to it
    for number, backend in enumerate(sys.stdin):
        pid = os.fork()
        if pid == 0:
            print(json.dumps(job(backend.strip(), number)), file=answers, flush=True)
            os._exit(0)
        if os.waitpid(pid, 0)[1] != 0:
            sys.exit(1)


class Ranks:
    """The ranks of `script`, started with --rank N and the arguments; a context manager."""

    def __init__(self, script, ranks, folder, arguments):
        key = os.path.join(folder, "job.key")
        subprocess.run([WEFT, "keygen", key], check=True, capture_output=True)
        self._count, self._failed, self._processes = ranks, False, []
        for rank, (address, interface) in enumerate(addresses(ranks)):
            environment = {
                "WEFT_HOST": address,
                "WEFT_KEY_FILE": key,
                "GLOO_SOCKET_IFNAME": interface,
                "OMP_NUM_THREADS": "1",
                "WEFT_LIBRARY": os.environ.get(
                    "WEFT_LIBRARY", os.path.join(ROOT, "build", "libweft.so.0")
                ),
            }
            settings = [f"{name}={value}" for name, value in environment.items()]
            command = [sys.executable, os.path.abspath(script), "--rank", str(rank), *arguments]
            self._processes.append(
                subprocess.Popen(on(rank, "env", *settings, *command), stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
            )

    def job(self, backend, timeout_s):
        """The reply of rank 0; None if a rank did not reply in time, or failed; then no further job can run."""
        if self._failed:
            return None
        tune(self._count, backend)
        end, lines = time.monotonic() + timeout_s, []
        try:
            for process in self._processes:
                process.stdin.write(backend + "\n")
                process.stdin.flush()
            for process in self._processes:
                left_s = max(0.0, end - time.monotonic())
                ready, _, _ = select.select([process.stdout], [], [], left_s)
                lines.append(process.stdout.readline() if ready else "")
        except BrokenPipeError:
            pass
        self._failed = len(lines) < self._count or "" in lines
        return None if self._failed else json.loads(lines[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        tune(self._count, "")
        for process in self._processes:
            if self._failed:
                process.terminate()
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass
            process.wait()
