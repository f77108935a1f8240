/* Names and messages. */
#include "coll/box_internal.h"
#include "coll/internal.h"

#include <inttypes.h>
#include <stdio.h>

const char *weft_coll_kind_name(enum weft_coll_kind kind)
{
    static const char *const names[] = {
        "all_reduce", "reduce",     "reduce_scatter", "all_gather", "broadcast", "gather",
        "scatter",    "all_to_all", "barrier",        "send",       "recv"};
    return (unsigned)kind < WEFT_ARRAY_COUNT(names) ? names[kind] : "an unknown operation";
}

const char *weft_coll_type_name(enum weft_coll_type type)
{
    static const char *const names[] = {"float32", "float64", "float16", "bfloat16",
                                        "int8",    "uint8",   "int32",   "int64"};
    return (unsigned)type < WEFT_ARRAY_COUNT(names) ? names[type] : "an unknown type";
}

const char *weft_coll_reduction_name(enum weft_coll_reduction reduction)
{
    static const char *const names[] = {"sum", "mean", "min", "max", "product", "and", "or", "xor"};
    return (unsigned)reduction < WEFT_ARRAY_COUNT(names) ? names[reduction]
                                                         : "an unknown reduction";
}

uint32_t weft_coll_type_bytes(enum weft_coll_type type)
{
    static const uint8_t bytes[] = {4, 8, 2, 2, 1, 1, 4, 8};
    return (unsigned)type < WEFT_ARRAY_COUNT(bytes) ? bytes[type] : 0;
}

void weft_coll_descriptor_text(const struct weft_coll_descriptor *d, char *text, size_t bytes)
{
    const char *kind = weft_coll_kind_name((enum weft_coll_kind)d->kind);
    char more[96] = "";
    int used = 0;
    bool reduces = d->kind <= WEFT_COLL_REDUCE_SCATTER;
    if (d->kind == WEFT_COLL_BARRIER) {
        snprintf(text, bytes, "%s()", kind);
        return;
    }
    if (reduces) {
        used = snprintf(more, sizeof(more), ", %s",
                        weft_coll_reduction_name((enum weft_coll_reduction)d->reduction));
    }
    if (weft_coll_is_pair((enum weft_coll_kind)d->kind)) {
        used = snprintf(more, sizeof(more), ", tag %" PRIu32, d->root);
    } else if (d->root > 0) {
        used += snprintf(more + used, sizeof(more) - (size_t)used, ", root %" PRIu32, d->root);
    }
    if (d->bound_ppm > 0) {
        used += snprintf(more + used, sizeof(more) - (size_t)used, ", bound %" PRIu32 " ppm",
                         d->bound_ppm);
    }
    if (d->feedback != 0) {
        snprintf(more + used, sizeof(more) - (size_t)used, ", error feedback");
    }
    snprintf(text, bytes, "%s(%s x %" PRIu64 "%s)", kind,
             weft_coll_type_name((enum weft_coll_type)d->type), d->count, more);
}

static const char *down_text(enum weft_msg_down down)
{
    switch (down) {
    case WEFT_DOWN_CLOSED:
        return "it closed the connection";
    case WEFT_DOWN_SILENT:
        return "it does not respond";
    case WEFT_DOWN_PROTOCOL:
        return "it violated the transport's protocol";
    case WEFT_DOWN_LOCAL:
        return "the connection was closed at this end";
    case WEFT_DOWN_IDLE:
        return "the connection was idle for too long";
    case WEFT_DOWN_RESTARTED:
        return "it was restarted, or has closed the connection";
    case WEFT_DOWN_CRYPTO:
        return "a cryptographic operation failed";
    case WEFT_DOWN_REPLACED:
        return "another process has replaced it";
    }
    return "unknown reason";
}

static void op_text(const struct weft_coll_failure *f, char *text, size_t bytes)
{
    if (f->group == NONE) {
        snprintf(text, bytes, "no operation was open");
    } else if (f->op == NONE) {
        snprintf(text, bytes, "a send or recv");
    } else if (f->group == 0) {
        snprintf(text, bytes, "operation %" PRIu32, f->op);
    } else {
        snprintf(text, bytes, "operation %" PRIu32 " of group %" PRIu32, f->op, f->group);
    }
}

