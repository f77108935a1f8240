/* The settings of a training job that `weft train` and its workers share, and the options that set
 * them. Both verbs use the same table, so a worker accepts every option that train passes on. */
#ifndef WEFT_CLI_TRAIN_JOB_H
#define WEFT_CLI_TRAIN_JOB_H

#include "cli/node_options.h"
#include "cli/options.h"
#include "cli/train/compute.h"
#include "cli/train/until.h"
#include "node/recording.h"
#include "node/security.h"
#include "node/tracing.h"
#include "node/transport_options.h"

#include "base/status.h"
#include "ml/dataset.h"
#include "ml/defaults.h"
#include "ml/locate.h"
#include "ml/reference.h"

/* Limits that keep the endpoints' tables small. */
enum { WEFT_JOB_WORKERS_MAX = 64, WEFT_JOB_SHARDS_MAX = 32 };

enum weft_job_mode_kind { WEFT_JOB_BSP, WEFT_JOB_SSP, WEFT_JOB_ASP };

struct weft_job_mode {
    enum weft_job_mode_kind kind;
    uint32_t staleness; /* SSP: maximum lead over the slowest worker, in clocks */
};

struct weft_job {
    const struct weft_ml_model_kind *kind;
    struct weft_ml_model_settings settings; /* weft_job_settle fills in defaults */
    const char *data; /* as given; NULL = the data set installed with weft for the format */
    const char *format;
    uint32_t workers;
    struct weft_job_mode mode;
    uint32_t bound_ppm;
    uint32_t average;    /* divide gradients of a row by 1: the number received, 0: the number of
                          * workers */
    uint32_t value_type; /* enum weft_value_type: of gradients on the network */
    uint32_t pull_value_type; /* the same for weights */
    enum weft_ml_optimizer optimizer;
    uint32_t epochs;
    uint32_t batch_rows;
    float learning_rate; /* 0 = weft_job_rate; a worker sets the result of weft_job_find_rate */
    uint64_t seed;
    uint32_t inject_loss_ppm;
    uint64_t inject_seed;
    uint32_t busy_poll_us;
    uint32_t keepalive_ms; /* 0 = never */
    uint32_t reconnect_s;  /* UINT32_MAX = from the environment */
    uint64_t replay_bytes; /* UINT64_MAX = from the environment */
    const char *trace;     /* file to write the trace to; NULL = none */
    struct weft_recording recording;
    struct weft_rpc_record_ring *records; /* records of this process's client; NULL = none */
    const char *save;                     /* file to write the trained model to; NULL = none */
    const char *via;                      /* aggregators for a worker's pushes; NULL = none */
    uint32_t hot_rows;     /* > 0: only hot rows are sent through them, at most so many per shard */
    uint32_t cut_through;  /* > 1: pushes through them are cut into up to so many pieces */
    const char *scheduler; /* HOST:PORT; `weft train`: or "on"; NULL = none */
    struct weft_launch_address scheduler_address;
    uint32_t tau_max;         /* 0 = no bound */
    uint32_t link_mbps;       /* of a worker's host; 0 = not known */
    uint32_t no_key_caching;  /* 1: pushes always send their ids */
    uint32_t progress_thread; /* 1, engine: the endpoint has its own thread */
    struct weft_until until;
    struct weft_compute compute;
    struct weft_transport_options transport;
    struct weft_security security;
};

#define WEFT_JOB_BOUND_UNSET UINT32_MAX /* weft_job_settle sets the default */
enum { WEFT_JOB_BOUND_DEFAULT_PPM = 100000 };

enum { WEFT_JOB_BUSY_POLL_US_MAX = 10000, WEFT_JOB_SPAN_MS_MAX = 24 * 3600 * 1000 };

#define WEFT_JOB_BUSY_POLL_HELP                                                                    \
    "busy-poll the socket for N us before sleeping: replies arrive faster if\n"                    \
    "every thread has its own CPU, much slower if threads share CPUs; 0 = off"

#define WEFT_JOB_KEEPALIVE_HELP                                                                    \
    "probe a server after N ms without a packet from it, so that a worker that\n"                  \
    "is waiting for other workers also detects a failed server; without a reply\n"                 \
    "within --peer-timeout the server is declared dead. 0 = do not probe"

/* Milliseconds as a time of the endpoint, in ns; 0 = never. */
uint64_t weft_job_span_ns(uint32_t ms);

