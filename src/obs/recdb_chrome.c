#include "obs/recdb_chrome.h"

#include "base/units.h"
#include "obs/recdb_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of tracks of a process; also the sort order of a stage and part of the thread's number. */
enum track_kind {
    TRACK_RPC,
    TRACK_N_TX,
    TRACK_W_QUEUE,
    TRACK_W_PROC,
    TRACK_PS_QUEUE,
    TRACK_PS_WAIT,
    TRACK_PS_PROC
};

static const char *const track_names[] = {"RPC",      "N_tx",    "W_queue", "W_proc",
                                          "PS_queue", "PS_wait", "PS_proc"};

enum { LANES_MAX = 999, SERVER = 1, WORKER_PID = 1000000000 };

struct slice {
    uint64_t start_ns;
    uint64_t ns;
    uint64_t rpc;
    uint32_t worker;
    uint32_t server;
    uint8_t track;
    uint8_t kind;
    const char *part; /* for N_tx: the direction, and whether it is known */
};

struct track {
    uint64_t key;    /* process and kind */
    uint64_t *lanes; /* the time at which each is free again */
    size_t lane_count;
    size_t lane_room;
};

struct chrome {
    struct weft_recdb *db;
    FILE *out;
    const char *comma;
    uint64_t origin_ns;
    struct track *tracks; /* by key */
    size_t track_count;
    size_t track_room;
    struct slice *later; /* a heap: the next slice to begin is on top */
    size_t later_count;
    size_t later_room;
    struct weft_recdb_chrome_sum sum;
};

/* Make room for one more of `count` items. False: out of memory, which is set in db. */
static bool make_room(struct chrome *chrome, void **list, size_t count, size_t *room, size_t bytes)
{
    if (count < *room) {
        return true;
    }
    size_t more = *room * 2 + 64;
    void *longer = realloc(*list, more * bytes);
    if (longer == NULL) {
        weft_recdb_no_memory(chrome->db);
        return false;
    }
    *list = longer;
    *room = more;
    return true;
}

/* ---- tracks ---------------------------------------------------------------------------------- */

static uint64_t pid_of(const struct slice *slice)
{
    return slice->track >= TRACK_PS_QUEUE ? SERVER + (uint64_t)slice->server
                                          : WORKER_PID + (uint64_t)slice->worker;
}

