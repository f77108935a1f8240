#define _GNU_SOURCE // setns
#include "cli/perf/place.h"

#include "base/assert.h"
#include "lab/cluster.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static_assert((int)WEFT_PERF_ADDRESS_BYTES == (int)WEFT_LAB_ADDRESS_BYTES);

[[gnu::format(printf, 2, 3)]] static bool fail(char *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error, WEFT_PERF_PLACE_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

/* "3" or "3-8" at *text_p, which moves behind it. */
static bool parse_range(const char **text_p, uint32_t *first_p, uint32_t *last_p)
{
    unsigned first;
    unsigned last;
    int used = 0;
    if (sscanf(*text_p, "%3u%n", &first, &used) != 1) {
        return false;
    }
    *text_p += used;
    last = first;
    if (**text_p == '-') {
        used = 0;
        if (sscanf(*text_p + 1, "%3u%n", &last, &used) != 1) {
            return false;
        }
        *text_p += 1 + used;
    }
    *first_p = first;
    *last_p = last;
    return first <= last;
}

/* The hosts of the list, in its order; a host may come twice. Returns their number; 0: no list. */
static uint32_t parse_hosts(const char *text, uint32_t hosts[WEFT_PERF_PARTICIPANTS_MAX])
{
    uint32_t count = 0;
    for (;;) {
        uint32_t first;
        uint32_t last;
        if (!parse_range(&text, &first, &last)) {
            return 0;
        }
        for (; first <= last && count < WEFT_PERF_PARTICIPANTS_MAX; first++) {
            hosts[count++] = first;
        }
        if (*text == '\0') {
            return count;
        }
        if (*text++ != ',') {
            return 0;
        }
    }
}

static bool place_on_hosts(const char *hosts, uint32_t participants, struct weft_perf_place *place,
                           char *error)
{
    uint32_t count = place->network.hosts;
    if (hosts != NULL) {
        count = parse_hosts(hosts, place->hosts);
        if (count == 0) {
            return fail(error, "--hosts \"%.60s\" is no list of hosts such as 0,3-9", hosts);
        }
    } else {
        for (uint32_t i = 0; i < count && i < WEFT_PERF_PARTICIPANTS_MAX; i++) {
            place->hosts[i] = i;
        }
    }
    if (count < participants) {
        return fail(error, "%u participants and %u hosts: bring up a larger lab, or name hosts "
                           "twice with --hosts",
                    participants, count);
    }
    for (uint32_t i = 0; i < participants; i++) {
        if (place->hosts[i] >= place->network.hosts) {
            return fail(error, "lab %s has no host %u, only 0 to %u", place->lab, place->hosts[i],
                        place->network.hosts - 1);
        }
    }
    return true;
}

bool weft_perf_place_find(const char *lab, const char *hosts, uint32_t participants,
                          struct weft_perf_place *place_p, char *error)
{
    *place_p = (struct weft_perf_place){.lab = lab};
    if (lab == NULL) {
        return true;
    }
    struct weft_lab_error lab_error;
    struct weft_lab_info *info = calloc(1, sizeof(*info));
    place_p->info = info;
    if (info == NULL) {
        return fail(error, "no memory");
    }
    if (weft_lab_find(lab, info, &lab_error) != WEFT_OK) {
        return fail(error, "%s", lab_error.text);
    }
    place_p->network = (struct weft_perf_network){
        .rate_bps = info->rate_bps,
        .buffer_bytes = info->buffer_bytes,
        .base_rtt_ns = info->base_rtt_ns,
        .loss_ppm = info->loss_ppm,
        .ecn_bytes = info->ecn_bytes,
        .hosts = info->hosts,
        .hysteresis = info->hysteresis,
        .uneven = info->uneven,
    };
    (void)snprintf(place_p->network.topology, sizeof(place_p->network.topology), "%s",
                   info->topology);
    return place_on_hosts(hosts, participants, place_p, error);
}

void weft_perf_place_fini(struct weft_perf_place *place)
{
    free(place->info);
    place->info = NULL;
}

bool weft_perf_place_fork(const struct weft_perf_place *place, uint32_t participant, pid_t *pid_p,
                          char *error)
{
    if (place->info != NULL) {
        struct weft_lab_error lab_error;
        return weft_lab_fork(place->info, place->hosts[participant], pid_p, &lab_error) ==
                   WEFT_OK ||
               fail(error, "%s", lab_error.text);
    }
    pid_t pid = fork();
    if (pid < 0) {
        return fail(error, "no process: %s", strerror(errno));
    }
    *pid_p = pid;
    return true;
}

bool weft_perf_place_visit(const struct weft_perf_place *place, uint32_t participant, int *home_p,
                           char *error)
{
    struct weft_lab_error lab_error;
    int there = -1;
    *home_p = -1;
    if (place->info == NULL) {
        return true;
    }
    if (weft_lab_netns(place->info, place->hosts[participant], &there, &lab_error) != WEFT_OK) {
        return fail(error, "%s", lab_error.text);
    }
    int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    bool moved = home >= 0 && setns(there, CLONE_NEWNET) == 0;
    int why = errno;
    (void)close(there);
    if (moved) {
        *home_p = home;
        return true;
    }
    (void)close(home);
    return fail(error, "the network of host %u: %s", place->hosts[participant], strerror(why));
}

void weft_perf_place_return(int home)
{
    if (home >= 0) {
        int status = setns(home, CLONE_NEWNET);
        WEFT_ASSERT(status == 0); /* it was here a moment ago, and its descriptor is open */
        (void)close(home);
    }
}

void weft_perf_place_address(const struct weft_perf_place *place, uint32_t participant,
                             char address_p[WEFT_PERF_ADDRESS_BYTES])
{
    if (place->info != NULL) {
        weft_lab_address(place->info, place->hosts[participant], address_p);
    } else {
        (void)snprintf(address_p, WEFT_PERF_ADDRESS_BYTES, "127.0.0.1");
    }
}
