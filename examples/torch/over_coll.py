"""The same as injection.Mean, but over weft: a rank of weft.coll for each worker, all in this process, on
loopback. The library drops packets, and reports which elements are missing.

    python3 over_coll.py        print the missing fraction, by message size, bound and loss

With feedback the library also reports the missing ranges, so that each result can be compared with that of
injection.Mean.
"""

import concurrent.futures

import torch

import injection

WORKERS = 4
HOUR_NS = 3_600_000_000_000  # no timeout if the process is stopped for a while


class Mean:
    """rate: fraction of packets lost; bound: fraction that may be missing, by default the same. Call close()."""

    def __init__(self, workers, elements, rate, arm, seed=0, bound=None):
        from weft import coll  # needs libweft.so, which nothing else of the study does

        self.bound = rate if bound is None else bound
        self.feedback = [coll.Feedback(elements) for _ in range(workers)] if arm == "feedback" else None
        self.same = injection.Mean(workers, elements, rate, arm)
        self.out = torch.zeros(workers, elements)
        self.lost = self.sent = 0
        self.difference = 0.0  # the largest one from injection.Mean given the same losses, over the largest result
        self.ranks = [
            coll.Communicator(
                rank, workers, key=bytes(32), packet_bytes=1472, inject_loss_ppm=round(rate * 1e6),
                inject_seed=1 + seed * workers + rank, peer_timeout_ns=HOUR_NS, op_timeout_ns=HOUR_NS,
            )
            for rank in range(workers)
        ]  # fmt: skip
        addresses = [rank.address for rank in self.ranks]
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda rank: rank.join(addresses), self.ranks))

    def __call__(self, contributions):
        works = [
            rank.all_reduce(
                own.numpy(), out.numpy(), reduction="mean", bound=self.bound, wait=False,
                feedback=self.feedback and self.feedback[rank.rank],
            )
            for rank, own, out in zip(self.ranks, contributions, self.out)
        ]  # fmt: skip
        for work in works:
            work.wait()
        self.sent += contributions.numel()
        self.lost += sum(work.own_missing for work in works)
        if not all(torch.equal(self.out[0], other) for other in self.out[1:]):
            raise AssertionError("ranks have different results")
        if self.feedback:
            self.compare(contributions)
        return self.out[0].clone()

    def compare(self, contributions):
        elements = contributions.shape[1]
        came = torch.stack(
            [torch.from_numpy(f.missed == 0).repeat_interleave(32)[:elements] for f in self.feedback]
        )
        expected = self.same.of(contributions.clone(), came)
        apart = (self.out[0] - expected).abs().max() / expected.abs().max().clamp(min=1e-30)
        if not apart <= self.difference:  # so that NaN stays
            self.difference = apart.item()

    def close(self):
        for rank in self.ranks:
            rank.close()


def missing(packets, bound, loss, arm, rounds=100):
    """The missing fraction of what ranks send each other, in messages of this many packets."""
    elements = WORKERS * packets * injection.RANGE
    mean = Mean(WORKERS, elements, loss, arm, bound=bound)
    for _ in range(rounds):
        mean(torch.ones(WORKERS, elements))
    mean.close()
    return mean.lost / mean.sent * WORKERS / (WORKERS - 1)


def main():
    """The table of docs/TOLERANCE.md, "Actual loss"."""
    print("packets  bound   loss  missing, with feedback  missing, without")
    for packets in (1, 2, 4, 8, 16, 48):
        for bound, loss in ((0.1, 0.01), (0.1, 0.1), (0.1, 0.3), (0.35, 0.35)):
            cells = [f"{missing(packets, bound, loss, arm):.4f}" for arm in ("feedback", "count")]
            print(f"{packets:7}{bound:7.2f}{loss:7.2f}{cells[0]:>24}{cells[1]:>18}", flush=True)


if __name__ == "__main__":
    main()
