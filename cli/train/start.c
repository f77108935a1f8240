/* Starting the processes of `weft train`: their command lines and keys. */
#include "cli/train/args.h"
#include "cli/train/internal.h"

#include <errno.h>
#include <unistd.h>

/* Arguments for every process of the job. */
static void add_all(struct train *train, struct weft_args *args)
{
    const struct weft_job *job = &train->job;
    /* Hosts of a lab have their own networks, from which /metrics cannot be reached. */
    if (train->hosts.lab == NULL) {
        weft_metrics_add(&train->metrics_options, args);
    }
    weft_args_add(args, "--control-fd=%d", (int)WEFT_CONTROL_FD);
    weft_args_add(args, "--workers=%u", job->workers);
    weft_train_args_transport(&job->transport, &job->security, args);
    /* A lab's network is also confined to this host. */
    if (train->hosts.lab != NULL && job->security.mode == WEFT_MODE_NONE) {
        weft_args_add(args, "--insecure-network");
    }
}

static void add_common(struct train *train, struct weft_args *args)
{
    add_all(train, args);
    weft_train_args_path(&train->job, args);
}

/* Standard output is reserved for the report. */
static weft_status start_process(struct train *train, struct weft_slot *slot)
{
    struct weft_args *args = &slot->args;
    struct weft_error error;
    slot->program = "/proc/self/exe";
    slot->has_channel = true;
    slot->stdout_fd = STDERR_FILENO;
    weft_status status = weft_security_key_pipe(&train->job.security, &slot->key_fd);
    if (slot->key_fd > 0) {
        weft_args_add(args, "--key-fd=%d", (int)WEFT_KEY_FD);
    }
    status = status != WEFT_OK ? weft_fail(&error, status, "%s", strerror(errno))
                               : weft_supervisor_start(&train->supervisor, slot, &error);
    if (status != WEFT_OK) {
        return weft_fail(&train->error, status, "cannot start %s %u: %s", slot->role, slot->rank,
                         error.text);
    }
    fprintf(train->progress, "%s %u: pid %d\n", slot->role, slot->rank, (int)slot->pid);
    fflush(train->progress);
    return WEFT_OK;
}

/* Start a process, with a trace and a spool of records if it writes them. */
static weft_status start(struct train *train, struct weft_slot *slot)
{
    struct weft_args *args = &slot->args;
    if (train->job.trace != NULL) {
        weft_args_add(args, "--trace=%s.%s-%u", train->job.trace, slot->role, slot->rank);
    }
    if (train->job.recording.path != NULL) {
        weft_args_add(args, "--records=%s", train->job.recording.path);
        weft_args_add(args, "--records-spool"); /* the database is made at the end */
    }
    return start_process(train, slot);
}

weft_status weft_train_start_scheduler(struct train *train)
{
    struct weft_slot *slot = train_scheduler(train);
    struct weft_args *args = &slot->args;
    char host[WEFT_LAB_ADDRESS_BYTES];
    weft_train_hosts_address(&train->hosts, train_scheduler_process(train), host);
    slot->role = "scheduler";
    slot->rank = 0;
    weft_args_add(args, "weft");
    weft_args_add(args, "scheduler");
    add_all(train, args);
    weft_args_add(args, "--port=0");
    weft_args_add(args, "--shards=%u", train->servers * train->shards_per_server);
    weft_args_add(args, "--read-credits=%u", train->read_credits);
    weft_args_add(args, "--cut-through=%u", train->job.cut_through);
    if (train->hosts.lab != NULL) {
        uint64_t mbps = train->hosts.info.rate_bps / 1000000;
        weft_args_add(args, "--link-mbps=%llu", (unsigned long long)weft_max_u64(mbps, 1));
    }
    weft_args_add(args, "--host=%s", host);
    return start_process(train, slot);
}

