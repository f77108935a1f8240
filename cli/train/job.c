#include "cli/node_options.h"
#include "cli/train/job.h"

#include "base/assert.h"
#include "ml/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const weft_job_averages[] = {"workers", "contributors", NULL};
const char *const weft_job_optimizers[] = {"adagrad", "sgd", NULL};
const char *const weft_job_progress_threads[] = {"caller", "engine", NULL};
const char *const weft_job_value_types[] = {"float32", "bf16", "int8", NULL};
const char *const weft_job_pull_value_types[] = {"float32", "bf16", NULL};

const char *weft_job_parse_model(const char *text, void *value)
{
    const struct weft_ml_model_kind *kind;
    if (weft_ml_model_find(text, NULL, &kind) != WEFT_OK) {
        return "lr, fm, mf, mlp or lda";
    }
    *(const struct weft_ml_model_kind **)value = kind;
    return NULL;
}

const char *weft_job_parse_l2(const char *text, void *value)
{
    float l2;
    if (!weft_ml_number_f32(text, strlen(text), &l2) || l2 < 0.0F) {
        return "a number of at least 0, such as 0.04";
    }
    *(float *)value = l2;
    return NULL;
}

const char *weft_job_parse_format(const char *text, void *value)
{
    const struct weft_ml_format *format;
    if (weft_ml_format_find(text, NULL, &format) != WEFT_OK) {
        return "adult, adult3, libsvm, movielens, tsv, criteo or docword";
    }
    *(const char **)value = format->name;
    return NULL;
}

const char *weft_job_parse_mode(const char *text, void *value)
{
    struct weft_job_mode mode = {.kind = WEFT_JOB_BSP};
    if (strcmp(text, "asp") == 0) {
        mode.kind = WEFT_JOB_ASP;
    } else if (strncmp(text, "ssp:", 4) == 0) {
        uint64_t staleness;
        if (!weft_ml_number_u64(text + 4, strlen(text + 4), &staleness) || staleness > 1000000) {
            return "ssp:N with N a whole number from 0 to 1000000, such as ssp:2";
        }
        mode = (struct weft_job_mode){.kind = WEFT_JOB_SSP, .staleness = (uint32_t)staleness};
    } else if (strcmp(text, "bsp") != 0) {
        return "bsp, ssp:N (such as ssp:2) or asp";
    }
    *(struct weft_job_mode *)value = mode;
    return NULL;
}

void weft_job_mode_text(struct weft_job_mode mode, char *text, size_t bytes)
{
    if (mode.kind == WEFT_JOB_SSP) {
        snprintf(text, bytes, "ssp:%u", mode.staleness);
    } else {
        snprintf(text, bytes, "%s", mode.kind == WEFT_JOB_BSP ? "bsp" : "asp");
    }
}

uint64_t weft_job_span_ns(uint32_t ms)
{
    return ms == 0 ? WEFT_NEVER : ms * WEFT_NS_PER_MS;
}

const char *weft_job_train_key(const struct weft_job *job)
{
    return job->kind->predicts_ratings ? "train_mse"
           : job->kind->counts_topics  ? "train_perplexity"
                                       : "train_logloss";
}

float weft_job_rate(const struct weft_job *job)
{
    if (job->learning_rate > 0.0F) {
        return job->learning_rate;
    }
    const struct weft_ml_model_pace *pace = &job->kind->pace;
    return job->optimizer == WEFT_ML_SGD ? pace->sgd_rate : pace->adagrad_rate;
}

/* The `data` directory next to the program, as in a build directory. NULL: its path is too long. */
static const char *beside_program(char path_p[WEFT_ML_PATH_BYTES])
{
    static const char name[] = "data";
    ssize_t bytes = readlink("/proc/self/exe", path_p, WEFT_ML_PATH_BYTES);
    while (bytes > 0 && path_p[bytes - 1] != '/') {
        bytes--;
    }
    if (bytes <= 0 || (size_t)bytes > WEFT_ML_PATH_BYTES - sizeof(name)) {
        return NULL;
    }
    memcpy(path_p + bytes, name, sizeof(name));
    return path_p;
}

