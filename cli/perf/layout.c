#define _GNU_SOURCE // setns
#include "cli/perf/layout.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Parse a list of hosts such as "0,3-8", in its order; a host may appear twice. Returns their
 * number; 0: not a list. */
static uint32_t parse_hosts(const char *text, uint32_t hosts[WEFT_PERF_PARTICIPANTS_MAX])
{
    uint32_t count = 0;
    for (;;) {
        unsigned first;
        unsigned last;
        int one = 0;
        int both = 0;
        if (sscanf(text, "%3u%n-%3u%n", &first, &one, &last, &both) < 1) {
            return 0;
        }
        text += both > 0 ? both : one;
        last = both > 0 ? last : first;
        if (first > last || (*text != ',' && *text != '\0')) {
            return 0;
        }
        for (; first <= last && count < WEFT_PERF_PARTICIPANTS_MAX; first++) {
            hosts[count++] = first;
        }
        if (*text++ == '\0') {
            return count;
        }
    }
}

static bool layout_on_hosts(const char *hosts, uint32_t participants,
                            struct weft_perf_layout *layout, struct weft_error *error)
{
    uint32_t count = layout->network.hosts;
    if (hosts != NULL) {
        count = parse_hosts(hosts, layout->hosts);
        if (count == 0) {
            return weft_perf_fail(error,
                                  "--hosts \"%.60s\" is not a list of hosts; expected for example "
                                  "0,3-9",
                                  hosts);
        }
    } else {
        for (uint32_t i = 0; i < count && i < WEFT_PERF_PARTICIPANTS_MAX; i++) {
            layout->hosts[i] = i;
        }
    }
    if (count < participants) {
        return weft_perf_fail(error,
                              "%u participants and %u hosts: create a larger lab, or name hosts "
                              "twice with --hosts",
                              participants, count);
    }
    for (uint32_t i = 0; i < participants; i++) {
        if (layout->hosts[i] >= layout->network.hosts) {
            return weft_perf_fail(error, "lab %s has no host %u, only 0 to %u", layout->lab,
                                  layout->hosts[i], layout->network.hosts - 1);
        }
    }
    return true;
}

bool weft_perf_layout_find(const char *lab, const char *hosts, uint32_t participants,
                           struct weft_perf_layout *layout_p, struct weft_error *error)
{
    *layout_p = (struct weft_perf_layout){.lab = lab};
    if (lab == NULL) {
        return true;
    }
    return weft_lab_find(lab, &layout_p->network, error) == WEFT_OK &&
           layout_on_hosts(hosts, participants, layout_p, error);
}

pid_t weft_perf_layout_fork(void *layout, uint32_t participant, struct weft_error *error_p)
{
    const struct weft_perf_layout *there = layout;
    pid_t pid;
    return weft_lab_fork(&there->network, there->hosts[participant], &pid, error_p) == WEFT_OK ? pid
                                                                                               : -1;
}

bool weft_perf_netns_enter(const struct weft_perf_layout *layout, uint32_t participant, int *home_p,
                           struct weft_error *error)
{
    int there = -1;
    *home_p = -1;
    if (layout->lab == NULL) {
        return true;
    }
    if (weft_lab_netns(&layout->network, layout->hosts[participant], &there, error) != WEFT_OK) {
        return false;
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
    return weft_perf_fail(error, "cannot enter the network namespace of host %u: %s",
                          layout->hosts[participant], strerror(why));
}

void weft_perf_netns_leave(int home)
{
    if (home >= 0) {
        int status = setns(home, CLONE_NEWNET);
        WEFT_ASSERT(status == 0); /* the thread was in this namespace before, and the descriptor is
                                   * open */
        (void)close(home);
    }
}

void weft_perf_layout_address(const struct weft_perf_layout *layout, uint32_t participant,
                              char address_p[WEFT_PERF_ADDRESS_BYTES])
{
    if (layout->lab != NULL) {
        weft_lab_address(&layout->network, layout->hosts[participant], address_p);
    } else {
        (void)snprintf(address_p, WEFT_PERF_ADDRESS_BYTES, "127.0.0.1");
    }
}

void weft_perf_layout_sockaddr(const struct weft_perf_layout *layout, uint32_t participant,
                               uint16_t port, struct sockaddr_in *addr_p)
{
    char text[WEFT_PERF_ADDRESS_BYTES];
    weft_perf_layout_address(layout, participant, text);
    *addr_p = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    (void)inet_pton(AF_INET, text, &addr_p->sin_addr);
}

int weft_perf_layout_socket(const struct weft_perf_layout *layout, uint32_t participant, int type,
                            struct weft_error *error)
{
    int home;
    if (!weft_perf_netns_enter(layout, participant, &home, error)) {
        return -1;
    }
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        (void)weft_perf_fail(error, "cannot create a socket: %s", strerror(errno));
    }
    weft_perf_netns_leave(home);
    return fd;
}

bool weft_perf_layout_bind(const struct weft_perf_layout *layout, uint32_t participant, int fd,
                           struct sockaddr_in *addr_p)
{
    socklen_t bytes = sizeof(*addr_p);
    weft_perf_layout_sockaddr(layout, participant, 0, addr_p);
    return bind(fd, (struct sockaddr *)addr_p, bytes) == 0 &&
           getsockname(fd, (struct sockaddr *)addr_p, &bytes) == 0;
}