weft_status weft_train_start_server(struct train *train, uint32_t rank)
{
    struct weft_slot *slot = &train->supervisor.slots[rank];
    struct weft_args *args = &slot->args;
    uint32_t base = rank * train->shards_per_server;
    char host[WEFT_LAB_ADDRESS_BYTES];
    weft_train_hosts_address(&train->hosts, rank, host);
    slot->role = "server";
    slot->rank = rank;
    weft_args_add(args, "weft");
    weft_args_add(args, "server");
    add_common(train, args);
    weft_args_add(args, "--port=%u", train->port != 0 ? train->port + base : 0);
    weft_args_add(args, "--shards-per-server=%u", train->shards_per_server);
    weft_args_add(args, "--shard-base=%u", base);
    weft_args_add(args, "--shards=%u", train->servers * train->shards_per_server);
    weft_train_args_server(&train->job, &train->checkpoints, args);
    if (train->aggregators > 0) {
        weft_args_add(args, "--aggregators=%u", train->aggregators);
    }
    weft_args_add(args, "--host=%s", host);
    if (train->checkpoints.directory != NULL) {
        slot->grace_ns = WEFT_RUN_CHECKPOINT_GRACE_NS;
    }
    return start(train, slot);
}

/* Aggregators follow the workers in process numbers, which also determine the lab host. */
weft_status weft_train_start_aggregator(struct train *train, uint32_t number)
{
    const uint32_t process = train_aggregator_process(train, number);
    struct weft_slot *slot = &train->supervisor.slots[process];
    struct weft_args *args = &slot->args;
    char host[WEFT_LAB_ADDRESS_BYTES];
    weft_train_hosts_address(&train->hosts, process, host);
    slot->role = "aggregator";
    slot->rank = number;
    weft_args_add(args, "weft");
    weft_args_add(args, "aggregate");
    add_common(train, args);
    weft_args_add(args, "--servers=%s", train->addresses);
    weft_args_add(args, "--listen=%s:0", host);
    weft_args_add(args, "--number=%u", number);
    if (train->job.cut_through > 0) {
        weft_args_add(args, "--cut-through=%u", train->job.cut_through);
    }
    if (train->flush_age_us > 0) {
        weft_args_add(args, "--flush-age-us=%u", train->flush_age_us);
    }
    if (train->job.recording.path != NULL) {
        weft_args_add(args, "--records=%s", train->job.recording.path);
        weft_args_add(args, "--records-spool");
    }
    return start_process(train, slot); /* it writes no trace */
}

weft_status weft_train_start_worker(struct train *train, uint32_t rank)
{
    const struct weft_job *job = &train->job;
    struct weft_slot *slot = &train->supervisor.slots[train->servers + rank];
    struct weft_args *args = &slot->args;
    slot->role = "worker";
    slot->rank = rank;
    weft_args_add(args, "weft");
    weft_args_add(args, "worker");
    add_common(train, args);
    weft_args_add(args, "--servers=%s", train->addresses);
    weft_args_add(args, "--rank=%u", rank);
    if (train->aggregators > 0 && job->scheduler != NULL) {
        char all[sizeof(train->via)] = ""; /* grants select one of them */
        for (uint32_t a = 0; a < train->aggregators; a++) {
            strcat(all, a > 0 ? "/" : "");
            strcat(all, train->via[a]);
        }
        weft_args_add(args, "--via=%s", all);
    } else if (job->via != NULL) {
        weft_args_add(args, "--via=%s",
                      train->aggregators > 0 ? train->via[rank % train->aggregators] : job->via);
    }
    weft_args_add(args, "--reconnect-s=%u", train->job.reconnect_s);
    weft_args_add(args, "--replay-bytes=%llu", (unsigned long long)train->job.replay_bytes);
    weft_train_args_worker(job, train->data_path, args);
    if (job->save != NULL && rank == 0) {
        weft_args_add(args, "--save=%s", job->save);
    }
    return start(train, slot);
}
