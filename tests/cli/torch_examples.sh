#!/bin/sh
# examples/torch with synthetic data: each model trains over weft and resumes from a checkpoint, and the
# study of tolerated loss writes its tables.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/cli/torch_python.sh
. "$WEFT_SOURCE_ROOT/tests/cli/torch_python.sh"
unset WEFT_DATA_DIR
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
forks
train=$root/examples/torch/train.py
tolerance=$root/examples/torch/tolerance.py

ranks() { # <arguments of train.py>
    forked -m torch.distributed.run --standalone --nproc_per_node 2 --no_python \
        "$python" -S -E "$root/tests/python/forked.py" "$tap_tmp/forked" "$train" --data tiny "$@"
}

# <name>: in run.out the training loss of the last epoch is below that of the first.
falls() {
    tap_is "$1: the loss falls" "$(awk '$3 == "training" { if (first == "") first = $5; last = $5 }
        END { print (first != "" && last < first) ? "yes" : "no: " first " " last }' run.out)" yes
}

tap_run "mf trains in one process" "$python" "$train" --data tiny --model mf
falls mf
# The first model as a user would run it.
tap_run "mlp trains over weft" "$python" -m torch.distributed.run --standalone --nproc_per_node 2 "$train" --data tiny \
    --model mlp --epochs 2
falls mlp
tap_run "cnn trains over weft with --loss-bound 0.1" ranks --model cnn --loss-bound 0.1
falls cnn
tap_run "rnn trains over Gloo with weft's hook" ranks --model rnn --backend gloo --loss-bound 0.1 --epochs 3
falls rnn
tap_run "mlp trains with --injected-loss 0.3" ranks --model mlp --backend gloo --injected-loss 0.3 --epochs 2
falls "mlp with loss"
share=$(sed -n 's/.*missing \([0-9.]*\)%.*/\1/p' run.out | tail -n 1)
tap_is "15 % to 45 % are missing" "$(echo "${share:-0}" | awk '{ print ($1 > 15 && $1 < 45) }')" 1

# Resuming: five epochs at once equal three and then two.
tap_run "five epochs succeed" forked "$train" --data tiny --model mlp --epochs 5
whole=$(sed -n 's/^epoch 5.*validation loss \([0-9.]*\).*/\1/p' run.out)
tap_run "three epochs succeed" forked "$train" --data tiny --model mlp --epochs 3 --checkpoint state.pt
tap_run "the command for five epochs succeeds after three" forked "$train" --data tiny --model mlp --epochs 5 --checkpoint state.pt
tap_like "it continues from the checkpoint" "$(cat run.out)" '^continuing after epoch 3 of state.pt'
tap_is "the result is that of five epochs without a stop" "$(sed -n 's/^epoch 5.*validation loss \([0-9.]*\).*/\1/p' run.out)" "${whole:-none}"

cat >hosts.py <<'EOF'
import sys, types
sys.path.insert(0, sys.argv.pop())
import torch, train
hosts = train.Training.__new__(train.Training)
hosts.ranks, hosts.epoch, hosts.options = 2, 3, types.SimpleNamespace(checkpoint="state.pt")
train.dist.all_gather = lambda parts, own: [part.fill_(epoch) for part, epoch in zip(parts, (own.item(), 0))]
hosts.compare()
EOF
tap_run_fails "ranks with different checkpoints are rejected" 1 forked hosts.py "$root/examples/torch"
tap_like "the error has both epochs" "$(cat run.out)" \
    'DataError: rank 1 continues after epoch 0, and rank 0 after 3; give all ranks the same state.pt'