bool weft_job_searches_rate(const struct weft_job *job)
{
    const struct weft_ml_format *format;
    return job->learning_rate == 0.0F && !job->kind->has_factors &&
           weft_ml_format_find(job->format, NULL, &format) == WEFT_OK && format->has_scale;
}

weft_status weft_job_locate(const struct weft_job *job, struct weft_error *error,
                            char path_p[WEFT_ML_PATH_BYTES])
{
    const struct weft_ml_format *format;
    weft_status status = weft_ml_format_find(job->format, error, &format);
    if (status != WEFT_OK) {
        return status;
    }
    const char *name = job->data != NULL ? job->data : format->shipped;
    WEFT_ASSERT(name != NULL); /* weft_job_check */
    char beside[WEFT_ML_PATH_BYTES];
    const char *const directories[] = {getenv("WEFT_DATA_DIR"), beside_program(beside),
                                       WEFT_DATA_INSTALLED};
    return weft_ml_locate(name, directories, WEFT_ARRAY_COUNT(directories), error, path_p);
}

/* The first given option that cannot be used with counts; NULL if there is none. Call before
 * defaults are set. */
static const char *not_of_topics(const struct weft_job *job)
{
    return job->bound_ppm != WEFT_JOB_BOUND_UNSET && job->bound_ppm > 0 ? "--loss-bound"
           : job->value_type != 0                                       ? "--value-type"
           : job->pull_value_type != 0                                  ? "--pull-value-type"
           : job->settings.l2 >= 0                                      ? "--l2"
           : job->settings.init_scale > 0                               ? "--init-scale"
           : job->learning_rate != 0                                    ? "--lr"
           : job->optimizer != WEFT_ML_ADAGRAD                          ? "--optimizer"
           : job->average != 0                                          ? "--average"
                                                                        : NULL;
}

int weft_job_settle(const struct weft_command *command, struct weft_job *job)
{
    if (job->kind->counts_topics && not_of_topics(job) != NULL) {
        return weft_options_usage(command,
                                  "%s cannot be used with --model lda, which requires complete "
                                  "delivery of counts",
                                  not_of_topics(job));
    }
    if (job->kind->counts_topics) {
        job->optimizer = WEFT_ML_SGD;
    }
    const struct weft_ml_model_settings *usual = &job->kind->settings;
    struct weft_ml_model_settings *settings = &job->settings;
    settings->factors = settings->factors > 0 ? settings->factors : usual->factors;
    settings->init_scale = settings->init_scale > 0 ? settings->init_scale : usual->init_scale;
    settings->l2 = settings->l2 >= 0 ? settings->l2 : usual->l2;
    settings->alpha = settings->alpha > 0 ? settings->alpha : usual->alpha;
    settings->beta = settings->beta > 0 ? settings->beta : usual->beta;
    if (job->bound_ppm == WEFT_JOB_BOUND_UNSET) {
        job->bound_ppm = job->kind->counts_topics ? 0 : WEFT_JOB_BOUND_DEFAULT_PPM;
    }
    job->epochs = job->epochs > 0 ? job->epochs : job->kind->pace.epochs;
    struct weft_error error;
    uint64_t seconds = 0, bytes = 0;
    weft_status status = WEFT_OK;
    if (job->reconnect_s == UINT32_MAX) {
        status = weft_launch_number("WEFT_RECONNECT_S", 0, 86400, &seconds, &error);
        job->reconnect_s = (uint32_t)seconds;
    }
    if (status == WEFT_OK && job->replay_bytes == UINT64_MAX) {
        status = weft_launch_number("WEFT_REPLAY_BYTES", 0, UINT64_C(1) << 40, &bytes, &error);
        job->replay_bytes = bytes;
    }
    /* Only pushes for servers that can be reconnected are kept. */
    job->replay_bytes = job->reconnect_s > 0 ? job->replay_bytes : 0;
    return status == WEFT_OK ? weft_compute_settle(command, &job->compute)
                             : weft_options_usage(command, "%s", error.text);
}

/* Aggregators of a worker: --via, else WEFT_VIA; NULL = none. */
static const char *via_of(const struct weft_job *job)
{
    const char *via = job->via != NULL ? job->via : getenv("WEFT_VIA");
    return via != NULL && via[0] != '\0' ? via : NULL;
}

