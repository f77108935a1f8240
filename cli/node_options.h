/* Rows of option tables for src/node: security, transport, membership, checkpoints, the journal,
 * records and traces. A verb with endpoints includes the rows that it needs, so an option has the
 * same name, help and default in every verb. */
#ifndef WEFT_CLI_NODE_OPTIONS_H
#define WEFT_CLI_NODE_OPTIONS_H

#include "cli/options.h"
#include "node/checkpoint.h"
#include "node/journal_file.h"
#include "node/membership.h"
#include "node/recording.h"
#include "node/security.h"
#include "node/transport_options.h"

/* ---- security -------------------------------------------------------------------------------- */

const char *weft_security_parse_mode(const char *text, void *value);
#define WEFT_SECURITY_ROWS(security) WEFT_SECURITY_ROWS_WITH(security, ", loopback only")

/* For verbs with endpoints only on loopback and in labs, where every mode is allowed. */
#define WEFT_SECURITY_LAB_ROWS(security) WEFT_SECURITY_ROWS_WITH(security, "")

#define WEFT_SECURITY_ROWS_WITH(security, none_where)                                              \
    {"security", "MODE", "auth = packets are authenticated, the payload is readable; seal =\n"     \
                         "authenticated and encrypted; none = neither" none_where,                 \
                         WEFT_OPTION_CUSTOM,                                                       \
     .value = &(security)->mode, .parse = weft_security_parse_mode, .fallback = "auth"},           \
    {"key-file", "FILE", "file with the job key, from `weft keygen`. Default: the variable\n"      \
                         "WEFT_JOB_KEY, or a new key if this command starts all processes of the\n"\
                         "job",                                                                    \
     WEFT_OPTION_STRING, .value = &(security)->key_file, .fallback = ""}

/* For verbs whose endpoints can be reachable from other machines. */
#define WEFT_SECURITY_NETWORK_ROWS(security)                                                       \
    WEFT_SECURITY_ROWS(security),                                                                  \
    {"insecure-network", NULL,                                                                     \
     "allow --security none beyond loopback, where any host on the network\n"                      \
     "can read and change the parameters", WEFT_OPTION_FLAG,                                       \
     .value = &(security)->insecure_network},                                                      \
    {"key-fd", "FD", "pipe with the job key from `weft train`", WEFT_OPTION_U32,                   \
     .value = &(security)->key_fd, .hidden = true}

/* Checks between options. Returns WEFT_OPTIONS_RUN, or the status of a usage error that was
 * printed. */
int weft_security_check(const struct weft_command *command, const struct weft_security *security);

/* ---- transport ------------------------------------------------------------------------------- */

extern const char *const weft_transport_names[]; /* by enum weft_driver_kind */

#define WEFT_TRANSPORT_ROWS(transport)                                                             \
    {"transport", "NAME",                                                                          \
     "weft = UDP; tcp = the same messages over kernel TCP, without loss, for\n"                    \
                          "comparison or where UDP is blocked", WEFT_OPTION_CHOICE,                \
     .value = &(transport)->kind, .choices = weft_transport_names},                                \
    {"tcp-cc", "NAME", "congestion control of TCP, such as cubic, bbr or dctcp",                   \
     WEFT_OPTION_STRING, .value = &(transport)->tcp_cc, .fallback = "the host's"},                 \
    {"tcp-rto-min", "MS", "minimum retransmission timeout of TCP, rounded up to the kernel's\n"    \
     "tick; 0 = the host's setting, usually 200", WEFT_OPTION_U32,                                 \
     .value = &(transport)->tcp_rto_min_ms, .max = 60000},                                         \
    {"peer-timeout", "S", "declare a peer dead after S seconds without a reply; the environment\n" \
     "variable WEFT_PEER_TIMEOUT_S sets another default",                                          \
     WEFT_OPTION_U32, .value = &(transport)->peer_timeout_s, .min = 1, .max = 86400}

extern const char *const weft_key_caching_names[]; /* 0 = on, 1 = off */

