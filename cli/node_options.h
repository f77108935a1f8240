/* Rows of option tables for what src/node takes: security, transport, membership, checkpoints, the
 * journal, records and traces. A verb that runs endpoints puts those that it needs into its table, so
 * an option has the same name, help and default everywhere.
 */
#ifndef WEFT_CLI_NODE_OPTIONS_H
#define WEFT_CLI_NODE_OPTIONS_H

#include "cli/options.h"
#include "node/checkpoint.h"
#include "node/journal.h"
#include "node/membership.h"
#include "node/recording.h"
#include "node/security.h"
#include "node/transport_options.h"

/* ---- security -------------------------------------------------------------------------------- */

const char *weft_security_parse_mode(const char *text, void *value);
#define WEFT_SECURITY_ROWS(security)                                                               \
    {"security", "MODE", "auth = packets are authenticated, the payload is readable; seal =\n"     \
     "authenticated and encrypted; none = neither, refused beyond loopback", WEFT_OPTION_CUSTOM,   \
     .value = &(security)->mode, .parse = weft_security_parse_mode, .fallback = "auth"},           \
    {"key-file", "FILE", "file with the job key, from `weft keygen`; without it: the variable\n"   \
     "WEFT_JOB_KEY, else, if this command starts all processes of the job, a fresh\n"             \
     "key",                                                                                        \
     WEFT_OPTION_STRING, .value = &(security)->key_file, .fallback = ""}

/* For verbs whose endpoints may be reached from beyond this machine. */
#define WEFT_SECURITY_NETWORK_ROWS(security)                                                       \
    WEFT_SECURITY_ROWS(security),                                                                  \
    {"insecure-network", NULL, "allow --security none beyond loopback, where anybody on the network\n"\
     "can read and change the parameters", WEFT_OPTION_FLAG,                                       \
     .value = &(security)->insecure_network},                                                      \
    {"key-fd", "FD", "pipe with the job key from `weft train`", WEFT_OPTION_U32,                   \
     .value = &(security)->key_fd, .hidden = true}

/* What the option table cannot say: WEFT_OPTIONS_RUN, or a usage error printed. */
int weft_security_check(const struct weft_command *command, const struct weft_security *security);

/* ---- transport ------------------------------------------------------------------------------- */

extern const char *const weft_transport_names[]; /* of enum weft_driver_kind */

