"""A rank of the jobs of torch_kills.py, under torchrun: it trains a small model.

    torch_job.py FOLDER plain|hook STEPS INIT_TIMEOUT_S [ignore-term] [wait-in=RANK.STEP]

It logs its progress in FOLDER/RANK.LIFE and its messages in FOLDER/RANK.LIFE.err. It resumes from
FOLDER/checkpoint, which rank 0 writes after each step. With ignore-term, torchrun does not end it when
another rank fails, so that it has to detect the failure itself. With wait-in=1.6 rank 1 waits in step 6
of its first life, to be killed there.
"""

import datetime
import os
import signal
import sys
import time

folder, how, steps, init_timeout = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
if "ignore-term" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
rank, life = int(os.environ["RANK"]), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
places = os.open(f"{folder}/{rank}.{life}", flags)
os.dup2(os.open(f"{folder}/{rank}.{life}.err", flags), 2)


def at(where):
    os.write(places, f"{where}\n".encode())


def error(*exception):
    at(f"error {time.monotonic()}")
    sys.__excepthook__(*exception)


sys.excepthook = error
at(f"start {os.getpid()}")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import weft.torch  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(1)
at("init")
dist.init_process_group("weft", timeout=datetime.timedelta(seconds=init_timeout))
at("joined")
body = nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(body.parameters(), lr=0.01)
begin = 0
if os.path.exists(f"{folder}/checkpoint"):
    saved = torch.load(f"{folder}/checkpoint")
    begin = saved["step"]
    body.load_state_dict(saved["model"])
    at(f"resumed {begin}")
model = nn.parallel.DistributedDataParallel(body, bucket_cap_mb=0.02)
if how == "hook":
    model.register_comm_hook(weft.torch.HookState(bound=0.1), weft.torch.allreduce_hook)
for step in range(begin, steps):
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(100 * step + rank))
    at(f"forward {step}")
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    at(f"backward {step}")
    if life == "0" and f"wait-in={rank}.{step}" in sys.argv:
        signal.pause()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        torch.save({"step": step + 1, "model": body.state_dict()}, f"{folder}/checkpoint.new")
        os.replace(f"{folder}/checkpoint.new", f"{folder}/checkpoint")
    if step % 3 == 2:
        at(f"barrier {step}")
        dist.barrier()
at(f"sum {sum(p.double().sum().item() for p in body.parameters())!r}")
at("exit")
dist.destroy_process_group()
at("end")