static void timeout_text(const struct weft_coll_failure *f, const char *op, char *text,
                         size_t bytes)
{
    char call[160];
    if (f->op == NONE) {
        weft_coll_descriptor_text(&f->called[1], call, sizeof(call));
        snprintf(text, bytes, "rank %" PRIu32 " has not done its part of the %s of rank %" PRIu32,
                 f->rank, call, f->by);
    } else if (f->entered) {
        snprintf(text, bytes, "rank %" PRIu32 " has entered %s, but has not finished its part",
                 f->rank, op);
    } else if (f->last_op == NONE) {
        snprintf(text, bytes, "rank %" PRIu32 " has not entered %s, nor any before it", f->rank,
                 op);
    } else {
        snprintf(text, bytes, "rank %" PRIu32 " has not entered %s; it last entered %" PRIu32,
                 f->rank, op, f->last_op);
    }
}

void weft_coll_failure_text(const struct weft_coll_failure *f, char *text, size_t bytes)
{
    char op[64], his[160], mine[160];
    op_text(f, op, sizeof(op));
    switch (f->reason) {
    case WEFT_COLL_DOWN:
        snprintf(text, bytes, "lost rank %" PRIu32 ": %s; %s (seen by rank %" PRIu32 ")", f->rank,
                 down_text(f->down), op, f->by);
        return;
    case WEFT_COLL_LEFT:
        snprintf(text, bytes, "rank %" PRIu32 " left before %s was done (seen by rank %" PRIu32 ")",
                 f->rank, op, f->by);
        return;
    case WEFT_COLL_TIMEOUT:
        timeout_text(f, op, text, bytes);
        return;
    case WEFT_COLL_MISMATCH:
        if (!f->has_called) {
            snprintf(text, bytes, "ranks %" PRIu32 " and %" PRIu32 " made different calls as %s",
                     f->rank, f->by, op);
            return;
        }
        weft_coll_descriptor_text(&f->called[0], his, sizeof(his));
        weft_coll_descriptor_text(&f->called[1], mine, sizeof(mine));
        snprintf(text, bytes, "rank %" PRIu32 " called %s, rank %" PRIu32 " %s%s%s%s", f->rank, his,
                 f->by, mine,
                 f->called[0].members != f->called[1].members
                     ? ", with other ranks in the group, another configuration or another plan"
                     : "",
                 f->op == NONE ? "" : ", as ", f->op == NONE ? "" : op);
        return;
    case WEFT_COLL_PROTOCOL:
        snprintf(text, bytes,
                 "rank %" PRIu32 " violated the protocol; %s (seen by rank %" PRIu32 ")", f->rank,
                 op, f->by);
        return;
    case WEFT_COLL_TOO_LONG:
        snprintf(text, bytes, "%s is too long for the transport of rank %" PRIu32, op, f->rank);
        return;
    case WEFT_COLL_ABORTED:
        snprintf(text, bytes, "rank %" PRIu32 " gave up: %s", f->rank, f->text);
        return;
    case WEFT_COLL_FINE:
    case WEFT_COLL_REASONS:
        break;
    }
    snprintf(text, bytes, "nothing has failed");
}

void weft_coll_box_reason_text(const struct weft_coll_box *b, char *text, size_t bytes)
{
    switch (b->reason) {
    case WEFT_COLL_BOX_FINE:
    case WEFT_COLL_BOX_REASONS:
        break;
    case WEFT_COLL_BOX_SILENT: {
        const uint64_t ns =
            b->reason_of_trial ? weft_coll_box_trial_silence(b) : b->config.silence_ns;
        snprintf(text, bytes, "a rank got no sum from it for %" PRIu64 " ms",
                 ns / WEFT_NS_PER_MS);
        return;
    }
    case WEFT_COLL_BOX_SLOW:
        snprintf(text, bytes, "a vector took half of its operation's timeout there");
        return;
    case WEFT_COLL_BOX_FORM:
        snprintf(text, bytes,
                 "it does not sum what this job sends: its exponent or number format differs");
        return;
    case WEFT_COLL_BOX_WRONG:
        snprintf(text, bytes,
                 "its sums of random numbers were wrong: another job with the same job number may "
                 "use it");
        return;
    case WEFT_COLL_BOX_DIFFERS:
        snprintf(text, bytes, "two ranks got different sums from it");
        return;
    }
    text[0] = '\0';
}
