#include "obs/recdb_digest.h"

#include "base/units.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDING_NS = 1000 }; /* of stages that were measured by several clock reads */

/* NULL = out of memory. */
static struct weft_recdb_party *party_of(struct weft_recdb_parties *parties, uint32_t id)
{
    size_t low = 0;
    size_t high = parties->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (parties->list[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < parties->count && parties->list[low].id == id) {
        return &parties->list[low];
    }
    if (parties->count == parties->room) {
        size_t room = parties->room * 2 + 16;
        struct weft_recdb_party *list = realloc(parties->list, room * sizeof(*list));
        if (list == NULL) {
            return NULL;
        }
        parties->list = list;
        parties->room = room;
    }
    struct weft_recdb_party *party = &parties->list[low];
    memmove(party + 1, party, (parties->count - low) * sizeof(*party));
    parties->count++;
    *party = (struct weft_recdb_party){.id = id};
    return party;
}

static bool party_add(struct weft_recdb_parties *parties, uint32_t id,
                      const struct weft_recdb_rpc *rpc)
{
    struct weft_recdb_party *party = party_of(parties, id);
    if (party == NULL) {
        return false;
    }
    party->rpcs++;
    party->total_ns += rpc->total_ns;
    party->max_ns = weft_max_u64(party->max_ns, rpc->total_ns);
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        party->stage_ns[i] += rpc->stage_ns[i];
    }
    return true;
}

static bool adds_up(const struct weft_recdb_rpc *rpc)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        sum += rpc->stage_ns[i];
    }
    return sum <= rpc->total_ns + ROUNDING_NS && rpc->total_ns <= sum + ROUNDING_NS;
}

static bool add_rpc(struct weft_recdb_digest *digest, const struct weft_recdb_rpc *rpc)
{
    struct weft_recdb_kind_digest *kind = &digest->kinds[rpc->kind];
    digest->first_ns = weft_min_u64(digest->first_ns, rpc->t0_ns);
    digest->last_ns = weft_max_u64(digest->last_ns, rpc->t1_ns);
    if (rpc->status != 0) {
        kind->failed++;
        return true;
    }
    kind->rows += rpc->rows;
    kind->request_bytes += rpc->request_bytes;
    kind->reply_bytes += rpc->reply_bytes;
    weft_hist_add(&kind->requests, rpc->request_bytes);
    weft_hist_add(&kind->replies, rpc->reply_bytes);
    weft_hist_add(&kind->total, rpc->total_ns);
    weft_hist_add(&kind->overlap, rpc->overlap_ns);
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        weft_hist_add(&kind->stages[i], rpc->stage_ns[i]);
    }
    digest->odd += !adds_up(rpc);
    return party_add(&digest->servers, rpc->server, rpc) &&
           party_add(&digest->workers, rpc->worker, rpc);
}

static void add_processes(struct weft_recdb *db, struct weft_recdb_digest *digest)
{
    const bool has_ended = weft_recdb_has_column(db, "process", "ended");
    sqlite3_stmt *statement = weft_recdb_query(
        db,
        "SELECT CASE role WHEN 'server' THEN %d WHEN 'aggregator' THEN %d ELSE %d END,"
        " records, dropped, cpu_ns, wall_ns, %s FROM process",
        WEFT_RECDB_SERVERS, WEFT_RECDB_AGGREGATORS, WEFT_RECDB_WORKERS,
        has_ended ? "ended = 0" : "0");
    while (weft_recdb_row(db, statement)) {
        struct weft_recdb_role *role = &digest->roles[sqlite3_column_int(statement, 0)];
        role->processes++;
        role->cut += weft_recdb_u64(statement, 5);
        role->records += weft_recdb_u64(statement, 1);
        role->dropped += weft_recdb_u64(statement, 2);
        role->cpu_ns += weft_recdb_u64(statement, 3);
        role->wall_ns += weft_recdb_u64(statement, 4);
    }
    sqlite3_finalize(statement);
}

static void add_active(struct weft_recdb *db, struct weft_recdb_digest *digest)
{
    const bool has_connections = weft_recdb_has_column(db, "active", "connections");
    sqlite3_stmt *statement = weft_recdb_query(db, "SELECT workers, window_ns, %s FROM active",
                                               has_connections ? "connections" : "0");
    while (weft_recdb_row(db, statement)) {
        const uint64_t workers = weft_recdb_u64(statement, 0);
        const uint64_t connections = weft_recdb_u64(statement, 2);
        if (workers > 0) { /* else only pulls or refused messages of aggregators */
            weft_hist_add(&digest->active, workers);
        }
        if (connections > 0) {
            weft_hist_add(&digest->connections, connections);
        }
        digest->window_ns = weft_recdb_u64(statement, 1);
    }
    sqlite3_finalize(statement);
}