static size_t track_at(const struct chrome *chrome, uint64_t key)
{
    size_t low = 0;
    size_t high = chrome->track_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (chrome->tracks[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool has_key(const struct chrome *chrome, size_t at, uint64_t key)
{
    return at < chrome->track_count && chrome->tracks[at].key == key;
}

/* Write the name and sort order of a process or, with a tid, of a thread. */
static void put_name(struct chrome *chrome, uint64_t pid, unsigned tid, const char *name)
{
    const char *what = tid > 0 ? "thread" : "process";
    char of[48];
    snprintf(of, sizeof(of), tid > 0 ? "\"pid\":%" PRIu64 ",\"tid\":%u" : "\"pid\":%" PRIu64, pid,
             tid);
    fprintf(chrome->out,
            "%s{\"ph\":\"M\",\"name\":\"%s_name\",%s,\"args\":{\"name\":\"%s\"}},\n"
            "{\"ph\":\"M\",\"name\":\"%s_sort_index\",%s,\"args\":{\"sort_index\":%" PRIu64 "}}",
            chrome->comma, what, of, name, what, of, tid > 0 ? tid : pid);
    chrome->comma = ",\n";
}

static void name_process(struct chrome *chrome, const struct slice *slice)
{
    bool server = slice->track >= TRACK_PS_QUEUE;
    char name[32];
    snprintf(name, sizeof(name), "%s %" PRIu32, server ? "server" : "worker",
             server ? slice->server : slice->worker);
    put_name(chrome, pid_of(slice), 0, name);
}

static unsigned tid_of(const struct slice *slice, unsigned lane)
{
    return slice->track * 1000u + lane + 1;
}

static void name_thread(struct chrome *chrome, const struct slice *slice, unsigned lane)
{
    char name[32];
    snprintf(name, sizeof(name), lane > 0 ? "%s %u" : "%s", track_names[slice->track], lane + 1);
    put_name(chrome, pid_of(slice), tid_of(slice, lane), name);
}

/* NULL = out of memory. */
static struct track *track_of(struct chrome *chrome, const struct slice *slice)
{
    uint64_t key = pid_of(slice) << 3 | slice->track;
    size_t at = track_at(chrome, key);
    if (has_key(chrome, at, key)) {
        return &chrome->tracks[at];
    }
    size_t first = track_at(chrome, pid_of(slice) << 3);
    if (first == chrome->track_count || chrome->tracks[first].key >> 3 != pid_of(slice)) {
        name_process(chrome, slice);
    }
    if (!make_room(chrome, (void **)&chrome->tracks, chrome->track_count, &chrome->track_room,
                   sizeof(*chrome->tracks))) {
        return NULL;
    }
    struct track *track = &chrome->tracks[at];
    memmove(track + 1, track, (chrome->track_count - at) * sizeof(*track));
    chrome->track_count++;
    *track = (struct track){.key = key};
    return track;
}

/* The first free lane; LANES_MAX if there is none. */
static size_t lane_of(struct chrome *chrome, struct track *track, const struct slice *slice)
{
    size_t lane = 0;
    while (lane < track->lane_count && track->lanes[lane] > slice->start_ns) {
        lane++;
    }
    if (lane == track->lane_count && lane < LANES_MAX) {
        if (!make_room(chrome, (void **)&track->lanes, lane, &track->lane_room,
                       sizeof(*track->lanes))) {
            return LANES_MAX;
        }
        track->lane_count++;
        name_thread(chrome, slice, (unsigned)lane);
    }
    if (lane < LANES_MAX) {
        track->lanes[lane] = slice->start_ns + slice->ns;
    }
    return lane;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static void put_us(FILE *out, const char *name, uint64_t ns)
{
    fprintf(out, ",\"%s\":%" PRIu64 ".%03" PRIu64, name, ns / 1000, ns % 1000);
}

/* Write all fields of an RPC as args of its slice. */
static void put_rpc_args(FILE *out, const struct weft_recdb_rpc *rpc)
{
    fprintf(out,
            ",\"iteration\":%" PRIu64 ",\"rows\":%" PRIu64 ",\"table\":%" PRIu32
            ",\"status\":%" PRId64 ",\"request_bytes\":%" PRIu64 ",\"reply_bytes\":%" PRIu64,
            rpc->iteration, rpc->rows, rpc->table, rpc->status, rpc->request_bytes,
            rpc->reply_bytes);
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s_us", weft_recdb_stage_name(i));
        put_us(out, name, rpc->stage_ns[i]);
    }
    put_us(out, "PS_overlap_us", rpc->overlap_ns);
}

/* Slices are passed in the order of their start times. Slices of zero length are not written. */
static void put_slice(struct chrome *chrome, const struct slice *slice,
                      const struct weft_recdb_rpc *rpc)
{
    if (slice->ns == 0) {
        return;
    }
    struct track *track = track_of(chrome, slice);
    size_t lane = track != NULL ? lane_of(chrome, track, slice) : LANES_MAX;
    if (lane == LANES_MAX) {
        chrome->sum.crowded++;
        return;
    }
    const char *kind = weft_recdb_kind_name(slice->kind);
    FILE *out = chrome->out;
    fprintf(out, "%s{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\"", chrome->comma,
            slice->track == TRACK_RPC ? kind : track_names[slice->track], kind);
    put_us(out, "ts", slice->start_ns - chrome->origin_ns);
    put_us(out, "dur", slice->ns);
    fprintf(out,
            ",\"pid\":%" PRIu64 ",\"tid\":%u,\"args\":{\"worker\":%" PRIu32 ",\"server\":%" PRIu32
            ",\"rpc\":%" PRIu64,
            pid_of(slice), tid_of(slice, (unsigned)lane), slice->worker, slice->server, slice->rpc);
    if (slice->part != NULL) {
        fprintf(out, ",\"part\":\"%s\"", slice->part);
    }
    if (rpc != NULL) {
        put_rpc_args(out, rpc);
    }
    fputs("}}", out);
    chrome->comma = ",\n";
    chrome->sum.slices++;
}

/* ---- slices that begin later ---------------------------------------------------------------- */

static bool before(const struct slice *a, const struct slice *b)
{
    return a->start_ns < b->start_ns;
}

static void swap(struct slice *a, struct slice *b)
{
    struct slice kept = *a;
    *a = *b;
    *b = kept;
}

static void later_add(struct chrome *chrome, struct slice slice)
{
    if (!make_room(chrome, (void **)&chrome->later, chrome->later_count, &chrome->later_room,
                   sizeof(*chrome->later))) {
        return;
    }
    size_t at = chrome->later_count++;
    chrome->later[at] = slice;
    while (at > 0 && before(&chrome->later[at], &chrome->later[(at - 1) / 2])) {
        swap(&chrome->later[at], &chrome->later[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

static struct slice later_take(struct chrome *chrome)
{
    struct slice first = chrome->later[0];
    chrome->later[0] = chrome->later[--chrome->later_count];
    for (size_t at = 0;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < chrome->later_count;
             child++) {
            least = before(&chrome->later[child], &chrome->later[least]) ? child : least;
        }
        if (least == at) {
            return first;
        }
        swap(&chrome->later[at], &chrome->later[least]);
        at = least;
    }
}

static void later_put(struct chrome *chrome, uint64_t until_ns)
{
    while (chrome->later_count > 0 && chrome->later[0].start_ns < until_ns) {
        struct slice slice = later_take(chrome);
        put_slice(chrome, &slice, NULL);
    }
}

/* ---- workers and servers --------------------------------------------------------------------- */

static void add_rpc(struct chrome *chrome, const struct weft_recdb_rpc *rpc, sqlite3_stmt *scan)
{
    struct slice slice = {.rpc = rpc->rpc,
                          .worker = rpc->worker,
                          .server = rpc->server,
                          .kind = (uint8_t)rpc->kind,
                          .start_ns = rpc->t0_ns,
                          .ns = rpc->total_ns,
                          .track = TRACK_RPC};
    later_put(chrome, rpc->t0_ns);
    put_slice(chrome, &slice, rpc);
    bool known = sqlite3_column_type(scan, WEFT_RECDB_MORE) != SQLITE_NULL;
    uint64_t n_tx_ns = weft_min_u64(rpc->stage_ns[WEFT_RECDB_N_TX], rpc->t1_ns - rpc->t0_ns);
    uint64_t there_ns = n_tx_ns / 2;
    uint64_t back_ns = n_tx_ns - there_ns;
    if (known) {
        there_ns = weft_recdb_u64(scan, WEFT_RECDB_MORE) - rpc->t0_ns;
        back_ns = rpc->t1_ns - weft_recdb_u64(scan, WEFT_RECDB_MORE + 1);
    }
    chrome->sum.unmatched += !known;
    slice.track = TRACK_N_TX;
    slice.ns = there_ns;
    slice.part = known ? "request" : "request, half of N_tx";
    later_add(chrome, slice);
    slice.start_ns = rpc->t1_ns - back_ns;
    slice.ns = back_ns;
    slice.part = known ? "reply" : "reply, half of N_tx";
    later_add(chrome, slice);
    slice.part = NULL;
    slice.track = TRACK_W_QUEUE;
    slice.start_ns = rpc->t1_ns;
    slice.ns = rpc->stage_ns[WEFT_RECDB_W_QUEUE];
    later_add(chrome, slice);
    slice.track = TRACK_W_PROC;
    slice.start_ns += slice.ns;
    slice.ns = rpc->stage_ns[WEFT_RECDB_W_PROC];
    later_add(chrome, slice);
}

static void add_served(struct chrome *chrome, const struct weft_recdb_served *served)
{
    const uint64_t ns[] = {served->queue_ns, served->wait_ns, served->proc_ns};
    struct slice slice = {.rpc = served->rpc,
                          .worker = served->worker,
                          .server = served->server,
                          .kind = (uint8_t)served->kind,
                          .start_ns = served->arrival_ns};
    later_put(chrome, served->arrival_ns);
    for (unsigned i = 0; i < 3; i++) {
        slice.track = (uint8_t)(TRACK_PS_QUEUE + i);
        slice.ns = ns[i];
        later_add(chrome, slice);
        slice.start_ns += ns[i];
    }
}

static void put_workers(struct chrome *chrome, const char *where)
{
    /* Records on another clock cannot be placed on this time axis. */
    char *tail = sqlite3_mprintf(
        "LEFT JOIN served ON served.worker = rpc.worker AND served.server = rpc.server"
        " AND served.rpc = rpc.rpc AND served.arrival_ns BETWEEN rpc.t0_ns AND rpc.t1_ns"
        " AND served.departure_ns BETWEEN served.arrival_ns AND rpc.t1_ns %s ORDER BY rpc.t0_ns",
        where);
    if (tail == NULL) {
        weft_recdb_no_memory(chrome->db);
        return;
    }
    sqlite3_stmt *scan =
        weft_recdb_scan(chrome->db, ", served.arrival_ns, served.departure_ns", tail);
    struct weft_recdb_rpc rpc;
    while (weft_recdb_next(chrome->db, scan, &rpc)) {
        add_rpc(chrome, &rpc, scan);
    }
    sqlite3_finalize(scan);
    sqlite3_free(tail);
    later_put(chrome, UINT64_MAX);
}

static void put_servers(struct chrome *chrome, const char *where)
{
    sqlite3_stmt *scan = weft_recdb_served_scan(chrome->db, where, "ORDER BY arrival_ns");
    struct weft_recdb_served served;
    while (weft_recdb_served_next(chrome->db, scan, &served)) {
        add_served(chrome, &served);
    }
    sqlite3_finalize(scan);
    later_put(chrome, UINT64_MAX);
}

static void put_head(struct weft_recdb *db, FILE *out)
{
    const char *comma = "{\"displayTimeUnit\":\"ns\",\"otherData\":{";
    for (const char *const *key = weft_recdb_about; *key != NULL; key++) {
        fprintf(out, "%s\"%s\":", comma, *key);
        weft_recdb_json_text(out, weft_recdb_meta(db, *key));
        comma = ",";
    }
    fputs("},\n\"traceEvents\":[\n", out);
}

weft_status weft_recdb_chrome(struct weft_recdb *db, const char *where, const char *served_where,
                              FILE *out, struct weft_recdb_chrome_sum *sum_p)
{
    struct chrome chrome = {.db = db, .out = out, .comma = ""};
    chrome.origin_ns = weft_recdb_number(
        db, weft_recdb_query(db, "SELECT min(t) FROM (SELECT min(t0_ns) AS t FROM rpc"
                                 " WHERE t0_ns >= 0 UNION ALL SELECT min(arrival_ns) FROM served"
                                 " WHERE arrival_ns >= 0)"));
    put_head(db, out);
    put_workers(&chrome, where);
    put_servers(&chrome, served_where);
    fputs("\n]}\n", out);
    for (size_t i = 0; i < chrome.track_count; i++) {
        free(chrome.tracks[i].lanes);
    }
    free(chrome.tracks);
    free(chrome.later);
    *sum_p = chrome.sum;
    return db->status;
}
