#!/bin/sh
# Jobs under other launchers: Open MPI's mpirun on this host, with one command for all ranks and with
# several; and the Kubernetes example, as far as it can be checked without a cluster.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
unset WEFT_ROLE WEFT_RANK WEFT_WORKERS WEFT_SHARDS WEFT_COORDINATOR WEFT_SERVERS WEFT_JOB_KEY WEFT_JOB
weft=$WEFT_BIN
awk 'BEGIN { for (i = 0; i < 40; i++) print i % 2, 10 + i % 5 ":1", 20 + i % 3 ":1" }' >tiny
worker="worker --format libsvm --data $PWD/tiny --epochs 1 --batch 4"
"$weft" keygen job.key >/dev/null
key="--key-file $PWD/job.key"

if command -v mpirun >/dev/null; then
    # As root and with more processes than CPUs, as in a container; no other host is used.
    mpi="timeout 300 mpirun --allow-run-as-root --oversubscribe --host localhost:16"
    port=$(tap_port)
    WEFT_COORDINATOR=127.0.0.1:$port
    export WEFT_COORDINATOR

    # Several commands of one mpirun: Open MPI sets each rank within its command.
    # shellcheck disable=SC2086
    tap_run "mpirun starts coordinator, servers and workers" $mpi \
        -n 1 "$weft" coordinator $key --workers 3 --shards 2 --until-done : \
        -n 2 "$weft" server $key --port 0 : -n 3 "$weft" $worker $key
    tap_is "every worker has its rank within its command" "$(sed -n \
        's/.*launched as worker \([0-9]\) (OMPI_COMM_WORLD_\*), 3 workers.*/\1/p' run.out |
        sort | tr '\n' ' ')" "0 1 2 "
    tap_is "every server has its rank within its command" "$(sed -n \
        's/.*launched as server \([0-9]\) (OMPI_COMM_WORLD_\*).*/\1/p' run.out |
        sort | tr '\n' ' ')" "0 1 "

    # Only workers; coordinator and server are already running.
    # shellcheck disable=SC2086
    {
        "$weft" coordinator $key --workers 2 --shards 1 --until-done >sc.out 2>&1 &
        coordinator=$!
        "$weft" server $key --port 0 >sv.out 2>&1 &
        tap_run "mpirun starts workers alone" $mpi -n 2 "$weft" $worker $key
    }
    wait $coordinator
    tap_is "the coordinator exits with 0 after them" $? 0
    wait
    # WEFT_WORKERS is 2, mpirun starts 3: mpirun's ranks are not used, and one process finds no free rank.
    # shellcheck disable=SC2086
    WEFT_WORKERS=2 tap_run_fails "WEFT_WORKERS other than mpirun's number fails" 1 $mpi -n 3 "$weft" $worker $key \
        --start-timeout 1
    tap_like "the error says that mpirun's ranks are not used" "$(cat run.out)" \
        'rank open (OMPI_COMM_WORLD_\* counts other processes, too), 2 workers (WEFT_WORKERS)'
else
    tap_skip "mpirun" "no mpirun: apt-get install openmpi-bin"
fi

manifest=$WEFT_SOURCE_ROOT/examples/kubernetes/weft.yaml
if python3 -c 'import yaml' 2>/dev/null; then
    cat >check.py <<'END'
import subprocess, sys, yaml

manifest, weft = sys.argv[1:]
documents = list(yaml.safe_load_all(open(manifest)))
kinds = {"Service": "v1", "StatefulSet": "apps/v1", "Job": "batch/v1"}
services = {}
for d in documents:
    assert kinds[d["kind"]] == d["apiVersion"], d["kind"]
    assert d["metadata"]["name"] and d["metadata"]["labels"]["app"] == "weft"
    if d["kind"] == "Service":
        services[d["metadata"]["name"]] = d["spec"]
numbers = {}
for d in documents:
    if d["kind"] == "Service":
        continue
    spec, pod = d["spec"], d["spec"]["template"]
    labels = pod["metadata"]["labels"]
    numbers[labels["role"]] = spec.get("replicas", spec.get("completions"))
    if d["kind"] == "StatefulSet":
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        service = services[spec["serviceName"]]
        assert service["selector"].items() <= labels.items()
    else:
        assert pod["spec"]["restartPolicy"] in ("OnFailure", "Never")
        assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
    (c,) = pod["spec"]["containers"]
    assert all(isinstance(a, str) for a in c["command"] + c["args"]), c["args"]
    for e in c["env"]:
        assert e["name"].startswith("WEFT_") and isinstance(e.get("value", ""), str), e
        assert ("value" in e) != ("valueFrom" in e), e
    env = {e["name"]: e["value"] for e in c["env"] if "value" in e}
    if "WEFT_COORDINATOR" in env:
        host, port = env["WEFT_COORDINATOR"].split(":")
        assert services[host]["ports"][0]["port"] == int(port)
        assert services[host]["ports"][0]["protocol"] == "UDP"
    if c["command"][1] == "worker":
        assert int(env["WEFT_WORKERS"]) == spec["completions"]
    # A valid command line without a key: status 1, not 2.
    run = subprocess.run([weft, c["command"][1], *c["args"]], env=env | {"WEFT_RANK": "0"},
                         capture_output=True, text=True)
    assert run.returncode == 1 and "no job key" in run.stderr, run
    if c["command"][1] == "coordinator":
        args = dict(zip(c["args"][::2], c["args"][1::2]))
        workers, shards = int(args["--workers"]), int(args["--shards"])
        mounts = [m["mountPath"] for m in c["volumeMounts"]]
        assert any(args["--journal"].startswith(m + "/") for m in mounts)
        assert {m["name"] for m in c["volumeMounts"]} == {
            v["metadata"]["name"] for v in spec["volumeClaimTemplates"]}
assert numbers == {"coordinator": 1, "server": shards, "worker": workers}, numbers
END
    tap_run "the Kubernetes example is consistent and its command lines are valid" \
        python3 check.py "$manifest" "$weft"
else
    tap_skip "the Kubernetes example is consistent and its command lines are valid" "no python3-yaml"
fi
# kubectl create secret --from-file keeps the newline that a key file ends with.
"$weft" coordinator $key --port 0 >k.out 2>&1 &
coordinator=$!
until grep -q '^coordinator: ' k.out 2>/dev/null; do sleep 0.05; done
# shellcheck disable=SC2086
WEFT_JOB_KEY=$(cat job.key; echo .) && WEFT_JOB_KEY=${WEFT_JOB_KEY%.} tap_patient \
    "a key with a newline at its end is accepted" 1 'number of workers or shards of the job is not known yet' \
    "$weft" $worker --coordinator "$(sed -n 's/^coordinator: //p' k.out)" --start-timeout
kill $coordinator
wait $coordinator

tap_done