tap_run_fails "a checkpoint of another model is rejected" 1 forked "$train" --data tiny --model mf --checkpoint state.pt
tap_like "the error names the model" "$(cat run.out)" 'state.pt is a checkpoint of mlp; name another file'
echo "not a checkpoint" >bad.pt
tap_run_fails "a file that is not a checkpoint is rejected" 1 forked "$train" --data tiny --model mf --checkpoint bad.pt
tap_like "the error says to remove it" "$(cat run.out)" 'bad.pt is not a checkpoint.*remove it'
tap_run_fails "missing data: exit status 1" 1 forked "$train" --model mlp
tap_like "the error names --data" "$(cat run.out)" 'set --data DIR or WEFT_DATA_DIR'
tap_run_fails "an empty data directory: exit status 1" 1 forked "$train" --model mf --data .
tap_like "the error names the file" "$(cat run.out)" 'ratings.csv.*WEFT_DATA_DIR'
mkdir -p movielens-latest-small cifar10-jpeg
echo "userId;movieId" >movielens-latest-small/ratings.csv
echo "1;2" >>movielens-latest-small/ratings.csv
tap_run_fails "a data file with other columns is rejected" 1 forked "$train" --model mf --data .
tap_like "the error has the line and the columns" "$(cat run.out)" "'1;2' is not userId,movieId,rating,timestamp"
echo short >cifar10-jpeg/train.bin
tap_run_fails "a truncated data file is rejected" 1 forked "$train" --model cnn --data .
tap_like "the error has the format" "$(cat run.out)" 'not records of 1 + 3,072 bytes'
tap_run_fails "a loss bound above 1 is rejected" 2 forked "$train" --model mf --data tiny --loss-bound 1.5
tap_run_fails "a loss bound in one process is rejected" 1 forked "$train" --model mf --data tiny --loss-bound 0.1
tap_like "the error names torchrun" "$(cat run.out)" 'start several with torchrun'

# The same steps over weft and Gloo, timed: the training losses are equal except for the order of additions.
tap_run "bench/torch_jobs.py succeeds" forked "$root/bench/torch_jobs.py" --ranks 2 --data tiny --models mf,rnn --compute-ms 0 \
    --steps 12 --rounds 2 --backends weft,gloo --samples jobs.jsonl
"$python" - >jobs.out <<'EOF'
import json
jobs = [json.loads(line) for line in open("jobs.jsonl")]
print([(job["model"], job["backend"], len(job["steps"])) for job in jobs])
for weft, gloo in (jobs[:2], jobs[2:]):
    print("differs", max(abs(a - b) / b for a, b in zip(weft["losses"], gloo["losses"])) > 1e-5)
    print("learns", weft["losses"][-1] < weft["losses"][0])
EOF
tap_is "it has each model and backend, with equal losses that fall" "$(cat jobs.out)" \
    "[('mf', 'weft', 12), ('mf', 'gloo', 12), ('rnn', 'weft', 12), ('rnn', 'gloo', 12)]
differs False
learns True
differs False
learns True"
tap_run "bench/torch_allreduce.py succeeds" forked "$root/bench/torch_allreduce.py" --ranks 2 --backends weft,weft:0.1,gloo \
    --sizes 1024,100000 --rounds 2 --repetitions 1
tap_is "it has each size and backend" "$(grep -Ec '^ +(1024|100000) +0\.0( +[0-9.e+-]+ \([^)]*\)){3}$' run.out)" 2

# The study continues after an interruption in the middle of a line, and with seeds added later.
small="--data tiny --models mlp --rates 0.6"
# shellcheck disable=SC2086
tap_run "tolerance.py succeeds" "$python" "$tolerance" --results study.jsonl $small --seeds 2
tap_is "it writes 12 results" "$(wc -l <study.jsonl)" 12
numbers() { sed 's/, "cpu_s".*//' "$1" | sort; } # everything except the times
numbers study.jsonl >sorted
cp study.jsonl whole.jsonl
{ head -n 9 whole.jsonl; tail -n 1 whole.jsonl | cut -c 1-40 | tr -d '\n'; } >study.jsonl
# shellcheck disable=SC2086
tap_run "tolerance.py continues from a truncated file" forked "$tolerance" --results study.jsonl $small --seeds 2
tap_is "with the same results" "$(numbers study.jsonl | cmp - sorted && echo yes)" yes
# shellcheck disable=SC2086
tap_run "tolerance.py adds a third seed" forked "$tolerance" --results study.jsonl $small --seeds 3 --arms "feedback"
tap_is "with the target of the other seeds" "$(grep -v '"target": null' study.jsonl |
    sed 's/.*"target": \([0-9.]*\).*/\1/' | sort -u | wc -l)" 1
