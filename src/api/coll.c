/* <weft/coll.h>: a communicator is a thread with the collectives of this rank (node/coll_thread.h).
 * This file opens and joins it, checks calls, and keeps the error text of each calling thread. */
#include "api/coll_internal.h"

#include "io/clock.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DONE_BYTES_MIN = offsetof(struct weft_comm_done, total_ns) + sizeof(uint64_t),
    COUNTERS_BYTES_MIN =
        offsetof(struct weft_comm_counters, retransmitted_packets) + sizeof(uint64_t),
};

/* Several threads may call at once, so each has its own error text. */
static _Thread_local struct weft_error last_error;

const char *weft_comm_error(const struct weft_comm *comm)
{
    (void)comm;
    return last_error.text;
}

struct weft_error *weft_api_comm_error(void)
{
    return &last_error;
}

static weft_status forked(void)
{
    return weft_fail(&last_error, WEFT_STATE,
                     "this communicator was opened before this process was forked, and only the "
                     "parent can use it; open another one in the child");
}

weft_status weft_api_comm_forked(void)
{
    return forked();
}

static weft_status has_failed(struct weft_comm *comm)
{
    char why[sizeof(last_error.text) - 1];
    why[0] = '\0';
    (void)weft_coll_thread_failed(comm->thread, why, sizeof(why));
    return weft_fail(&last_error, WEFT_PEER, "%s", why);
}

/* ---- opening --------------------------------------------------------------------------------- */

static weft_status open_thread(struct weft_comm *comm, const struct weft_comm_config *ours,
                               struct weft_coll_thread_config *config)
{
    const struct weft_api_security from = {ours->security, ours->key_file, ours->key};
    weft_status status = weft_api_security_load(&from, &comm->security, &last_error);
    config->security = &comm->security;
    return status == WEFT_OK ? weft_coll_thread_start(config, &comm->thread, &last_error) : status;
}

static void set_address(struct weft_comm *comm, const char *host)
{
    const char *name = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    const char *form = strchr(name, ':') != NULL ? "[%s]:%u" : "%s:%u";
    snprintf(comm->address, sizeof(comm->address), form, name,
             (unsigned)weft_coll_thread_port(comm->thread));
}

weft_status weft_comm_open(const struct weft_comm_config *config, struct weft_comm **comm_p)
{
    struct weft_comm_config ours;
    struct weft_coll_thread_config thread;
    struct weft_api_comm_box box;
    weft_status status = weft_api_comm_config_read(config, &ours, &thread, &box, &last_error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_comm *comm = calloc(1, sizeof(*comm));
    uint32_t groups_max = ours.groups_max + (thread.box.host != NULL ? WEFT_COLL_BOX_GROUPS : 0);
    struct weft_api_comm_group *group = calloc(groups_max, sizeof(*group));
    if (comm == NULL || group == NULL) {
        free(comm);
        free(group);
        return weft_fail(&last_error, WEFT_NOMEM, "no memory for a communicator");
    }
    comm->has_box = thread.box.host != NULL;
    comm->groups_max = groups_max;
    comm->group = group;
    comm->group[0] = (struct weft_api_comm_group){.n = ours.ranks, .me = ours.rank};
    weft_comm_plan_init(&comm->first, sizeof(comm->first));
    comm->first.form = ours.plan;
    comm->first.up_bps = ours.link_bps;
    comm->op_timeout_ns = ours.op_timeout_ns;
    comm->coll = thread.coll;
    comm->coll.chunks_max = thread.driver.udp.ep.chunks_max;
    comm->pid = getpid();
    status = open_thread(comm, &ours, &thread);
    if (status != WEFT_OK) {
        weft_comm_close(comm);
        return status;
    }
    set_address(comm, ours.host);
    *comm_p = comm;
    return WEFT_OK;
}

void weft_comm_close(struct weft_comm *comm)
{
    if (comm == NULL || comm->pid != getpid()) { /* after fork they belong to the parent */
        return;
    }
    weft_coll_thread_stop(comm->thread);
    weft_coll_exchange_free(comm->exchange);
    weft_security_fini(&comm->security);
    free(comm->group);
    free(comm);
}

const char *weft_comm_address(const struct weft_comm *comm)
{
    return comm->address;
}

weft_status weft_comm_join(struct weft_comm *comm, const char *const *addresses,
                           uint64_t timeout_ns)
{
    uint32_t ranks = comm->coll.ranks;
    if (comm->pid != getpid()) {
        return forked();
    }
    struct weft_launch_address *parsed = calloc(ranks, sizeof(*parsed));
    if (parsed == NULL) {
        return weft_fail(&last_error, WEFT_NOMEM, "no memory for %u addresses", ranks);
    }
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < ranks && status == WEFT_OK; i++) {
        uint32_t count;
        bool own = i == comm->coll.rank;
        if (!own && (addresses[i] == NULL ||
                     weft_launch_servers_parse(addresses[i], &parsed[i], 1, &count) != NULL)) {
            status = weft_fail(&last_error, WEFT_INVALID,
                               "the address of rank %u is \"%.60s\"; it must be HOST:PORT with a "
                               "numeric host, as weft_comm_address gives it at that rank",
                               i, addresses[i] != NULL ? addresses[i] : "");
        }
    }
    uint64_t until_ns = weft_time_add(weft_clock_now_ns(), timeout_ns);
    if (status == WEFT_OK) {
        status = weft_coll_thread_join(comm->thread, parsed, timeout_ns, &last_error);
    }
    if (status == WEFT_OK && comm->first.form != WEFT_COMM_PLAN_NONE) {
        status = weft_api_comm_plan_first(comm, until_ns, &last_error);
    }
    free(parsed);
    return status;
}

