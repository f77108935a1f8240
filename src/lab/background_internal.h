/* Shared by background.c (the loop) and background_flow.c (a single flow) only. */
#ifndef WEFT_LAB_BACKGROUND_INTERNAL_H
#define WEFT_LAB_BACKGROUND_INTERNAL_H

#include "lab/background.h"
#include "lab/clock.h"
#include "lab/flow_plan.h"

#include <netinet/in.h>

#define WEFT_BACKGROUND_NONE UINT32_MAX

struct weft_background_flow {
    uint64_t begun_ns; /* the planned start */
    uint64_t bytes;
    uint64_t sent;
    uint64_t received;
    uint32_t next_free;  /* while the flow is unused */
    uint32_t generation; /* part of its events; incremented at its end, so that late events are
                          * recognized */
    uint16_t source;
    uint16_t port; /* source port, by which the sink identifies the flow */
    int out_fd;
    int in_fd; /* -1 until accepted */
};

struct weft_background {
    const struct weft_background_config *config;
    struct weft_background_report *report;
    struct weft_flow_plan plan;
    int own_netns;
    int epoll_fd;
    int timer_fd;
    uint32_t here;                      /* host whose namespace the thread is in, or NONE */
    struct in_addr *addresses;          /* (hosts,) */
    int *listeners;                     /* (hosts,) */
    uint32_t *owners;                   /* (hosts, 65536): 1 + flow of a source's port; 0 = none */
    struct weft_background_flow *flows; /* (flows_max,) */
    uint32_t free_first;
    uint32_t under_way;
    uint64_t begun_ns; /* time zero of the plan */
    uint64_t received; /* of all flows so far */
};

/* The subject of an epoll event; packed into its 64 bits with the generation above. */
enum weft_background_kind {
    WEFT_BACKGROUND_OUT,
    WEFT_BACKGROUND_IN,
    WEFT_BACKGROUND_LISTEN,
    WEFT_BACKGROUND_TIMER,
    WEFT_BACKGROUND_STOP,
};

/* errno on failure. */
int weft_background_watch(struct weft_background *b, int fd, uint32_t events,
                          enum weft_background_kind kind, uint32_t index, uint32_t generation);

/* Move the thread to the network namespace of a host. Returns 0 or an errno. */
int weft_background_go_to(struct weft_background *b, uint32_t host);

void weft_background_flow_begin(struct weft_background *b, const struct weft_flow_arrival *arrival);
/* Accept the waiting connections on this host. */
void weft_background_flow_accept(struct weft_background *b, uint32_t host);
/* The kind is OUT or IN; an event with a stale generation is ignored. */
void weft_background_flow_event(struct weft_background *b, enum weft_background_kind kind,
                                uint32_t index, uint32_t generation, uint32_t events);
/* Close its descriptors; the flow is not counted. */
void weft_background_flow_end(struct weft_background *b, struct weft_background_flow *flow);

#endif
