/* --transport of the verbs that run endpoints: what carries the messages, weft's own UDP or TCP.
 *
 * TCP is what weft is compared with, and the way out where UDP is blocked. All processes of a job
 * must be given the same.
 */
#ifndef WEFT_CLI_CARRIER_H
#define WEFT_CLI_CARRIER_H

#include "cli/options.h"
#include "io/driver.h"
#include "job/launch.h"

struct weft_carrier {
    enum weft_driver_kind kind;
    const char *tcp_cc;      /* NULL = the host's */
    uint32_t tcp_rto_min_ms; /* 0 = the host's */
    uint32_t peer_timeout_s; /* 0 = the transport's, or an environment that is wrong */
};

const char *weft_carrier_parse(const char *text, void *value);

/* Rows of an option table. */
#define WEFT_CARRIER_OPTIONS(carrier)                                                              \
    {"transport", "NAME", "weft = UDP; tcp = the same messages over TCP, where every message\n"    \
     "arrives whole: to compare with, or where UDP is blocked", WEFT_OPTION_CUSTOM,                \
     .value = &(carrier)->kind, .parse = weft_carrier_parse, .fallback = "weft"},                  \
    {"tcp-cc", "NAME", "congestion control of TCP: dctcp, or what the kernel has: cubic, bbr",     \
     WEFT_OPTION_STRING, .value = &(carrier)->tcp_cc, .fallback = "the host's"},                   \
    {"tcp-rto-min", "MS", "least retransmission timeout of TCP; the kernel rounds up to its\n"     \
     "tick; 0 = the host's, which is 200 unless changed", WEFT_OPTION_U32,                         \
     .value = &(carrier)->tcp_rto_min_ms, .max = 60000},                                           \
    {"peer-timeout", "S", "who owes an answer for so many seconds is taken for dead; the\n"        \
     "environment may set another default, WEFT_PEER_TIMEOUT_S",                                   \
     WEFT_OPTION_U32, .value = &(carrier)->peer_timeout_s, .min = 1, .max = 86400}

enum { WEFT_CARRIER_PEER_TIMEOUT_S = 5 };

#define WEFT_CARRIER_DEFAULTS                                                                      \
    {.peer_timeout_s = weft_launch_peer_timeout_s(WEFT_CARRIER_PEER_TIMEOUT_S)}

/* What the option table cannot say: WEFT_OPTIONS_RUN, or a usage error printed. */
int weft_carrier_check(const struct weft_command *command, const struct weft_carrier *carrier,
                       uint32_t inject_loss_ppm, const char *trace);

/* The kernel's name for --tcp-cc (cli/tcp_cc.h): due once, after the checks and before a thread or a
 * process uses it; says here, too, that WEFT_PEER_TIMEOUT_S is no number. WEFT_OPTIONS_RUN, or an exit
 * status with a sentence printed. */
int weft_carrier_find_cc(const struct weft_command *command, struct weft_carrier *carrier);

/* Set what the options say in a configuration. */
void weft_carrier_apply(const struct weft_carrier *carrier, struct weft_driver_config *config);

#endif
