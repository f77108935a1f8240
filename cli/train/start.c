/* The processes of `weft train`: their command lines, their keys. */
#define _GNU_SOURCE
#include "cli/train/args.h"
#include "cli/train/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void add_common(struct train *train, struct weft_arguments *arguments)
{
    const struct weft_job *job = &train->job;
    /* Hosts of a lab have networks of their own, which nobody here could ask through. */
    if (train->place.lab == NULL) {
        weft_train_metrics_add(&train->metrics_options, arguments);
    }
    weft_arguments_add(arguments, "--workers=%u", job->workers);
    weft_train_words_path(job, arguments);
    weft_train_words_carrier(&job->transport, &job->security, arguments);
    /* A lab's network ends on this machine, too. */
    if (train->place.lab != NULL && job->security.mode == WEFT_MODE_NONE) {
        weft_arguments_add(arguments, "--insecure-network");
    }
}

/* The key for one child lies in a pipe, complete, before the child is started. */
static weft_status add_key(struct train *train, struct weft_arguments *arguments, int *fd_p)
{
    int ends[2];
    *fd_p = -1;
    if (train->job.security.key == NULL) {
        return WEFT_OK;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return WEFT_IO;
    }
    weft_status status = weft_job_key_write_fd(train->job.security.key, ends[1]);
    (void)close(ends[1]);
    if (status != WEFT_OK) {
        (void)close(ends[0]);
        return status;
    }
    weft_arguments_add(arguments, "--key-fd=%d", (int)WEFT_KEY_FD);
    arguments->key_fd = ends[0];
    *fd_p = ends[0];
    return WEFT_OK;
}

/* One file per process. */
static void add_trace(struct train *train, struct weft_arguments *arguments, const char *role,
                      uint32_t rank)
{
    if (train->job.trace != NULL) {
        weft_arguments_add(arguments, "--trace=%s.%s-%u", train->job.trace, role, rank);
    }
}

/* Children leave their spools; the one file is made at the end. */
static void add_records(struct train *train, struct weft_arguments *arguments)
{
    if (train->job.recording.path != NULL) {
        weft_arguments_add(arguments, "--records=%s", train->job.recording.path);
        weft_arguments_add(arguments, "--records-spool");
    }
}

static weft_status start(struct train *train, const char *role, uint32_t rank,
                         struct weft_arguments *arguments)
{
    struct weft_process *process;
    int key_fd;
    weft_status status = add_key(train, arguments, &key_fd);
    if (status == WEFT_OK) {
        status = weft_crew_start(&train->crew, role, rank, arguments, &process);
    }
    const char *lab_error = arguments->lab_error.text;
    weft_arguments_fini(arguments);
    if (key_fd >= 0) {
        int why = errno;
        (void)close(key_fd);
        errno = why;
    }
    if (status != WEFT_OK) {
        snprintf(train->error, sizeof(train->error), "cannot start %s %u: %s", role, rank,
                 lab_error[0] != '\0' ? lab_error : strerror(errno));
        return status;
    }
    fprintf(train->progress, "%s %u: pid %d\n", role, rank, (int)process->pid);
    fflush(train->progress);
    return WEFT_OK;
}

weft_status weft_train_start_server(struct train *train, uint32_t rank)
{
    struct weft_arguments arguments = {.count = 0};
    uint32_t base = rank * train->shards_per_server;
    weft_arguments_add(&arguments, "weft");
    weft_arguments_add(&arguments, "server");
    add_common(train, &arguments);
    weft_arguments_add(&arguments, "--port=%u", train->port != 0 ? train->port + base : 0);
    weft_arguments_add(&arguments, "--shards-per-server=%u", train->shards_per_server);
    weft_arguments_add(&arguments, "--shard-base=%u", base);
    weft_arguments_add(&arguments, "--shards=%u", train->servers * train->shards_per_server);
    weft_train_words_server(&train->job, &train->checkpoints, &arguments);
    weft_train_place_server(&train->place, rank, &arguments);
    add_trace(train, &arguments, "server", rank);
    add_records(train, &arguments);
    return start(train, "server", rank, &arguments);
}

weft_status weft_train_start_worker(struct train *train, uint32_t rank)
{
    const struct weft_job *job = &train->job;
    struct weft_arguments arguments = {.count = 0};
    weft_arguments_add(&arguments, "weft");
    weft_arguments_add(&arguments, "worker");
    add_common(train, &arguments);
    weft_arguments_add(&arguments, "--servers=%s", train->addresses);
    weft_arguments_add(&arguments, "--rank=%u", rank);
    weft_arguments_add(&arguments, "--reconnect-s=%u", train->job.reconnect_s);
    weft_arguments_add(&arguments, "--replay-bytes=%llu",
                       (unsigned long long)train->job.replay_bytes);
    weft_train_words_worker(job, train->data_path, &arguments);
    weft_train_place_worker(&train->place, rank, &arguments);
    if (job->save != NULL && rank == 0) {
        weft_arguments_add(&arguments, "--save=%s", job->save);
    }
    add_trace(train, &arguments, "worker", rank);
    add_records(train, &arguments);
    return start(train, "worker", rank, &arguments);
}
