/* The inside of a simulated job with a coordinator, shared by swarm_member.c (drawing, the run),
 * swarm_member_hosts.c (endpoints, members, workers, the coordinator) and swarm_member_server.c (a
 * server's life, the supervisor). Not for others. */
#ifndef WEFT_SIM_SWARM_MEMBER_INTERNAL_H
#define WEFT_SIM_SWARM_MEMBER_INTERNAL_H

#include "member/client.h"
#include "member/service.h"
#include "sim/dirlog.h"
#include "sim/swarm_member.h"
#include "sim/swarm_ps_internal.h"

/* Processes of one shard that can exist at a time: the current one, and replaced ones that are frozen. */
enum { SLOTS = 3, SERVERS_MAX = SHARDS_MAX * SLOTS, PROCESSES_MAX = SERVERS_MAX + WORKERS_MAX };
enum { JOURNAL_MAX = 1024, EVENTS_MAX = 8, COORDINATOR_SLOTS = 32 };
enum { SWARM_PORT = 1000 }; /* and the host: what a server publishes */

/* All that is not a packet happens at ticks. */
static const uint64_t swarm_tick_ns = WEFT_NS_PER_MS;

enum server_state {
    SERVER_NONE, /* no process, or it has ended */
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
    struct weft_shard *shard; /* also of a process that has ended, until its endpoint goes */
    struct weft_dirlog_reader reader;
    uint32_t chosen;  /* serial of the manifest that it restores; 0 = none */
    uint64_t number;  /* of its last checkpoint */
    uint64_t step_ns; /* the next step of claiming, reading, writing */
    uint64_t frozen_ns; /* until then */
    struct weft_saved *cut;
};

/* A member's side: of each server and each worker. */
struct swarm_client {
    struct weft_member_client *client;
    uint64_t wake_ns; /* planned; 0 = none */
};

enum event_kind { EVENT_FREEZE, EVENT_KILL, EVENT_COORDINATOR, EVENT_KINDS };

struct swarm_event {
    enum event_kind kind;
    uint64_t at_ns;
    uint64_t span_ns; /* frozen, or away, so long */
    uint32_t shard;
};

struct swarm_member {
    struct swarm_ps ps;
    struct weft_prng prng; /* of what happens at ticks */
    uint32_t servers;      /* slots of all shards; processes from there on are workers */
    uint32_t processes;
    uint64_t lease_ns;
    uint64_t think_ns; /* longest pause of a worker */
    uint32_t full_ppm; /* the disk is full, with this chance for each checkpoint */
    uint32_t events;
    struct swarm_event event[EVENTS_MAX];
    uint64_t busy_until_ns; /* the last event is over */

    struct swarm_server server[SERVERS_MAX];
    struct swarm_client client[PROCESSES_MAX];
    struct weft_dirlog log;
    uint32_t durable[SHARDS_MAX]; /* serial of the last manifest that workers were told of */
    uint64_t pause_ns[WORKERS_MAX];
    uint32_t generation; /* of endpoints: no two are the same */

    /* The supervisor. */
    uint32_t current[SHARDS_MAX]; /* server */
    uint32_t starts[SHARDS_MAX];
    uint64_t start_ns[SHARDS_MAX];   /* another process is due; WEFT_NEVER = none */
    uint64_t replace_ns[SHARDS_MAX]; /* the current one is silent, and replaced then; the same */
    struct {
        uint64_t frozen, killed, replaced, thawed, checkpoints, full, coordinator_deaths;
    } seen;

    struct weft_roster *roster;
    struct weft_member_service *service;
    uint64_t service_wake_ns;
    uint64_t coordinator_up_ns; /* WEFT_NEVER = it is up */
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

/* The coordinator with what its journal says. Not inside a crank, as the next three. */
void weft_swarm_coordinator_start(struct swarm_member *m);
void weft_swarm_coordinator_kill(struct swarm_member *m);

/* The member's side of a process. */
void weft_swarm_client_start(struct swarm_member *m, uint32_t process,
                             const struct weft_member_client_config *config);

/* The endpoint of a process, for its data. */
void weft_swarm_data_start(struct swarm_member *m, uint32_t process, uint64_t name,
                           uint32_t expects);

/* A worker that has a list and no client yet makes one. */
void weft_swarm_worker_tick(struct swarm_member *m, uint32_t w, uint64_t now_ns);
void weft_swarm_worker_start(struct swarm_member *m, uint32_t w);

/* ---- swarm_member_server.c ------------------------------------------------------------------- */

void weft_swarm_server_start(struct swarm_member *m, uint32_t s);
void weft_swarm_server_tick(struct swarm_member *m, uint32_t server, uint64_t now_ns);
void weft_swarm_server_freeze(struct swarm_member *m, uint32_t s, uint64_t until_ns);
void weft_swarm_server_kill(struct swarm_member *m, uint32_t s, uint64_t now_ns);
void weft_swarm_supervise(struct swarm_member *m, uint64_t now_ns);
void weft_swarm_server_free(struct swarm_server *server); /* after its endpoint */

#endif
