"""Jobs under torchrun, each with a rank that is killed or frozen at a time drawn from a seed.

    torch_kills.py JOBS SEED

Every other rank has to end with one error that names that rank and the operation. If all had joined,
the error has to be the loss of a connection, not the timeout of an operation, which is INIT_S here. No
process may remain. Then a job that torchrun restarts from its checkpoint. Prints TAP.

How long that takes is printed and not checked: on a busy machine processes wait for a processor, and
Python for its own end. In the absence of that a connection is lost 6 s after its peer (test_core_life, in
virtual time).
"""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
INIT_S = 15.0
HANGS_S = 180.0  # only ends a hang: on a busy machine four ranks need a minute to import PyTorch
STEPS = 12
MOMENTS = ("start", "init", "joined", "forward", "backward", "barrier", "exit")


def start(folder, ranks, how, *words, restarts=0):
    environment = dict(os.environ, OMP_NUM_THREADS="1", WEFT_PEER_TIMEOUT_S="5", USE_LIBUV="0")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(ranks), "--max_restarts", str(restarts)]
    command += [os.path.join(HERE, "torch_job.py"), folder, how, str(STEPS), str(INIT_S), *words]
    with open(f"{folder}/torchrun", "w") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return ""


class Rank:
    def __init__(self, folder, rank, life=0):
        self.rank, self.path, self.folder = rank, f"{folder}/{rank}.{life}", folder
        self.ended = None  # time when its end was detected

    def places(self):
        return read(self.path).splitlines()

    def pid(self):
        places = self.places()
        return int(places[0].split()[1]) if places else None

    def lives(self):
        """True if it exists and is not a zombie."""
        pid = self.pid()
        stat = read(f"/proc/{pid}/stat") if pid else ""
        return bool(stat) and stat.rsplit(")", 1)[1].split()[0] not in "ZX"

    def look(self):
        if self.ended is None and self.pid() and not self.lives():
            self.ended = time.monotonic()

    def failed(self):
        """Time of its error, or None."""
        times = [float(place.split()[1]) for place in self.places() if place.startswith("error")]
        return times[0] if times else None

    def last_words(self):
        """The errors with which it ended. (PyTorch prefixes each line with [rank0]:.)"""
        said = re.sub(r"^\[rank\d+\]: ", "", read(self.path + ".err"), flags=re.MULTILINE)
        return re.findall(r"^(?:(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b|terminate|Fatal).*", said, re.MULTILINE)


