/* All processes of one `weft train`: start them, hear them, notice their end, end them.
 *
 * A polled state machine over system calls: weft_crew_next sleeps until the next event. Everything
 * a child wrote before it ended is handed out before its end is.
 */
#ifndef WEFT_CLI_TRAIN_CREW_H
#define WEFT_CLI_TRAIN_CREW_H

#include "cli/train/process.h"

#include <poll.h>

struct weft_crew {
    struct weft_process *processes; /* (count,) */
    uint32_t count;
    uint32_t capacity;
    struct pollfd *fds; /* (capacity + 1,): room for one wait */
    int signal_fd;      /* SIGCHLD and what asks us to stop; they are blocked meanwhile */
};

enum weft_crew_event_type {
    WEFT_CREW_TIMEOUT,
    WEFT_CREW_MESSAGE, /* object is the caller's */
    WEFT_CREW_EXITED,  /* process has ended; once for each */
    WEFT_CREW_SIGNAL,  /* SIGINT, SIGTERM or SIGHUP came */
};

struct weft_crew_event {
    enum weft_crew_event_type type;
    struct weft_process *process;
    cJSON *object;
    int signal;
};

/* Takes over SIGINT, SIGTERM, SIGHUP and SIGCHLD of the calling thread.
 * Errors:  WEFT_IO (errno says why), WEFT_NOMEM. */
weft_status weft_crew_init(struct weft_crew *crew, uint32_t capacity);

/* Errors:  those of weft_process_start. */
weft_status weft_crew_start(struct weft_crew *crew, const char *role, uint32_t rank,
                            struct weft_arguments *arguments, struct weft_process **process_p);

/* The next event; TIMEOUT after timeout_ns (WEFT_NEVER = none). */
void weft_crew_next(struct weft_crew *crew, uint64_t timeout_ns, struct weft_crew_event *event_p);

/* End all that still run: SIGTERM, then after grace_ns SIGKILL. Waits until none is left. */
void weft_crew_stop(struct weft_crew *crew, uint64_t grace_ns);

/* After weft_crew_stop. */
void weft_crew_fini(struct weft_crew *crew);

#endif
