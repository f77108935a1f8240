/* Internals of a simulated job with a coordinator, shared by swarm_member.c (drawing, the run),
 * swarm_member_hosts.c (endpoints, members, workers, the coordinator) and swarm_member_server.c
 * (lifecycle of servers, the supervisor). Private. */
#ifndef WEFT_SIM_SWARM_MEMBER_INTERNAL_H
#define WEFT_SIM_SWARM_MEMBER_INTERNAL_H

#include "member/client.h"
#include "member/service.h"
#include "sim/dirlog.h"
#include "sim/swarm_member.h"
#include "sim/swarm_ps_internal.h"

/* Maximum number of processes of one shard at a time: the current one, and replaced ones that are
 * frozen. */
enum { SLOTS = 3, SERVERS_MAX = SHARDS_MAX * SLOTS, PROCESSES_MAX = SERVERS_MAX + WORKERS_MAX };
enum { JOURNAL_MAX = 1024, EVENTS_MAX = 8, COORDINATOR_SLOTS = 32 };
enum { SWARM_PORT = 1000 }; /* plus the host: the port that a server publishes */

/* Everything except packets happens at ticks. */
static const uint64_t swarm_tick_ns = WEFT_NS_PER_MS;

enum server_state {
    SERVER_NONE, /* no process, or it has exited */
    SERVER_JOINING,
    SERVER_CLAIMING,
    SERVER_READING,
    SERVER_RESTORING,
    SERVER_SERVING,
};

enum server_writes { WRITES_NOTHING, WRITES_CUT, WRITES_FILE, WRITES_MANIFEST };

struct swarm_server {
    enum server_state state;
    enum server_writes writes;
    uint32_t incarnation;
    struct weft_shard *shard; /* kept after the process has exited, until its endpoint is freed */
    struct weft_dirlog_reader reader;
    uint32_t chosen;    /* serial of the manifest that it restores; 0 = none */
    uint64_t number;    /* of its last checkpoint */
    uint64_t step_ns;   /* time of the next step of claiming, reading or writing */
    uint64_t frozen_ns; /* frozen until then */
    struct weft_saved *cut;
};

/* The member of a process: of each server and each worker. */
struct swarm_client {
    struct weft_member_client *client;
    uint64_t wake_ns; /* scheduled; 0 = none */
};

enum event_kind { EVENT_FREEZE, EVENT_KILL, EVENT_COORDINATOR, EVENT_KINDS };

struct swarm_event {
    enum event_kind kind;
    uint64_t at_ns;
    uint64_t span_ns; /* duration of freezing or absence */
    uint32_t shard;
};

struct swarm_member {
    struct swarm_ps ps;
    struct weft_prng prng; /* for events at ticks */
    uint32_t servers;      /* slots of all shards; the processes after them are workers */
    uint32_t processes;
    uint64_t lease_ns;
    uint64_t think_ns; /* longest pause of a worker */
    uint32_t full_ppm; /* probability for each checkpoint that the disk is full */
    uint32_t events;
    struct swarm_event event[EVENTS_MAX];
    uint64_t busy_until_ns; /* end of the last event */

    struct swarm_server server[SERVERS_MAX];
    struct swarm_client client[PROCESSES_MAX];
    struct weft_dirlog log;
    uint32_t durable[SHARDS_MAX]; /* serial of the last manifest reported to workers */
    uint64_t pause_ns[WORKERS_MAX];
    uint32_t generation; /* of endpoints; all are distinct */

    /* The supervisor. */
    uint32_t current[SHARDS_MAX]; /* server */
    uint32_t starts[SHARDS_MAX];
    uint64_t start_ns[SHARDS_MAX];   /* start time of the next process; WEFT_NEVER = none */
    uint64_t replace_ns[SHARDS_MAX]; /* time at which the unresponsive current process is replaced;
                                      * WEFT_NEVER = none */
    struct {
        uint64_t frozen, killed, replaced, thawed, checkpoints, full, coordinator_deaths;
    } seen;

    struct weft_roster *roster;
    struct weft_member_service *service;
    uint64_t service_wake_ns;
    uint64_t coordinator_up_ns; /* restart time; WEFT_NEVER = it is up */
    struct {
        uint8_t op;
        uint16_t count;
        uint8_t bytes[WEFT_MEMBER_REQUEST_BYTES_MAX];
    } journal[JOURNAL_MAX];
    uint32_t journal_count;
    uint32_t journal_synced;
};

static inline uint32_t member_host(const struct swarm_member *m, uint32_t process)
{
    return m->processes + process;
}

static inline uint32_t coordinator_host(const struct swarm_member *m)
{
    return 2 * m->processes;
}

static inline uint32_t shard_of(uint32_t server)
{
    return server / SLOTS;
}

/* ---- swarm_member_hosts.c -------------------------------------------------------------------- */

/* Start the coordinator with the state from its journal. Not inside a round of progress; also the
 * next three. */
void weft_swarm_coordinator_start(struct swarm_member *m);
void weft_swarm_coordinator_kill(struct swarm_member *m);

/* Start the member of a process. */
void weft_swarm_client_start(struct swarm_member *m, uint32_t process,
                             const struct weft_member_client_config *config);

/* Start the data endpoint of a process. */
void weft_swarm_data_start(struct swarm_member *m, uint32_t process, uint64_t name,
                           uint32_t expects);

/* Create the client of a worker that has a server list but no client yet. */
void weft_swarm_worker_tick(struct swarm_member *m, uint32_t w, uint64_t now_ns);
void weft_swarm_worker_start(struct swarm_member *m, uint32_t w);

/* ---- swarm_member_server.c ------------------------------------------------------------------- */

void weft_swarm_server_start(struct swarm_member *m, uint32_t s);
void weft_swarm_server_tick(struct swarm_member *m, uint32_t server, uint64_t now_ns);
void weft_swarm_server_freeze(struct swarm_member *m, uint32_t s, uint64_t until_ns);
void weft_swarm_server_kill(struct swarm_member *m, uint32_t s, uint64_t now_ns);
void weft_swarm_supervise(struct swarm_member *m, uint64_t now_ns);
void weft_swarm_server_free(struct swarm_server *server); /* call after its endpoint is freed */

#endif