/* ---- the slowest ----------------------------------------------------------------------------- */

static int slowest_first(const void *a, const void *b)
{
    const struct weft_recdb_rpc *x = a;
    const struct weft_recdb_rpc *y = b;
    if (x->total_ns != y->total_ns) {
        return (x->total_ns < y->total_ns) - (x->total_ns > y->total_ns);
    }
    return (x->t0_ns > y->t0_ns) - (x->t0_ns < y->t0_ns);
}

static void keep_slowest(struct weft_recdb_slowest *slowest)
{
    qsort(slowest->list, slowest->count, sizeof(*slowest->list), slowest_first);
    if (slowest->count > slowest->wanted) {
        slowest->count = slowest->wanted;
        slowest->least_ns = slowest->list[slowest->count - 1].total_ns;
    }
}

/* The list has twice the capacity, so that sorting is rare. */
static void slowest_add(struct weft_recdb_slowest *slowest, const struct weft_recdb_rpc *rpc)
{
    if (rpc->status == 0 && rpc->total_ns >= slowest->least_ns) {
        slowest->list[slowest->count++] = *rpc;
    }
    if (slowest->count == 2 * slowest->wanted) {
        keep_slowest(slowest);
    }
}

struct weft_recdb_blame weft_recdb_blame(const struct weft_recdb_digest *digest,
                                         const struct weft_recdb_rpc *rpc)
{
    struct weft_recdb_blame blame = {0};
    uint64_t most = 0;
    uint64_t all = 0;
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        uint64_t median_ns = weft_hist_quantile(&digest->kinds[rpc->kind].stages[i], 500000);
        uint64_t over = rpc->stage_ns[i] > median_ns ? rpc->stage_ns[i] - median_ns : 0;
        all += over;
        if (over > most || i == 0) {
            most = over;
            blame.stage = i;
            blame.median_ns = median_ns;
        }
    }
    blame.part = all > 0 ? (double)most / (double)all : 0;
    return blame;
}

/* ---- the digest ------------------------------------------------------------------------------ */

weft_status weft_recdb_digest_make(struct weft_recdb *db, struct weft_recdb_slowest *slowest,
                                   struct weft_recdb_digest *digest_p)
{
    memset(digest_p, 0, sizeof(*digest_p));
    digest_p->first_ns = UINT64_MAX;
    if (slowest != NULL) {
        slowest->list = calloc(2 * (size_t)slowest->wanted, sizeof(*slowest->list));
    }
    bool good = slowest == NULL || slowest->list != NULL;
    sqlite3_stmt *scan = weft_recdb_scan(db, "", "");
    struct weft_recdb_rpc rpc;
    while (good && weft_recdb_next(db, scan, &rpc)) {
        good = add_rpc(digest_p, &rpc);
        if (slowest != NULL) {
            slowest_add(slowest, &rpc);
        }
    }
    sqlite3_finalize(scan);
    if (!good) {
        weft_recdb_no_memory(db);
    } else if (slowest != NULL) {
        keep_slowest(slowest);
    }
    add_processes(db, digest_p);
    add_active(db, digest_p);
    return db->status;
}

void weft_recdb_digest_fini(struct weft_recdb_digest *digest)
{
    free(digest->servers.list);
    free(digest->workers.list);
}

uint64_t weft_recdb_digest_rpcs(const struct weft_recdb_digest *digest)
{
    uint64_t rpcs = 0;
    for (unsigned k = 0; k < WEFT_RECDB_KINDS; k++) {
        rpcs += digest->kinds[k].total.count + digest->kinds[k].failed;
    }
    return rpcs;
}

uint64_t weft_recdb_digest_dropped(const struct weft_recdb_digest *digest)
{
    uint64_t dropped = 0;
    for (unsigned r = 0; r < WEFT_RECDB_ROLES; r++) {
        dropped += digest->roles[r].dropped;
    }
    return dropped;
}

uint64_t weft_recdb_digest_cut(const struct weft_recdb_digest *digest)
{
    uint64_t cut = 0;
    for (unsigned r = 0; r < WEFT_RECDB_ROLES; r++) {
        cut += digest->roles[r].cut;
    }
    return cut;
}

double weft_recdb_share(const struct weft_recdb_kind_digest *kind, unsigned stage)
{
    return kind->total.sum > 0 ? (double)kind->stages[stage].sum / (double)kind->total.sum : 0;
}
