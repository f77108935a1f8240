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
#define WEFT_SECURITY_ROWS(security)                                                            \
    {"security", "MODE", "auth = every packet authenticated, payload readable; seal =\n"           \
     "encrypted, too; none = neither, on this machine only", WEFT_OPTION_CUSTOM,                   \
     .value = &(security)->mode, .parse = weft_security_parse_mode, .fallback = "auth"},           \
    {"key-file", "FILE", "the job key, from `weft keygen`; else the variable WEFT_JOB_KEY",        \
     WEFT_OPTION_STRING, .value = &(security)->key_file, .fallback = ""}

/* For verbs whose endpoints may be reached from beyond this machine. */
#define WEFT_SECURITY_NETWORK_ROWS(security)                                                    \
    WEFT_SECURITY_ROWS(security),                                                               \
    {"insecure-network", NULL, "with --security none: beyond loopback, too, where anybody\n"       \
     "can then read and change the parameters", WEFT_OPTION_FLAG,                                  \
     .value = &(security)->insecure_network},                                                      \
    {"key-fd", "FD", "pipe with the job key from `weft train`", WEFT_OPTION_U32,                   \
     .value = &(security)->key_fd, .hidden = true}

/* What the option table cannot say: WEFT_OPTIONS_RUN, or a usage error printed. */
int weft_security_check(const struct weft_command *command, const struct weft_security *security);

/* ---- transport ------------------------------------------------------------------------------- */

const char *weft_transport_options_parse(const char *text, void *value);

#define WEFT_TRANSPORT_ROWS(transport)                                                              \
    {"transport", "NAME", "weft = UDP; tcp = the same messages over TCP, where every message\n"    \
     "arrives whole: to compare with, or where UDP is blocked", WEFT_OPTION_CUSTOM,                \
     .value = &(transport)->kind, .parse = weft_transport_options_parse, .fallback = "weft"},                  \
    {"tcp-cc", "NAME", "congestion control of TCP: dctcp, or what the kernel has: cubic, bbr",     \
     WEFT_OPTION_STRING, .value = &(transport)->tcp_cc, .fallback = "the host's"},                   \
    {"tcp-rto-min", "MS", "least retransmission timeout of TCP; the kernel rounds up to its\n"     \
     "tick; 0 = the host's, which is 200 unless changed", WEFT_OPTION_U32,                         \
     .value = &(transport)->tcp_rto_min_ms, .max = 60000},                                           \
    {"peer-timeout", "S", "who owes an answer for so many seconds is taken for dead; the\n"        \
     "environment may set another default, WEFT_PEER_TIMEOUT_S",                                   \
     WEFT_OPTION_U32, .value = &(transport)->peer_timeout_s, .min = 1, .max = 86400}

/* What the option table cannot say: WEFT_OPTIONS_RUN, or a usage error printed. */
int weft_transport_options_check(const struct weft_command *command, const struct weft_transport_options *transport,
                       uint32_t inject_loss_ppm, const char *trace);

/* The kernel's name for --tcp-cc (cli/tcp_cc.h): due once, after the checks and before a thread or a
 * process uses it; says here, too, that WEFT_PEER_TIMEOUT_S is no number. WEFT_OPTIONS_RUN, or an exit
 * status with a sentence printed. */
int weft_transport_options_find_cc(const struct weft_command *command, struct weft_transport_options *transport);

/* ---- membership ------------------------------------------------------------------------------ */

#define WEFT_MEMBERSHIP_ROWS(membership)                                                        \
    {"scheduler", "HOST:PORT", "the coordinator, `weft scheduler`: who is in the job, and where\n" \
     "the shards are", WEFT_OPTION_STRING, .value = &(membership)->scheduler,                      \
     .fallback = "WEFT_SCHEDULER, or as the launcher says"},                                       \
    {"start-timeout", "S", "seconds to wait for the coordinator and for all that are missing",     \
     WEFT_OPTION_U32, .value = &(membership)->patience_s, .min = 1, .max = 86400}

