#!/bin/sh
# A job under Slurm's srun: a private controller and node on this machine, in a temporary folder;
# coordinator, servers and workers are steps of one allocation.
#
# Nothing is installed and no system service is used. Slurm is searched in PATH, or in
# WEFT_SLURM_ROOT, into which its packages were unpacked:
#
#     apt-get download slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2
#     for deb in *.deb; do dpkg -x "$deb" /tmp/slurm; done
#     WEFT_SLURM_ROOT=/tmp/slurm meson test -C build cli_slurm
#
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
unset WEFT_ROLE WEFT_RANK WEFT_WORKERS WEFT_SHARDS WEFT_COORDINATOR WEFT_SERVERS WEFT_JOB_KEY WEFT_JOB
weft=$WEFT_BIN

root=${WEFT_SLURM_ROOT:-}
PATH=$root/usr/bin:$PATH:$root/usr/sbin:/usr/sbin
libraries=$(find "$root/usr/lib" -maxdepth 3 -type d -name slurm-wlm 2>/dev/null | head -n 1)
export PATH
# Debian's file names have a suffix; a link without the suffix exists only if the package is
# installed.
ctld=$(command -v slurmctld || command -v slurmctld-wlm) || ctld=
slurmd=$(command -v slurmd || command -v slurmd-wlm) || slurmd=
stepd=$(command -v slurmstepd || command -v slurmstepd-wlm) || stepd=
if [ -z "$ctld" ] || [ -z "$slurmd" ] || [ -z "$stepd" ] || ! command -v srun >/dev/null; then
    tap_skip "a job under srun" "no Slurm (Debian: slurm-wlm; or unpacked, see the comment at the top of this file)"
    tap_done
fi
if [ ! -e "$libraries/auth_none.so" ] || [ ! -e "$libraries/cred_none.so" ]; then
    tap_skip "a job under srun" "this Slurm has no plugin auth/none, and munge needs a system service"
    tap_done
fi
if [ "$(id -u)" != 0 ]; then
    tap_skip "a job under srun" "slurmd needs root"
    tap_done
fi
if [ -n "$root" ]; then
    LD_LIBRARY_PATH=$libraries:$(dirname "$libraries")
    export LD_LIBRARY_PATH
fi

# Two ports that are free now, and most likely also when they are used.
port() {
    : >port.out # here: the background shell empties it only when it gets to run
    "$weft" coordinator --security none --port 0 >port.out 2>&1 &
    probe=$!
    tap_until grep -q '^coordinator: ' port.out
    kill $probe
    wait $probe
    sed -n 's/^coordinator: .*:\([0-9]*\)$/\1/p' port.out
}
host=$(hostname -s)
mkdir state spool
SLURM_CONF=$tap_tmp/slurm.conf
export SLURM_CONF
cat >slurm.conf <<END
ClusterName=weft
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(port)
SlurmdPort=$(port)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
PluginDir=$libraries
StateSaveLocation=$tap_tmp/state
SlurmdSpoolDir=$tap_tmp/spool
SlurmctldPidFile=$tap_tmp/slurmctld.pid
SlurmdPidFile=$tap_tmp/slurmd.pid
SlurmctldLogFile=$tap_tmp/slurmctld.log
SlurmdLogFile=$tap_tmp/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/linear
CoordinatorType=sched/builtin
SlurmdParameters=config_overrides
ReturnToService=2
MessageTimeout=60
SlurmctldTimeout=300
SlurmdTimeout=300
InactiveLimit=0
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE OverSubscribe=YES State=UP
END
"$ctld" -D -c >ctld.out 2>&1 &
controller=$!
"$slurmd" -D -c -N "$host" -d "$stepd" >slurmd.out 2>&1 &
node=$!
tap_at_exit 'scancel --user=root 2>/dev/null; kill $controller $node 2>/dev/null; wait'
idle() { sinfo -h -o %T 2>/dev/null | grep -qx idle; }
if ! tap_until idle; then
    tap_skip "a job under srun" "Slurm does not start here: $(cat ctld.out slurmd.out slurmd.log \
        slurmctld.log 2>/dev/null | grep -i 'error\|fatal' | tail -n 2 | tr '\n' ' ')"
    tap_done
fi
tap_pass "a Slurm cluster of one machine starts"

awk 'BEGIN { for (i = 0; i < 40; i++) print i % 2, 10 + i % 5 ":1", 20 + i % 3 ":1" }' >tiny
"$weft" keygen job.key >/dev/null
WEFT_COORDINATOR=127.0.0.1:$(port)
export WEFT_COORDINATOR

# The three commands of docs/RUN.md as steps of one allocation.
cat >job <<END
#!/bin/sh
step="srun --overlap --label"
\$step -n 1 "$weft" coordinator --key-file "$tap_tmp/job.key" --port ${WEFT_COORDINATOR##*:} \
    --workers 3 --shards 2 --until-done >coordinator.out 2>&1 &
\$step -n 2 "$weft" server --key-file "$tap_tmp/job.key" --port 0 >server.out 2>&1 &
\$step -n 3 "$weft" worker --key-file "$tap_tmp/job.key" --format libsvm --data "$tap_tmp/tiny" \
    --epochs 1 --batch 4 >worker.out 2>&1 || exit
wait
END
chmod +x job
tap_run "coordinator, servers and workers as steps of one allocation" timeout 300 salloc -n 6 ./job
[ "$tap_got" = 0 ] || cat coordinator.out server.out worker.out | sed 's/^/#   /'
tap_is "every worker has its rank from Slurm" "$(sed -n \
    's/.*launched as worker \([0-9]\) (SLURM_\*), 3 workers.*/\1/p' worker.out | sort | tr '\n' ' ')" \
    "0 1 2 "
tap_is "every server has its rank from Slurm" "$(sed -n 's/.*launched as server \([0-9]\) (SLURM_\*).*/\1/p' server.out |
    sort | tr '\n' ' ')" "0 1 "
tap_is "all workers have trained" "$(grep -c '"event":"done"' worker.out)" 3
tap_like "the coordinator has registered all shards" "$(cat coordinator.out)" 'all shards are registered'
# A batch script also has SLURM_PROCID, but is not a task: no launcher is detected there.
tap_run "salloc without srun succeeds" timeout 60 salloc -n 3 \
    env -u WEFT_COORDINATOR sh -c "'$weft' worker --servers 127.0.0.1:9 --data tiny 2>&1 |
    grep -c SLURM; true"
tap_is "Slurm's variables are ignored outside of a step" "$(grep -x '[0-9]*' run.out)" 0
tap_done