#define WEFT_JOB_DEFAULTS                                                                          \
    {                                                                                              \
        .kind = &weft_ml_model_kinds[0], .settings = {.l2 = -1.0F}, .format = "adult",             \
        .workers = 4, .mode = {.kind = WEFT_JOB_BSP},                                              \
        .bound_ppm = WEFT_JOB_BOUND_UNSET, .optimizer = WEFT_ML_ADAGRAD,                                         \
        .batch_rows = WEFT_ML_DEFAULT_BATCH_ROWS, .seed = WEFT_ML_DEFAULT_SEED, .inject_seed = 1,  \
        .keepalive_ms = 1000, .reconnect_s = UINT32_MAX, .replay_bytes = UINT64_MAX,               \
        .transport = WEFT_TRANSPORT_DEFAULTS,                                                      \
        .until = WEFT_UNTIL_DEFAULTS,                                                              \
        .recording = WEFT_RECORDING_DEFAULTS,                                                      \
        .security = WEFT_SECURITY_DEFAULTS,                                                        \
    }

const char *weft_job_parse_model(const char *text, void *value);
const char *weft_job_parse_l2(const char *text, void *value);
const char *weft_job_parse_format(const char *text, void *value);
const char *weft_job_parse_mode(const char *text, void *value);
/* Names for WEFT_OPTION_CHOICE. */
extern const char *const weft_job_averages[];
extern const char *const weft_job_optimizers[]; /* by enum weft_ml_optimizer */
extern const char *const weft_job_progress_threads[];
extern const char *const weft_job_value_types[]; /* by enum weft_value_type */
extern const char *const weft_job_pull_value_types[];