# The library's ranks lose packets and report them; the results equal those of injection.py with
# these losses.
tap_run "tolerance.py over weft succeeds" forked "$tolerance" --results weft.jsonl --data tiny --models rnn --rates 0.3 --seeds 1 \
    --arms "count, weft;feedback, weft"
tap_like "20 % to 39 % are missing" "$(cat run.out)" '^  rnn count, weft p=0.3: missing 0\.[23]'
tap_is "the sums equal those of injection.py" "$(sed -n 's/.*feedback, weft p=0.3: .* difference \([0-9.e+-]*\) of.*/\1/p' run.out |
    awk '{ print ($1 < 1e-6) ? "yes" : "no: " $1 }')" yes

# The report shows the effect that synthetic results have: the loss falls by 1 in `slower` epochs; 0: it does not fall.
cat >planted.py <<'EOF'
import json, sys
for arm, rate, slower in eval(sys.argv[1]):
    for seed in (1, 2):
        curve = [[e / 4, 10 - e / 4 / slower[seed - 1] if slower[seed - 1] else 10] for e in range(1, 61)]
        print(json.dumps(dict(model="mlp", variant="", size="tiny", rate=rate, arm=arm, seed=seed,
                              target=5 if rate else None, curve=curve, validation=0, lost=rate)))
EOF
planted() { # <arms> <arguments>
    runs=$1
    shift
    "$python" planted.py "$runs" >planted.jsonl
    tap_run "the report of synthetic results succeeds" forked "$tolerance" --results planted.jsonl --data tiny --models mlp --report "$@"
    tr -s ' ' <run.out >planted.out
}
planted '("zero", 0.0, (1, 1)), ("zero", 0.5, (2, 2)), ("count", 0.5, (1, 1)), ("feedback", 0.5, (0, 0))'
tap_like "ratios 2, 1 and never are shown" "$(cat planted.out)" \
    '^ 0.50 2.00 (2.00-2.00) 2/2 1.00 (1.00-1.00) 2/2 0/2'
tap_like "x1 and x2 are shown" "$(cat planted.out)" '^ mlp 0.00 / 0.50 0.50 / 0.50 0.00 / 0.00 0.15'
planted '("zero", 0.0, (1, 1)), ("count", 0.2, (1, 1.21)), ("count", 0.5, (2, 0))' --target-epoch 3
tap_like "the ratio is a geometric mean" "$(cat planted.out)" '^ 0.20 1.10 (1.00-1.21) 2/2'
tap_like "a run that did not finish counts as 3" "$(cat planted.out)" '^ 0.50 >2.45 (2.00-3.00) 1/2'
tap_like "with an earlier target x1 is that of the interval's end" "$(cat planted.out)" '^ mlp 0.00 / 0.20 0.15'
planted '("zero", 0.0, (1, 1)), ("zero", 0.2, (1.5, 1.5)), ("zero", 0.5, (2, 2)), ("count", 0.2, (1.5, 1.5)), ("count", 0.5, (2, 2)), ("feedback", 0.2, (1.5, 1.5)), ("feedback", 0.5, (2, 2))'
tap_like "the analysis of variance attributes the effect to p" "$(cat planted.out)" 'mlp, zero, count, feedback: arm 0 %, p 100 %, arm with p 0 %, rest (seeds) 0 %'
echo '{"model": 1}' >other.jsonl
tap_run_fails "a file of another program is rejected" 1 forked "$tolerance" --results other.jsonl --report
tap_like "the error has the line number" "$(cat run.out)" 'other.jsonl:1 is not a result of this program'
tap_done