/* For verbs with workers; no_p: uint32_t. */
#define WEFT_KEY_CACHING_ROW(no_p)                                                                 \
    {"key-caching", "WHAT",                                                                        \
     "on = servers cache the row ids of a pull, and a push of the same rows\n"                     \
     "refers to that list instead of sending the ids; off = every push sends\n"                    \
     "its ids",                                                                                    \
     WEFT_OPTION_CHOICE, .value = (no_p), .choices = weft_key_caching_names}

/* Checks between options. Returns WEFT_OPTIONS_RUN, or the status of a usage error that was
 * printed. */
int weft_transport_options_check(const struct weft_command *command,
                                 const struct weft_transport_options *transport,
                                 uint32_t inject_loss_ppm, const char *trace);

/* Replace --tcp-cc by the kernel's name for it (cli/tcp_cc.h). Call once, after the checks and
 * before a thread or process uses the name. Also reports a WEFT_PEER_TIMEOUT_S that is not a
 * number. Returns WEFT_OPTIONS_RUN, or an exit status after an error message. */
int weft_transport_options_find_cc(const struct weft_command *command,
                                   struct weft_transport_options *transport);

/* ---- the transfer scheduler ------------------------------------------------------------------ */

/* The base version of an update is sent modulo 2^24. */
enum { WEFT_TAU_MAX_MAX = (1 << 23) - 1 };

#define WEFT_SCHEDULER_ROW(text_p, otherwise)                                                      \
    {"scheduler", "HOST:PORT", "address of the job's transfer scheduler (`weft scheduler`); all\n" \
                               "workers and servers of a job must use the same one",               \
                               WEFT_OPTION_STRING, .value = (text_p),                              \
     .fallback = (otherwise)}

#define WEFT_LINK_MBPS_ROW(value_p)                                                                \
    {"link-mbps", "MBPS", "with a scheduler: rate of this host's links, in Mbit/s; the plan\n"     \
                          "uses the measured rate of a link that is slower",                       \
                          WEFT_OPTION_U32, .value = (value_p), .max = 10000000,                    \
     .fallback = "that of `weft scheduler`"}

#define WEFT_TAU_MAX_HELP                                                                          \
    "with a scheduler and --mode ssp or asp: drop an update, or reject it\n"                       \
    "at the servers, if more than N other updates would be applied between\n"                      \
    "its base version (the model that it is computed from) and the update;\n"                      \
    "0 = no bound. Updates in a sum (--via) count one by one"

/* Parse --scheduler HOST:PORT, with a numeric host. Returns WEFT_OPTIONS_RUN, or the status of a
 * usage error that was printed. */
int weft_scheduler_address(const struct weft_command *command, const char *text,
                           struct weft_launch_address *address_p);

/* ---- membership ------------------------------------------------------------------------------ */

#define WEFT_MEMBERSHIP_ROWS(membership)                                                           \
    {"coordinator", "HOST:PORT",                                                                   \
     "address of the job's coordinator (`weft coordinator`), which provides\n"                     \
     "the addresses of the shards", WEFT_OPTION_STRING, .value = &(membership)->coordinator,       \
     .fallback = "WEFT_COORDINATOR, or from the launcher's environment"},                          \
    {"start-timeout", "S", "wait up to S seconds for the coordinator and for missing members",     \
     WEFT_OPTION_U32, .value = &(membership)->patience_s, .min = 1, .max = 86400}

/* Determine the role and rank of this process, from options first, then from the environment. If
 * the environment provided a value, print a line on standard error. flags.coordinator_* are set
 * from --coordinator.
 *
 * environment: false = use only options.
 * Returns WEFT_OPTIONS_RUN, or the status of a usage error that was printed. */
int weft_membership_detect(struct weft_membership *membership, const struct weft_command *command,
                           const struct weft_launch *flags, uint32_t shards_per_server,
                           bool environment);

/* ---- checkpoints and the journal ------------------------------------------------------------- */