/* Find out who this process is: flags first, then the environment; one line on standard error when
 * the environment said something. flags.coordinator_* are filled in from --scheduler.
 *
 * environment: false = flags alone count.
 * Returns WEFT_OPTIONS_RUN, or a usage error printed. */
int weft_membership_detect(struct weft_membership *membership, const struct weft_command *command,
                           const struct weft_launch *flags, uint32_t shards_per_server,
                           bool environment);

/* ---- checkpoints and the journal ------------------------------------------------------------- */

#define WEFT_CHECKPOINT_ROWS(options)                                                           \
    {"checkpoint", "DIR", "write checkpoints into this directory, which all servers of the\n"     \
     "job share; SIGUSR1 asks for one", WEFT_OPTION_STRING,                                         \
     .value = &(options)->directory, .fallback = "none"},                                          \
    {"checkpoint-every", "N", "clocks from one checkpoint to the next, or seconds: 60s",           \
     WEFT_OPTION_STRING, .value = &(options)->every,                                               \
     .fallback = "60s where one process has all shards, else 1000"},                               \
    {"checkpoint-whole-every", "N", "one checkpoint of so many holds all rows, the others those\n"\
     "that changed", WEFT_OPTION_U32, .value = &(options)->whole_every, .min = 1, .max = 1000},    \
    {"checkpoint-keep", "N", "checkpoints to keep; older ones are removed", WEFT_OPTION_U32,       \
     .value = &(options)->keep, .min = 1, .max = 1000000},                                         \
    {"checkpoint-memory", "MIB", "of each shard, for copies of rows that change while they\n"     \
     "are written; when it is used up the checkpoint is given up", WEFT_OPTION_U32,                \
     .value = &(options)->memory_mib, .min = 1, .max = 1u << 20}

#define WEFT_JOURNAL_ROWS(options)                                                              \
    {"journal", "DIR", "with --checkpoint, keep what came after the newest one in files in this\n" \
     "directory, so that a server that is killed comes back as it was. In memory\n"                \
     "(/dev/shm) it is fast, and survives the process, not the host; on a disk it\n"               \
     "survives power as well only with --journal-fsync", WEFT_OPTION_STRING,                       \
     .value = &(options)->directory, .fallback = "none"},                                          \
    {"journal-mib", "MIB", "most that a shard's file may take; when half of it is full a\n"        \
     "checkpoint is begun, at three quarters nothing is kept until the next", WEFT_OPTION_U32,          \
     .value = &(options)->mib, .min = 1, .max = 1u << 20},                                         \
    {"journal-fsync", NULL, "write the journal to the disk before an answer is sent, once for\n"   \
     "all that arrived together; every push then waits for the disk", WEFT_OPTION_FLAG,            \
     .value = &(options)->sync}

/* ---- records and traces ---------------------------------------------------------------------- */

#define WEFT_RECORDING_ROWS(recording)                                                          \
    {                                                                                              \
        "records", "FILE",                                                                         \
            "write down what every RPC's time went to, for `weft trace`: a SQLite\n"               \
            "database, or lines of JSON when FILE ends in .jsonl (docs/RECORDS.md)",               \
            WEFT_OPTION_STRING, .value = &(recording)->path, .fallback = "none"                    \
    }

/* Of verbs with servers. */
#define WEFT_RECORDING_WINDOW_ROW(recording)                                                    \
    {                                                                                              \
        "active-window-us", "N", "with --records: count the active workers of every N us",         \
            WEFT_OPTION_U32, .value = &(recording)->window_us, .min = 1, .max = 60000000           \
    }

#define WEFT_RECORDING_CHILD_ROW(recording)                                                     \
    {                                                                                              \
        "records-spool", NULL, "leave the database to `weft train`", WEFT_OPTION_FLAG,             \
            .value = &(recording)->spool_only, .hidden = true                                      \
    }

#define WEFT_TRACING_HELP                                                                          \
    "write a trace of all packets and messages, for `weft trace`; at most 1 GB;\n"                 \
    "weft train: one file a process, FILE.worker-0, FILE.server-0 and so on"

#endif
