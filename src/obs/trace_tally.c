#include "base/units.h"
#include "obs/trace_doc.h"

#include <stdlib.h>

/* The opening or the closing of a message. */
struct edge {
    uint64_t seq;
    uint64_t time_ns;
    uint16_t peer;
    uint8_t direction;
    uint8_t is_close;
};

static int compare_u64(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return (*x > *y) - (*x < *y);
}

static int compare_lives(const void *a, const void *b)
{
    const struct weft_trace_life *x = a;
    const struct weft_trace_life *y = b;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

/* A reused slot of the peer table starts again with message 1, but later in time. */
static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a;
    const struct edge *y = b;
    if (x->direction != y->direction) {
        return x->direction - y->direction;
    }
    if (x->peer != y->peer) {
        return x->peer - y->peer;
    }
    if (x->seq != y->seq) {
        return x->seq < y->seq ? -1 : 1;
    }
    if (x->time_ns != y->time_ns) {
        return x->time_ns < y->time_ns ? -1 : 1;
    }
    return x->is_close - y->is_close;
}

/* A message whose opening was overwritten, or that is still open, has no duration. */
static void find_lives(struct weft_trace_tally *t, struct edge *edges, size_t count)
{
    qsort(edges, count, sizeof(*edges), compare_edges);
    for (size_t i = 1; i < count; i++) {
        const struct edge *open = &edges[i - 1];
        const struct edge *close = &edges[i];
        if (open->is_close == 0 && close->is_close != 0 && open->seq == close->seq &&
            open->peer == close->peer && open->direction == close->direction) {
            t->lives[t->life_count++] = (struct weft_trace_life){
                .seq = close->seq,
                .ns = close->time_ns - open->time_ns,
                .peer = close->peer,
                .direction = close->direction,
            };
        }
    }
    qsort(t->lives, t->life_count, sizeof(*t->lives), compare_lives);
    for (size_t i = 0; i < t->life_count; i++) {
        unsigned d = t->lives[i].direction;
        t->times_ns[d][t->time_count[d]++] = t->lives[i].ns;
    }
}

static struct edge edge_of(const struct weft_trace_record *r)
{
    return (struct edge){.seq = r->number,
                         .time_ns = r->time_ns,
                         .peer = r->peer,
                         .direction = r->flags & 1,
                         .is_close = r->type == WEFT_TRACE_MSG_CLOSED};
}

static void count_record(struct weft_trace_tally *t, const struct weft_trace_record *r)
{
    t->first_ns = weft_min_u64(t->first_ns, r->time_ns);
    t->last_ns = weft_max_u64(t->last_ns, r->time_ns);
    if (r->type == WEFT_TRACE_NONE || r->type >= WEFT_TRACE_TYPE_END) {
        t->unknown_types++;
        return;
    }
    t->types[r->type]++;
    t->data_sent += r->type == WEFT_TRACE_PACKET_SENT && (r->flags & WEFT_TRACE_HAS_DATA) != 0;
    if (r->type == WEFT_TRACE_DROPPED && r->flags < WEFT_TRACE_DROP_END) {
        t->drops[r->flags] += r->a;
    } else if (r->type == WEFT_TRACE_RTT) {
        t->rtts_ns[t->rtt_count++] = r->a;
    } else if (r->type == WEFT_TRACE_MSG_CLOSED && r->flags >> 1 <= 2) {
        t->outcomes[r->flags & 1][r->flags >> 1]++;
    }
}

static bool is_edge(const struct weft_trace_record *r)
{
    return r->type == WEFT_TRACE_MSG_OPENED || r->type == WEFT_TRACE_MSG_CLOSED;
}

weft_status weft_trace_tally_make(const struct weft_trace_doc *doc, uint32_t endpoint,
                                  struct weft_trace_tally *tally_p)
{
    struct weft_trace_tally *t = tally_p;
    size_t rtts = 1; /* allocate at least one element */
    size_t edges = 1;
    size_t edge_count = 0;
    *t = (struct weft_trace_tally){.first_ns = UINT64_MAX};
    for (size_t i = 0; i < doc->count; i++) {
        rtts += doc->entries[i].record.type == WEFT_TRACE_RTT;
        edges += is_edge(&doc->entries[i].record);
    }
    struct edge *list = calloc(edges, sizeof(*list));
    t->rtts_ns = calloc(rtts, sizeof(*t->rtts_ns));
    t->lives = calloc(edges, sizeof(*t->lives));
    t->times_ns[0] = calloc(edges, sizeof(*t->times_ns[0]));
    t->times_ns[1] = calloc(edges, sizeof(*t->times_ns[1]));
    if (list == NULL || t->rtts_ns == NULL || t->lives == NULL || t->times_ns[0] == NULL ||
        t->times_ns[1] == NULL) {
        free(list);
        return WEFT_NOMEM;
    }
    for (size_t i = 0; i < doc->count; i++) {
        const struct weft_trace_record *r = &doc->entries[i].record;
        if (doc->entries[i].endpoint == endpoint) {
            count_record(t, r);
            if (is_edge(r)) {
                list[edge_count++] = edge_of(r);
            }
        }
    }
    qsort(t->rtts_ns, t->rtt_count, sizeof(*t->rtts_ns), compare_u64);
    find_lives(t, list, edge_count);
    free(list);
    return WEFT_OK;
}

void weft_trace_tally_fini(struct weft_trace_tally *tally)
{
    free(tally->rtts_ns);
    free(tally->lives);
    free(tally->times_ns[0]);
    free(tally->times_ns[1]);
}