/* Rows of an option table. */
#define WEFT_JOB_OPTIONS(job)                                                                      \
    WEFT_OPTIONS_HEADING("model and data"),                                                        \
        {"model",                                                                                  \
         "NAME",                                                                                   \
         "lr = logistic regression, fm = factorization machine, mf = matrix\n"                     \
         "factorization of ratings, mlp = dense neural network with one hidden\n"                  \
         "layer (every step transfers all parameters), lda = topics of documents\n"                \
         "(latent Dirichlet allocation)",                                                          \
         WEFT_OPTION_CUSTOM,                                                                       \
         .value = &(job)->kind,                                                                    \
         .parse = weft_job_parse_model,                                                            \
         .fallback = "lr"},                                                                        \
        {"factors",                                                                                \
         "N",                                                                                      \
         "dimension of the latent vectors (fm, mf); hidden units (mlp);\n"                         \
         "topics (lda)",                                                                           \
         WEFT_OPTION_U32,                                                                          \
         .value = &(job)->settings.factors,                                                        \
         .min = 1,                                                                                 \
         .max = WEFT_ML_FACTORS_MAX,                                                               \
         .fallback = "63 for fm, 16 for mf, 144 for mlp, 50 for lda"},                             \
        {"l2",                                                                                     \
         "X",                                                                                      \
         "L2 regularization of the table rows that a batch uses",                                  \
         WEFT_OPTION_CUSTOM,                                                                       \
         .value = &(job)->settings.l2,                                                             \
         .parse = weft_job_parse_l2,                                                               \
         .fallback = "0 for lr and mlp, 0.04 for fm, 0.1 for mf"},                                 \
        {"init-scale",                                                                             \
         "X",                                                                                      \
         "latent vectors and the parameters of mlp are initialized uniformly\n"                    \
         "in [-X, X)",                                                                             \
         WEFT_OPTION_F32,                                                                          \
         .value = &(job)->settings.init_scale,                                                     \
         .fallback = "0.05, for mlp 0.08"},                                                        \
        {"alpha",                                                                                  \
         "X",                                                                                      \
         "lda: prior of the topics of a document",                                                 \
         WEFT_OPTION_F32,                                                                          \
         .value = &(job)->settings.alpha,                                                          \
         .fallback = "0.1"},                                                                       \
        {"beta",                                                                                   \
         "X",                                                                                      \
         "lda: prior of the words of a topic",                                                     \
         WEFT_OPTION_F32,                                                                          \
         .value = &(job)->settings.beta,                                                           \
         .fallback = "0.05"},                                                                      \
        {"data",                                                                                   \
         "PATH",                                                                                   \
         "data file, plain, .zst or .gz; a bare file name is searched for in the\n"                \
         "current directory, in $WEFT_DATA_DIR and in weft's data directory",                      \
         WEFT_OPTION_STRING,                                                                       \
         .value = &(job)->data,                                                                    \
         .fallback = "the data set installed with weft for the format, if any"},                   \
        {"format",                                                                                 \
         "NAME",                                                                                   \
         "adult = UCI Adult CSV; adult3 = adult plus three-way feature\n"                          \
         "crosses (15 times as many distinct features); libsvm = label and\n"                      \
         "index:value pairs; movielens = ratings.csv; tsv = label and categorical\n"               \
         "features; criteo = label, 13 integer and 26 categorical features;\n"                     \
         "docword = UCI bag of words, for lda",                                                    \
         WEFT_OPTION_CUSTOM,                                                                       \
         .value = &(job)->format,                                                                  \
         .parse = weft_job_parse_format,                                                           \
         .fallback = "adult"},                                                                     \
        {"optimizer",                                                                              \
         "NAME",                                                                                   \
         "adagrad or sgd; it runs on the servers",                                                 \
         WEFT_OPTION_CHOICE,                                                                       \
         .value = &(job)->optimizer,                                                               \
         .choices = weft_job_optimizers},                                                          \
        {"epochs",                                                                                 \
         "N",                                                                                      \
         "passes over the training examples",                                                      \
         WEFT_OPTION_U32,                                                                          \
         .value = &(job)->epochs,                                                                  \
         .min = 1,                                                                                 \
         .max = 10000,                                                                             \
         .fallback = "3 for lr, mlp; 16 for fm, 12 for mf, 50 for lda"},                           \
        {"batch",                                                                                  \
         "N",                                                                                      \
         "examples per worker and step",                                                           \
         WEFT_OPTION_U32,                                                                          \
         .value = &(job)->batch_rows,                                                              \
         .min = 1,                                                                                 \
         .max = 1000000},                                                                          \
        {"lr",                                                                                     \
         "X",                                                                                      \
         "learning rate. Default with adagrad: 0.1 for lr, 0.2 for fm and mf,\n"                   \
         "0.02 for mlp; with sgd: 0.4 for lr, 2 for fm, 1 for mf, 0.8 for mlp.\n"                  \
         "With --model lr and --format libsvm the default is found by a search on\n"               \
         "a sample of the training examples",                                                      \
         WEFT_OPTION_F32,                                                                          \
         .value = &(job)->learning_rate,                                                           \
         .fallback = ""},                                                                          \
        {"seed", "N",                                                                              \
         "seed of the order of examples and of the latent vectors; the same seed\n"                \
         "and --workers give the same batches",                                                    \
         WEFT_OPTION_U64, .value = &(job)->seed},                                                  \
        WEFT_UNTIL_OPTIONS(&(job)->until),                                                         \
        {"save",                                                                                   \
         "FILE",                                                                                   \
         "write the trained model to FILE, for `weft eval` and `weft predict`",                    \
         WEFT_OPTION_STRING,                                                                       \
         .value = &(job)->save,                                                                    \
         .fallback = ""},                                                                          \
        WEFT_OPTIONS_HEADING("consistency and packet loss"),                                       \
        {"workers",                                                                                \
         "N",                                                                                      \
         "number of workers in the job",                                                           \
         WEFT_OPTION_U32,                                                                          \
         .value = &(job)->workers,                                                                 \
         .min = 1,                                                                                 \
         .max = WEFT_JOB_WORKERS_MAX,                                                              \
         .fallback = (job)->workers == 0 ? "from the launcher's environment, else 1" : NULL},      \
        {"mode",                                                                                   \
         "MODE",                                                                                   \
         "bsp = all workers step together; ssp:N = a worker may be N steps ahead\n"                \
         "of the slowest; asp = workers never wait for each other",                                \
         WEFT_OPTION_CUSTOM,                                                                       \
         .value = &(job)->mode,                                                                    \
         .parse = weft_job_parse_mode,                                                             \
         .fallback = "bsp"},                                                                       \
        {"tau-max",                                                                                \
         "N",                                                                                      \
         WEFT_TAU_MAX_HELP,                                                                        \
         WEFT_OPTION_U32,                                                                          \
         .value = &(job)->tau_max,                                                                 \
         .max = WEFT_TAU_MAX_MAX},                                                                 \
        {"loss-bound",                                                                             \
         "F",                                                                                      \
         "accept each push and each pull reply with up to this fraction of its\n"                  \
         "elements missing, 0 <= F < 1; packets lost beyond that are\n"                            \
         "retransmitted. The bound is rounded down to whole packets; the\n"                        \
         "remainder is carried over to the next message, which may then miss one\n"                \
         "packet more",                                                                            \
         WEFT_OPTION_PPM,                                                                          \
         .value = &(job)->bound_ppm,                                                               \
         .fallback = "0.1; 0 for lda"},                                                            \
        {"average",                                                                                \
         "WHAT",                                                                                   \
         "workers = divide a row's gradients by the number of workers;\n"                          \
         "contributors = divide them by the number of gradients received for the\n"                \
         "row in the step. In ssp and asp, which have no common steps,\n"                          \
         "contributors does not divide gradients",                                                 \
         WEFT_OPTION_CHOICE,                                                                       \
         .value = &(job)->average,                                                                 \
         .choices = weft_job_averages},                                                            \
        {"inject-loss", "F", "drop this fraction of the packets that arrive at each process",      \
         WEFT_OPTION_PPM, .value = &(job)->inject_loss_ppm},                                       \
        {"inject-seed", "N", "seed that selects the packets to drop", WEFT_OPTION_U64,             \
         .value = &(job)->inject_seed},                                                            \
        WEFT_OPTIONS_HEADING("transport"), WEFT_TRANSPORT_ROWS(&(job)->transport),                 \
        WEFT_KEY_CACHING_ROW(&(job)->no_key_caching),                                              \
        {"value-type",                                                                             \
         "TYPE",                                                                                   \
         "send gradients as float32, as bf16 (half the bytes) or as int8 (1.03\n"                  \
         "bytes per gradient); a worker adds rounding errors and lost "                            \
         "gradients\n"                                                                             \
         "to the row's next gradient",                                                             \
         WEFT_OPTION_CHOICE,                                                                       \
         .value = &(job)->value_type,                                                              \
         .choices = weft_job_value_types},                                                         \
        {"pull-value-type",                                                                        \
         "TYPE",                                                                                   \
         "send weights as float32 or as bf16; those on the servers stay\n"                         \
         "float32",                                                                                \
         WEFT_OPTION_CHOICE,                                                                       \
         .value = &(job)->pull_value_type,                                                         \
         .choices = weft_job_pull_value_types},                                                    \
        {"progress-thread",                                                                        \
         "THREAD",                                                                                 \
         "thread that sends and receives packets: caller = the training thread;\n"                 \
         "engine = a separate thread in each worker",                                              \
         WEFT_OPTION_CHOICE,                                                                       \
         .value = &(job)->progress_thread,                                                         \
         .choices = weft_job_progress_threads},                                                    \
        {"busy-poll-us",                                                                           \
         "N",                                                                                      \
         WEFT_JOB_BUSY_POLL_HELP,                                                                  \
         WEFT_OPTION_U32,                                                                          \
         .value = &(job)->busy_poll_us,                                                            \
         .max = WEFT_JOB_BUSY_POLL_US_MAX},                                                        \
        {"keepalive-ms",                                                                           \
         "N",                                                                                      \
         WEFT_JOB_KEEPALIVE_HELP,                                                                  \
         WEFT_OPTION_U32,                                                                          \
         .value = &(job)->keepalive_ms,                                                            \
         .max = WEFT_JOB_SPAN_MS_MAX},                                                             \
        {"reconnect-s",                                                                            \
         "S",                                                                                      \
         "workers wait up to S seconds to reconnect to a failed server; 0 = the\n"                 \
         "failure of a server ends the run",                                                       \
         WEFT_OPTION_U32,                                                                          \
         .value = &(job)->reconnect_s,                                                             \
         .max = 86400,                                                                             \
         .fallback = "WEFT_RECONNECT_S, else 60 with --restart of `weft train` or `run`, else 0"}, \
        {"replay-bytes",                                                                           \
         "N",                                                                                      \
         "memory in each worker for copies of pushes that are in no checkpoint\n"                  \
         "yet; the worker resends those that a restarted server cannot restore\n"                  \
         "from its journal. 0 = no copies",                                                        \
         WEFT_OPTION_U64,                                                                          \
         .value = &(job)->replay_bytes,                                                            \
         .max = UINT64_C(1) << 40,                                                                 \
         .fallback = "WEFT_REPLAY_BYTES, else 0"},                                                 \
        WEFT_OPTIONS_HEADING("measurement"), WEFT_COMPUTE_OPTIONS(&(job)->compute),                \
        {"trace",       "FILE", WEFT_TRACING_HELP, WEFT_OPTION_STRING, .value = &(job)->trace,     \
         .fallback = ""},                                                                          \
        WEFT_RECORDING_ROWS(&(job)->recording)

/* "bsp", "ssp:2", "asp". */
void weft_job_mode_text(struct weft_job_mode mode, char *text, size_t bytes);

/* Key of the training loss in reports and worker events. */
const char *weft_job_train_key(const struct weft_job *job);

/* The learning rate of --lr, or the optimizer's default. */
float weft_job_rate(const struct weft_job *job);

/* Without --lr, workers search for a learning rate on the data (ml/rate.h) if the format's features
 * have a scale of their own and the model is a logistic regression. */
bool weft_job_searches_rate(const struct weft_job *job);

/* Find the data file of a job after weft_job_check. Errors: those of weft_ml_locate. */
weft_status weft_job_locate(const struct weft_job *job, struct weft_error *error,
                            char path_p[WEFT_ML_PATH_BYTES]);

/* Fill in defaults, including those that depend on the model (settings, epochs) or the environment.
 * Returns WEFT_OPTIONS_RUN, or the status of a usage error that was printed: a variable is not a
 * number. */
int weft_job_settle(const struct weft_command *command, struct weft_job *job);

/* Checks between options. Returns WEFT_OPTIONS_RUN, or the status of a usage error that was
 * printed. */
int weft_job_check(const struct weft_command *command, const struct weft_job *job);

#endif