weft_status weft_comm_group(struct weft_comm *comm, const uint32_t *ranks, uint32_t n,
                            uint32_t *group_p)
{
    if (comm->pid != getpid()) {
        return forked();
    }
    uint32_t number;
    weft_status status = weft_coll_thread_group(comm->thread, ranks, n, &number, &last_error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_api_comm_group *group = &comm->group[number];
    *group = (struct weft_api_comm_group){.n = n, .me = UINT32_MAX};
    for (uint32_t i = 0; i < n; i++) {
        group->me = ranks[i] == comm->coll.rank ? i : group->me;
    }
    *group_p = number;
    return WEFT_OK;
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct weft_coll_call call_of(const struct weft_comm *comm, const struct weft_comm_op *op)
{
    return (struct weft_coll_call){
        .kind = (enum weft_coll_kind)op->kind,
        .type = (enum weft_coll_type)op->type,
        .reduction = (enum weft_coll_reduction)op->reduction,
        .group = op->group,
        .root = op->root,
        .peer = op->peer,
        .tag = op->tag,
        .count = op->count,
        .in = op->in,
        .out = op->out,
        .bound_ppm = op->bound_ppm,
        .stream = op->stream,
        .residual = op->residual,
        .missed = op->missed,
        .timeout_ns = op->timeout_ns != 0 ? op->timeout_ns : comm->op_timeout_ns,
        .user = (uintptr_t)op->user,
    };
}

static weft_status call_check(const struct weft_comm *comm, const struct weft_comm_op *op,
                              const struct weft_coll_call *call)
{
    const struct weft_api_comm_group *group =
        op->group < comm->groups_max ? &comm->group[op->group] : NULL;
    if (group == NULL || group->n == 0) {
        return weft_fail(&last_error, WEFT_INVALID,
                         "group %u does not exist; create it with weft_comm_group", op->group);
    }
    if (group->me == UINT32_MAX) {
        return weft_fail(&last_error, WEFT_INVALID,
                         "rank %u is not in group %u; only its members call its operations",
                         comm->coll.rank, op->group);
    }
    const char *wrong = weft_coll_call_check(&comm->coll, call, group->n, group->me);
    return wrong == NULL ? WEFT_OK : weft_fail(&last_error, WEFT_INVALID, "%s", wrong);
}

weft_status weft_comm_begin(struct weft_comm *comm, const struct weft_comm_op *op, uint64_t *id_p)
{
    struct weft_comm_op ours;
    if (comm->pid != getpid()) {
        return forked();
    }
    weft_status status = weft_api_comm_op_read(op, &ours, &last_error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_coll_call call = call_of(comm, &ours);
    status = call_check(comm, &ours, &call);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_coll_thread_begin(comm->thread, &call, id_p);
    if (status == WEFT_AGAIN) {
        return weft_fail(&last_error, status,
                         "%u operations have begun and were not waited for; wait for one, or raise "
                         "ops_max",
                         comm->coll.ops_max);
    }
    return status == WEFT_PEER ? has_failed(comm) : status;
}

static weft_status wait_for(struct weft_comm *comm, uint64_t id, uint64_t timeout_ns,
                            struct weft_comm_done *done_p)
{
    struct weft_coll_done done;
    if (comm->pid != getpid()) {
        return forked();
    }
    uint64_t until_ns = timeout_ns == 0 ? 0 : weft_time_add(weft_clock_now_ns(), timeout_ns);
    weft_status status = weft_coll_thread_wait(comm->thread, id, until_ns, &id, &done);
    if (status == WEFT_TIMEOUT) {
        return weft_fail(&last_error, status, "not done within %llu ms; wait again",
                         (unsigned long long)(timeout_ns / WEFT_NS_PER_MS));
    }
    if (status != WEFT_OK) {
        return weft_fail(&last_error, status,
                         "no such operation is in progress; an operation can be waited for once");
    }
    struct weft_comm_done ours = {
        .size = sizeof(ours),
        .id = id,
        .user = (void *)(uintptr_t)done.user,
        .status = done.status,
        .contributors_min = done.contributors_min,
        .own_missing = done.own_missing,
        .nonfinite = done.nonfinite,
        .contributions_ns = done.contributions_ns,
        .total_ns = done.total_ns,
        .boxed = (uint32_t)done.boxed,
    };
    if (done_p != NULL) {
        weft_api_struct_out(done_p, &ours, sizeof(ours), DONE_BYTES_MIN);
    }
    return done.status == WEFT_OK ? WEFT_OK : has_failed(comm);
}

weft_status weft_comm_wait(struct weft_comm *comm, uint64_t id, uint64_t timeout_ns,
                           struct weft_comm_done *done_p)
{
    return wait_for(comm, id, timeout_ns, done_p);
}

weft_status weft_comm_wait_any(struct weft_comm *comm, uint64_t timeout_ns,
                               struct weft_comm_done *done_p)
{
    return wait_for(comm, WEFT_COLL_THREAD_ANY, timeout_ns, done_p);
}

weft_status weft_comm_run(struct weft_comm *comm, const struct weft_comm_op *op,
                          struct weft_comm_done *done_p)
{
    uint64_t id;
    weft_status status = weft_comm_begin(comm, op, &id);
    return status == WEFT_OK ? wait_for(comm, id, WEFT_NEVER, done_p) : status;
}

weft_status weft_comm_fd(struct weft_comm *comm, int *fd_p)
{
    if (comm->pid != getpid()) {
        return forked();
    }
    return weft_coll_thread_fd(comm->thread, fd_p) == WEFT_OK
               ? WEFT_OK
               : weft_fail(&last_error, WEFT_IO, "no eventfd: too many files are open");
}

void weft_comm_abort(struct weft_comm *comm, const char *text)
{
    if (comm->pid == getpid()) {
        weft_coll_thread_abort(comm->thread, text != NULL ? text : "");
    }
}

const char *weft_comm_box_failure(struct weft_comm *comm)
{
    char why[sizeof(last_error.text) - 1];
    if (comm->pid != getpid() || !weft_coll_thread_box_failed(comm->thread, why, sizeof(why))) {
        return NULL;
    }
    (void)weft_fail(&last_error, WEFT_UNSUPPORTED, "%s", why);
    return last_error.text;
}

const char *weft_comm_failure(struct weft_comm *comm)
{
    char why[2];
    if (comm->pid != getpid() || !weft_coll_thread_failed(comm->thread, why, sizeof(why))) {
        return NULL;
    }
    (void)has_failed(comm);
    return last_error.text;
}

static uint64_t box_state_of(const struct weft_comm *comm, enum weft_coll_box_state state)
{
    static const uint64_t states[] = {
        [WEFT_COLL_BOX_NEW] = WEFT_COMM_BOX_UNTRIED, [WEFT_COLL_BOX_SETUP] = WEFT_COMM_BOX_TRIAL,
        [WEFT_COLL_BOX_TRIAL] = WEFT_COMM_BOX_TRIAL, [WEFT_COLL_BOX_ON] = WEFT_COMM_BOX_USED,
        [WEFT_COLL_BOX_OFF] = WEFT_COMM_BOX_FAILED,
    };
    return comm->has_box ? states[state] : WEFT_COMM_BOX_NONE;
}

void weft_comm_counters_get(struct weft_comm *comm, struct weft_comm_counters *counters_p)
{
    struct weft_coll_thread_counters c = {0};
    if (comm->pid == getpid()) {
        weft_coll_thread_counters(comm->thread, &c);
    }
    struct weft_comm_counters ours = {
        .operations = c.coll.begun,
        .operations_done = c.coll.done,
        .messages_sent = c.coll.messages_sent,
        .message_bytes_sent = c.coll.bytes_sent,
        .elements_missing = c.coll.elements_missing,
        .own_elements_missing = c.coll.own_elements_missing,
        .nonfinite = c.coll.nonfinite,
        .early_messages = c.coll.early_messages,
        .connections_refused = c.coll.peers_refused,
        .datagrams_sent = c.driver.socket.datagrams_sent,
        .datagrams_received = c.driver.socket.datagrams_received,
        .bytes_sent = c.driver.socket.bytes_sent,
        .bytes_received = c.driver.socket.bytes_received,
        .retransmitted_packets = c.driver.ep.retransmitted_packets,
        .box_operations = c.box.operations,
        .box_fallbacks = c.box.fallbacks,
        .box_direct_elements = c.box.direct_elements,
        .box_packets_resent = c.box_packets_resent,
        .box_state = box_state_of(comm, c.box_state),
        .box_retries = c.box.retries,
        .box_recoveries = c.box.recoveries,
        .plan_operations = c.coll.planned,
        .plan_trees = c.coll.trees,
    };
    weft_api_struct_out(counters_p, &ours, sizeof(ours), COUNTERS_BYTES_MIN);
}