#define WEFT_TRANSPORT_ROWS(transport)                                                             \
    {"transport", "NAME", "weft = UDP; tcp = the same messages over kernel TCP, all delivered\n"   \
     "completely, for comparison or where UDP is blocked", WEFT_OPTION_CHOICE,                     \
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

/* Of verbs with workers; no_p: uint32_t. */
#define WEFT_KEY_CACHING_ROW(no_p)                                                                 \
    {"key-caching", "WHAT", "on = servers keep the list of row ids of a pull, and a push of the same\n"\
     "rows refers to that list instead of sending the ids again; off = every push\n"              \
     "sends its ids",                                                                              \
     WEFT_OPTION_CHOICE, .value = (no_p), .choices = weft_key_caching_names}

/* What the option table cannot say: WEFT_OPTIONS_RUN, or a usage error printed. */
int weft_transport_options_check(const struct weft_command *command, const struct weft_transport_options *transport,
                       uint32_t inject_loss_ppm, const char *trace);

/* The kernel's name for --tcp-cc (cli/tcp_cc.h): due once, after the checks and before a thread or a
 * process uses it; says here, too, that WEFT_PEER_TIMEOUT_S is no number. WEFT_OPTIONS_RUN, or an exit
 * status with a sentence printed. */
int weft_transport_options_find_cc(const struct weft_command *command, struct weft_transport_options *transport);

/* ---- the transfer scheduler ------------------------------------------------------------------ */

/* The base of an update is told modulo 2^24. */
enum { WEFT_TAU_MAX_MAX = (1 << 23) - 1 };

#define WEFT_SCHEDULER_ROW(text_p)                                                                 \
    {"scheduler", "HOST:PORT", "address of the job's transfer scheduler (`weft scheduler`); all\n" \
     "workers and servers of a job must name it", WEFT_OPTION_STRING, .value = (text_p),          \
     .fallback = "none"}

#define WEFT_TAU_MAX_HELP                                                                          \
    "with a scheduler and --mode ssp or asp: updates that would be applied more\n"                 \
    "than N others after the model that they are computed from are dropped, or\n"                  \
    "refused by the servers; 0 = no bound"

/* --scheduler HOST:PORT with a numeric host: WEFT_OPTIONS_RUN, or a usage error printed. */
int weft_scheduler_address(const struct weft_command *command, const char *text,
                           struct weft_launch_address *address_p);

/* ---- membership ------------------------------------------------------------------------------ */

#define WEFT_MEMBERSHIP_ROWS(membership)                                                           \
    {"coordinator", "HOST:PORT", "address of the job's coordinator (`weft coordinator`), which tells\n"\
     "where the shards are", WEFT_OPTION_STRING, .value = &(membership)->coordinator,              \
     .fallback = "WEFT_COORDINATOR, or as the launcher says"},                                     \
    {"start-timeout", "S", "wait up to S seconds for the coordinator and for missing members",     \
     WEFT_OPTION_U32, .value = &(membership)->patience_s, .min = 1, .max = 86400}

/* Find out who this process is: flags first, then the environment; one line on standard error when
 * the environment said something. flags.coordinator_* are filled in from --coordinator.
 *
 * environment: false = flags alone count.
 * Returns WEFT_OPTIONS_RUN, or a usage error printed. */
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
    {"checkpoint-whole-every", "N", "make every Nth checkpoint a full one, the others incremental ones: rows\n"\
     "that changed since the previous checkpoint", WEFT_OPTION_U32, .value = &(options)->whole_every, .min = 1, .max = 1000},\
    {"checkpoint-keep", "N", "keep the newest N checkpoints and what they depend on", WEFT_OPTION_U32,\
     .value = &(options)->keep, .min = 1, .max = 1000000},                                         \
    {"checkpoint-memory", "MIB", "memory of each shard for copies of rows that change while a checkpoint\n"\
     "is written; if it is used up, the checkpoint is abandoned and reported", WEFT_OPTION_U32,    \
     .value = &(options)->memory_mib, .min = 1, .max = 1u << 20}

#define WEFT_JOURNAL_ROWS(options)                                                                 \
    {"journal", "DIR", "with --checkpoint, keep what came after the newest checkpoint in files\n"  \
     "in DIR, so that a killed server can be restored exactly. In memory\n"                        \
     "(/dev/shm) it is fast and survives the process, but not the host; on a\n"                    \
     "disk it survives power loss only with --journal-fsync", WEFT_OPTION_STRING,                  \
     .value = &(options)->directory, .fallback = "none"},                                          \
    {"journal-mib", "MIB", "maximum size of a shard's journal; a checkpoint begins when half of it\n"\
     "is full, and at three quarters recording stops until the next one", WEFT_OPTION_U32,         \
     .value = &(options)->mib, .min = 1, .max = 1u << 20},                                         \
    {"journal-fsync", NULL, "write the journal to disk before each reply, once for all requests that\n"\
     "arrived together; every push then waits for the disk", WEFT_OPTION_FLAG,                     \
     .value = &(options)->sync}

/* ---- records and traces ---------------------------------------------------------------------- */

#define WEFT_RECORDING_ROWS(recording)                                                             \
    {                                                                                              \
        "records", "FILE",                                                                         \
            "record a latency breakdown of every push and pull, for `weft trace`: a\n"             \
     "SQLite database, or JSON lines if FILE ends in .jsonl (docs/RECORDS.md)",                    \
            WEFT_OPTION_STRING, .value = &(recording)->path, .fallback = "none"                    \
    }

/* Of verbs with servers. */
#define WEFT_RECORDING_WINDOW_ROW(recording)                                                       \
    {                                                                                              \
        "active-window-us", "N", "--records also counts, for each interval of N microseconds, the workers\n" \
            "that sent a request",\
            WEFT_OPTION_U32, .value = &(recording)->window_us, .min = 1, .max = 60000000           \
    }

#define WEFT_RECORDING_CHILD_ROW(recording)                                                        \
    {                                                                                              \
        "records-spool", NULL, "leave the database to `weft train`", WEFT_OPTION_FLAG,             \
            .value = &(recording)->spool_only, .hidden = true                                      \
    }

#define WEFT_TRACING_HELP                                                                          \
    "write a trace of packets and messages, at most 1 GB per process, for\n"                       \
    "`weft trace`; a job writes one per process: FILE.worker-0, FILE.server-0 ..."

#endif