#define WEFT_CHECKPOINT_ROWS(options)                                                              \
    {"checkpoint", "DIR", "write checkpoints to DIR, which all servers of the job share; SIGUSR1\n"\
     "to a server requests one", WEFT_OPTION_STRING,                                               \
     .value = &(options)->directory, .fallback = "none"},                                          \
    {"checkpoint-every", "N", "N steps between checkpoints; with the suffix s, as in 60s, N seconds",         \
     WEFT_OPTION_STRING, .value = &(options)->every,                                               \
     .fallback = "60s if the job has one server process, else 1000 steps"},                                  \
    {"checkpoint-full-every", "N",                                                                \
     "make every Nth checkpoint a full one; the others are incremental and\n"                      \
     "contain the rows changed since the previous checkpoint", WEFT_OPTION_U32,                    \
     .value = &(options)->full_every, .min = 1, .max = 1000},                                     \
    {"checkpoint-keep", "N", "keep the newest N checkpoints and those that they depend on",        \
     WEFT_OPTION_U32,                                                                              \
     .value = &(options)->keep, .min = 1, .max = 1000000},                                         \
    {"checkpoint-memory", "MIB",                                                                   \
     "memory of each shard for copies of rows that change while a checkpoint\n"                    \
     "is written; if it is exhausted, the checkpoint is abandoned and\n"                           \
     "reported", WEFT_OPTION_U32,                                                                  \
     .value = &(options)->memory_mib, .min = 1, .max = 1u << 20}

#define WEFT_JOURNAL_ROWS(options)                                                                 \
    {"journal", "DIR", "with --checkpoint: journal the changes since the newest checkpoint to\n"   \
                       "files in DIR, so that a killed server can be restored exactly. In\n"       \
                       "memory (/dev/shm) the journal is fast and survives the process but not\n"  \
                       "the host; on a disk it survives power loss only with --journal-fsync",     \
                       WEFT_OPTION_STRING,                                                         \
     .value = &(options)->directory, .fallback = "none"},                                          \
    {"journal-mib", "MIB",                                                                         \
     "maximum size of a shard's journal; a checkpoint starts when it is half\n"                    \
     "full, and at three quarters journaling stops until the next checkpoint", WEFT_OPTION_U32,    \
     .value = &(options)->mib, .min = 1, .max = 1u << 20},                                         \
    {"journal-fsync", NULL, "write the journal to disk before each reply, once for all requests\n" \
                            "that arrived together; every push then waits for the disk",           \
                            WEFT_OPTION_FLAG,                                                      \
     .value = &(options)->sync}

/* ---- records and traces ---------------------------------------------------------------------- */

#define WEFT_RECORDING_ROWS(recording)                                                             \
    {                                                                                              \
        "records", "FILE",                                                                         \
            "record the latency of every push and pull by stage, for `weft trace`:\n"              \
            "a SQLite database, or JSON lines if FILE ends in .jsonl\n"                            \
            "(docs/RECORDS.md)",                                                                   \
            WEFT_OPTION_STRING, .value = &(recording)->path, .fallback = "none"                    \
    }

/* For verbs with servers. */
#define WEFT_RECORDING_WINDOW_ROW(recording)                                                       \
    {                                                                                              \
        "active-window-us", "N",                                                                   \
            "with --records: also count, for each interval of N microseconds, the\n"               \
            "workers that sent a request",                                                         \
            WEFT_OPTION_U32, .value = &(recording)->window_us, .min = 1, .max = 60000000           \
    }

#define WEFT_RECORDING_CHILD_ROW(recording)                                                        \
    {                                                                                              \
        "records-spool", NULL, "write only the spool file; `weft train` makes the database",       \
        WEFT_OPTION_FLAG,                                                                          \
            .value = &(recording)->spool_only, .hidden = true                                      \
    }

#define WEFT_TRACING_HELP                                                                          \
    "write a trace of packets and messages, at most 1 GB per process, for\n"                       \
    "`weft trace`; a job writes one per process: FILE.worker-0,\n"                                 \
    "FILE.server-0 ..."

#endif
