#include "cli/train/restart.h"

#include "cli/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_blank(const char *text)
{
    return text != NULL && strchr(text, ' ') != NULL;
}

int weft_train_again_check(const struct weft_command *command, struct weft_train_again *again,
                           const struct weft_job *job,
                           const struct weft_checkpoint_options *checkpoints)
{
    const char *durability = again->durability;
    again->has_reconnect = job->reconnect_s != UINT32_MAX;
    again->has_replay = job->replay_bytes != UINT64_MAX;
    if (durability != NULL && strcmp(durability, "none") != 0 &&
        strcmp(durability, "replay") != 0) {
        return weft_options_usage(command,
                                  "--durability %.40s is not allowed; it must be none or "
                                  "replay",
                                  durability);
    }
    if (again->restarts == 0 && durability != NULL) {
        return weft_options_usage(command, "--durability goes with --restart");
    }
    if (again->restarts > 0 && checkpoints->directory == NULL) {
        return weft_options_usage(command, "--restart needs --checkpoint DIR: a server that is "
                                           "started again goes on from there");
    }
    if (again->restarts > 0 && has_blank(checkpoints->directory)) {
        return weft_options_usage(command, "--restart takes no --checkpoint directory with a blank "
                                           "in its name");
    }
    if (again->restarts > 0 && has_blank(checkpoints->every)) {
        return weft_options_usage(command, "--checkpoint-every \"%.40s\" has a blank in it",
                                  checkpoints->every);
    }
    return WEFT_OPTIONS_RUN;
}

/* One argument with blanks between the words, as --server-options wants it. */
static char *join(const struct weft_arguments *arguments)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (unsigned i = 0; out != NULL && i < arguments->count; i++) {
        fprintf(out, "%s%s", i > 0 ? " " : "", arguments->words[i]);
    }
    if (out == NULL || fclose(out) != 0) {
        fprintf(stderr, "weft: out of memory\n");
        exit(1);
    }
    return text;
}

/* The words of `weft run` before --server-options. */
static void add_run(const struct weft_train_again *again, const struct weft_train_again_job *what,
                    struct weft_arguments *arguments)
{
    const struct weft_job *job = what->job;
    const struct weft_metrics_options *metrics = what->metrics;
    bool v6 = strchr(metrics->host, ':') != NULL;
    weft_arguments_add(arguments, "run");
    weft_arguments_add(arguments, "--workers=%u", job->workers);
    weft_arguments_add(arguments, "--servers=%u", what->servers);
    weft_arguments_add(arguments, "--shards-per-server=%u", what->shards_per_server);
    weft_arguments_add(arguments, "--restart=%u", again->restarts);
    if (again->durability != NULL) {
        weft_arguments_add(arguments, "--durability=%s", again->durability);
    }
    if (metrics->host[0] != '\0') {
        weft_arguments_add(arguments, "--metrics=%s%s%s:%u", v6 ? "[" : "", metrics->host,
                           v6 ? "]" : "", metrics->port);
    }
    if (job->security.key_file != NULL) {
        weft_arguments_add(arguments, "--key-file=%s", job->security.key_file);
    }
    weft_train_words_carrier(&job->transport, &job->security, arguments);
}

static void add_servers(const struct weft_train_again_job *what, struct weft_arguments *arguments)
{
    struct weft_arguments words = {.count = 0};
    weft_train_words_path(what->job, &words);
    weft_train_words_server(what->job, what->checkpoints, &words);
    char *text = join(&words);
    weft_arguments_add(arguments, "--server-options=%s", text);
    free(text);
    weft_arguments_fini(&words);
}

static void add_workers(const struct weft_train_again *again,
                        const struct weft_train_again_job *what, struct weft_arguments *arguments)
{
    const struct weft_job *job = what->job;
    weft_arguments_add(arguments, "--");
    weft_arguments_add(arguments, "/proc/self/exe");
    weft_arguments_add(arguments, "worker");
    weft_train_words_path(job, arguments);
    weft_train_words_carrier(&job->transport, &job->security, arguments);
    weft_train_words_worker(job, what->data_path, arguments);
    if (again->has_reconnect) {
        weft_arguments_add(arguments, "--reconnect-s=%u", job->reconnect_s);
    }
    if (again->has_replay) {
        weft_arguments_add(arguments, "--replay-bytes=%llu", (unsigned long long)job->replay_bytes);
    }
    if (job->save != NULL) {
        weft_arguments_add(arguments, "--save=%s", job->save); /* rank 0 does */
    }
}

int weft_train_again(const struct weft_train_again *again, const struct weft_train_again_job *what)
{
    struct weft_arguments arguments = {.count = 0};
    add_run(again, what, &arguments);
    add_servers(what, &arguments);
    add_workers(again, what, &arguments);
    int status = weft_cli_run((int)arguments.count, arguments.words);
    weft_arguments_fini(&arguments);
    return status;
}
