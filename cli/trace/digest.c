#include "cli/trace/digest.h"

#include "base/units.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDING_NS = 1000 }; /* of stages that were measured by several clock reads */

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
        parties->room = parties->room * 2 + 16;
        size_t bytes = parties->room * sizeof(*parties->list);
        parties->list = weft_recdb_need(realloc(parties->list, bytes));
    }
    struct weft_recdb_party *party = &parties->list[low];
    memmove(party + 1, party, (parties->count - low) * sizeof(*party));
    parties->count++;
    *party = (struct weft_recdb_party){.id = id};
    return party;
}

static void party_add(struct weft_recdb_parties *parties, uint32_t id,
                      const struct weft_recdb_rpc *rpc)
{
    struct weft_recdb_party *party = party_of(parties, id);
    party->rpcs++;
    party->total_ns += rpc->total_ns;
    party->max_ns = weft_max_u64(party->max_ns, rpc->total_ns);
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        party->stage_ns[i] += rpc->stage_ns[i];
    }
}

static bool adds_up(const struct weft_recdb_rpc *rpc)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        sum += rpc->stage_ns[i];
    }
    return sum <= rpc->total_ns + ROUNDING_NS && rpc->total_ns <= sum + ROUNDING_NS;
}

void weft_recdb_digest_add(struct weft_recdb_digest *digest, const struct weft_recdb_rpc *rpc)
{
    struct weft_recdb_kind_digest *kind = &digest->kinds[rpc->kind];
    digest->first_ns = weft_min_u64(digest->first_ns, rpc->t0_ns);
    digest->last_ns = weft_max_u64(digest->last_ns, rpc->t1_ns);
    if (rpc->status != 0) {
        kind->failed++;
        return;
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
    party_add(&digest->servers, rpc->server, rpc);
    party_add(&digest->workers, rpc->worker, rpc);
}

static void add_processes(struct weft_recdb *db, struct weft_recdb_digest *digest)
{
    sqlite3_stmt *statement = weft_recdb_query(
        db, "SELECT role = 'server', records, dropped, cpu_ns, wall_ns FROM process");
    while (weft_recdb_row(db, statement)) {
        struct weft_recdb_role *role = &digest->roles[sqlite3_column_int(statement, 0) == 1];
        role->processes++;
        role->records += weft_recdb_u64(statement, 1);
        role->dropped += weft_recdb_u64(statement, 2);
        role->cpu_ns += weft_recdb_u64(statement, 3);
        role->wall_ns += weft_recdb_u64(statement, 4);
    }
    sqlite3_finalize(statement);
}

static void add_active(struct weft_recdb *db, struct weft_recdb_digest *digest)
{
    sqlite3_stmt *statement = weft_recdb_query(db, "SELECT workers, window_ns FROM active");
    while (weft_recdb_row(db, statement)) {
        weft_hist_add(&digest->active, weft_recdb_u64(statement, 0));
        digest->window_ns = weft_recdb_u64(statement, 1);
    }
    sqlite3_finalize(statement);
}

bool weft_recdb_digest_make(struct weft_recdb *db, struct weft_recdb_digest *digest_p)
{
    memset(digest_p, 0, sizeof(*digest_p));
    digest_p->first_ns = UINT64_MAX;
    sqlite3_stmt *scan = weft_recdb_scan(db, "", "");
    struct weft_recdb_rpc rpc;
    while (weft_recdb_next(db, scan, &rpc)) {
        weft_recdb_digest_add(digest_p, &rpc);
    }
    sqlite3_finalize(scan);
    add_processes(db, digest_p);
    add_active(db, digest_p);
    return !db->said;
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

double weft_recdb_share(const struct weft_recdb_kind_digest *kind, unsigned stage)
{
    return kind->total.sum > 0 ? (double)kind->stages[stage].sum / (double)kind->total.sum : 0;
}