def wait_for(what, seconds, torchrun):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end or torchrun.poll() is not None:
            return False
        time.sleep(0.001)
    return True


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Job:
    """One job, drawn from a seed."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.ranks = draw.choice((3, 4))
        self.how = draw.choice(("plain", "hook"))
        self.number = draw.choice((signal.SIGKILL, signal.SIGSTOP))
        self.victim = draw.randrange(self.ranks)
        self.moment = draw.choice(MOMENTS)
        if self.moment in ("forward", "backward"):
            self.moment += f" {draw.randrange(STEPS)}"
        elif self.moment == "barrier":
            self.moment += f" {draw.randrange(2, STEPS, 3)}"
        self.delay = draw.random() * {"start": 1.0, "init": 0.3}.get(self.moment, 0.02)
        self.wrong = []

    def __str__(self):
        name = {signal.SIGKILL: "killed", signal.SIGSTOP: "frozen"}[self.number]
        return (
            f"{self.ranks} ranks, {self.how}: rank {self.victim} {name} {self.delay * 1000:.1f} ms "
            f"after '{self.moment}'"
        )

    def run(self):
        """-> list of failures, as sentences"""
        with tempfile.TemporaryDirectory() as folder:
            torchrun = start(folder, self.ranks, self.how, "ignore-term")
            ranks = [Rank(folder, rank) for rank in range(self.ranks)]
            try:
                self._disturb(torchrun, ranks)
                self._watch(torchrun, ranks)
            finally:
                for rank in ranks:
                    if rank.lives():
                        self.wrong.append(f"rank {rank.rank} is left behind")
                        send(rank.pid(), signal.SIGKILL)
                torchrun.kill()
                torchrun.wait()
            if self.wrong:
                for rank in ranks:
                    self.wrong.append(f"rank {rank.rank}: {rank.places()[-3:]}")
                    self.wrong += read(rank.path + ".err").splitlines()[-30:]
                self.wrong += read(f"{folder}/torchrun").splitlines()[-30:]
        return self.wrong

    def _disturb(self, torchrun, ranks):
        victim = ranks[self.victim]
        came = lambda: any(place.startswith(self.moment) for place in victim.places())
        if not wait_for(came, HANGS_S, torchrun):
            self.wrong.append(f"the job never came to '{self.moment}'")
        time.sleep(self.delay)
        send(victim.pid(), self.number)
        self.at = time.monotonic()
        self.place = (victim.places() or ["?"])[-1]

    def _watch(self, torchrun, ranks):
        """Wait until all others have ended; then resume the frozen rank, which ends, too."""
        others = [rank for rank in ranks if rank.rank != self.victim]
        joined_late = {}
        while any(rank.ended is None for rank in others):
            time.sleep(0.005)
            for rank in others:
                rank.look()
                if "joined" not in rank.places():
                    joined_late[rank.rank] = time.monotonic()
            if time.monotonic() > self.at + HANGS_S:
                break
        for rank in others:
            self._judge(rank, joined_late.get(rank.rank, 0))
        victim = ranks[self.victim]
        if victim.pid() and victim.lives() and self.number == signal.SIGSTOP:
            send(victim.pid(), signal.SIGCONT)
            end = time.monotonic() + HANGS_S
            while victim.lives() and time.monotonic() < end:
                time.sleep(0.01)
            if victim.lives():
                self.wrong.append(f"rank {self.victim} thaws, and hangs")
        try:
            torchrun.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            self.wrong.append("torchrun does not end")

    def _judge(self, rank, joined_late):
        places, words = rank.places(), rank.last_words()
        if rank.ended is None:
            self.wrong.append(f"rank {rank.rank} hangs")
            return
        failed = rank.failed() or rank.ended
        seconds = failed - self.at
        print(f"#   rank {rank.rank} after {seconds:.1f} s: {words[-1] if words else places[-1]}")
        joined = "joined" in places
        if places[-1] == "end" and not words:
            # It needed no more data of the victim, which had completed its part.
            if not self.place.startswith(("exit", "end", "sum", f"barrier {STEPS - 1}")):
                self.wrong.append(f"rank {rank.rank} ended well, though its peer was at '{self.place}'")
        elif len(words) != 1:
            self.wrong.append(f"rank {rank.rank} ended with {len(words)} errors: {words}")
        elif f"rank {self.victim}" not in words[0]:
            self.wrong.append(f"rank {rank.rank} does not name the rank: {words[0]}")
        elif "operation" not in words[0] and joined:
            self.wrong.append(f"rank {rank.rank} does not name the operation: {words[0]}")
        elif "(seen by rank" not in words[0] and joined and joined_late < self.at:
            self.wrong.append(f"rank {rank.rank} did not notice the loss, but a timeout: {words[0]}")


def restarted():
    """A rank is killed; torchrun starts all anew, they go on from the checkpoint, and end as if nothing
    had happened. -> what was wrong"""
    sums, wrong = [], []
    for disturbed in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            torchrun = start(folder, 3, "plain", *(["wait-in=1.6"] if disturbed else []), restarts=2)
            if disturbed:
                victim = Rank(folder, 1)
                if not wait_for(lambda: "backward 6" in victim.places(), HANGS_S, torchrun):
                    wrong.append("the job never came to step 6")
                send(victim.pid(), signal.SIGKILL)
            try:
                status = torchrun.wait(HANGS_S)
            except subprocess.TimeoutExpired:
                torchrun.kill()
                status = torchrun.wait()
            ends = [Rank(folder, rank, int(disturbed)) for rank in range(3)]
            if status != 0:
                wrong.append(f"torchrun ended with {status}")
                wrong += read(f"{folder}/torchrun").splitlines()[-40:]
            for rank in ends:
                sums.append([place for place in rank.places() if place.startswith("sum")])
                resumed = [place for place in rank.places() if place.startswith("resumed")]
                print(f"#   rank {rank.rank}: {resumed} {sums[-1]}")
                if disturbed and resumed != ["resumed 6"]:
                    wrong.append(f"rank {rank.rank}: {resumed}")
                wrong += rank.last_words()
    if any(one != sums[0] or len(one) != 1 for one in sums):
        wrong.append(f"the models differ: {sums}")
    return wrong


def main():
    jobs, seed = int(sys.argv[1]), int(sys.argv[2])
    tests = [(f"job {seed + i}", Job(seed + i)) for i in range(jobs)]
    count = failed = 0
    for name, job in [*tests, ("a job that is started anew goes on from its checkpoint", None)]:
        count += 1
        begin = time.monotonic()
        print(f"# {job or name}", flush=True)
        wrong = job.run() if job else restarted()
        print(f"#   {time.monotonic() - begin:.1f} s in all")
        print(f"{'not ok' if wrong else 'ok'} {count} - {name}{f': {job}' if job else ''}")
        print("".join(f"#   {line}\n" for line in wrong), end="", flush=True)
        failed += bool(wrong)
    print(f"1..{count}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