static int check_scheduler(const struct weft_command *command, const struct weft_job *job)
{
    const char *via = via_of(job);
    if (job->tau_max > 0 && job->scheduler == NULL) {
        return weft_options_usage(command,
                                  "--tau-max requires --scheduler, which enforces the bound");
    }
    if (job->tau_max > 0 && job->mode.kind == WEFT_JOB_BSP) {
        return weft_options_usage(command, "--tau-max requires --mode ssp or asp; bsp waits for "
                                           "every update");
    }
    if (job->tau_max > 0 && job->kind->counts_topics && job->mode.kind != WEFT_JOB_ASP) {
        return weft_options_usage(command,
                                  "--tau-max with --model lda requires --mode asp: counts that "
                                  "were dropped are pushed in additional clocks, for which ssp "
                                  "would wait");
    }
    if (job->scheduler != NULL && via != NULL && strcmp(via, "coordinator") == 0) {
        return weft_options_usage(command, "--scheduler cannot be used with --via coordinator: it "
                                           "needs a list of aggregators that is the same for all "
                                           "workers");
    }
    return WEFT_OPTIONS_RUN;
}

static int check_cut_through(const struct weft_command *command, const struct weft_job *job)
{
    if (job->cut_through > 0 && (job->scheduler == NULL || via_of(job) == NULL)) {
        return weft_options_usage(command,
                                  "--cut-through requires --scheduler, and --via or WEFT_VIA: "
                                  "it cuts updates that are sent through an aggregator");
    }
    return WEFT_OPTIONS_RUN;
}

static int check_hot_rows(const struct weft_command *command, const struct weft_job *job)
{
    if (job->hot_rows > 0 && via_of(job) == NULL) {
        return weft_options_usage(command,
                                  "--hot-rows requires --via or WEFT_VIA: hot rows are sent "
                                  "through an aggregator, all others to the servers");
    }
    if (job->hot_rows > 0 && job->scheduler != NULL) {
        return weft_options_usage(command,
                                  "--hot-rows cannot be used with --scheduler, which selects "
                                  "one path for all rows of an update");
    }
    return WEFT_OPTIONS_RUN;
}

int weft_job_check(const struct weft_command *command, const struct weft_job *job)
{
    const struct weft_ml_format *format;
    if (weft_ml_format_find(job->format, NULL, &format) == WEFT_OK && format->shipped == NULL &&
        job->data == NULL) {
        return weft_options_usage(command,
                                  "--data is missing: no data set is installed with weft for the "
                                  "format %s",
                                  format->name);
    }
    if (weft_ml_format_find(job->format, NULL, &format) == WEFT_OK && job->kind->predicts_ratings &&
        !format->has_ratings) {
        return weft_options_usage(command,
                                  "--model %s requires ratings, which the format %s does not have "
                                  "(--format movielens has)",
                                  job->kind->name, format->name);
    }
    if (weft_ml_format_find(job->format, NULL, &format) == WEFT_OK &&
        job->kind->counts_topics != format->has_counts) {
        return weft_options_usage(command,
                                  "--model %s and --format %s do not match: lda requires "
                                  "word counts, and only docword has them",
                                  job->kind->name, job->format);
    }
    bool has_classes = !job->kind->predicts_ratings && !job->kind->counts_topics;
    if (!has_classes && (job->until.loss > 0.0F || job->until.auc > 0.0F)) {
        return weft_options_usage(command,
                                  "--until-loss and --until-auc are for click models; "
                                  "--model %s has no log-loss and no AUC",
                                  job->kind->name);
    }
    if (!job->kind->counts_topics && job->until.perplexity > 0.0F) {
        return weft_options_usage(command,
                                  "--until-perplexity is for --model lda; --model %s has no "
                                  "perplexity",
                                  job->kind->name);
    }
    int status = check_scheduler(command, job);
    status = status == WEFT_OPTIONS_RUN ? check_hot_rows(command, job) : status;
    status = status == WEFT_OPTIONS_RUN ? check_cut_through(command, job) : status;
    status = status == WEFT_OPTIONS_RUN ? weft_until_verify(command, &job->until) : status;
    return status != WEFT_OPTIONS_RUN
               ? status
               : weft_transport_options_check(command, &job->transport, job->inject_loss_ppm,
                                              job->trace);
}
