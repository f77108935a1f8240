#include "io/udp/link_counter.h"

#include "io/sock_addr.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* Reading costs a microsecond for each interface up to that of the link, and one of a physical
     * device is usually among the first. Without a count, trials decide (core/egress_share.c). */
    TEXT_BYTES_MAX = 16384, /* some 130 interfaces */
    PAGE_BYTES = 4096,
    LINE_BYTES_MORE = 64, /* numbers become longer */
    SENT_FIELD = 8,       /* the fields before it are of received packets */
    PAUSE_FIRST = 1024,     /* calls, of which there are at most a few thousand in a second */
    PAUSE_MAX = 1 << 20,
};

void weft_link_counter_init(struct weft_link_counter *counter)
{
    *counter = (struct weft_link_counter){.fd = -1, .pause = PAUSE_FIRST};
}

void weft_link_counter_close(struct weft_link_counter *counter)
{
    if (counter->fd >= 0) {
        (void)close(counter->fd);
        counter->fd = -1;
    }
}

/* ---- the interface --------------------------------------------------------------------------- */

static bool same_host(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    if (a == NULL || a->sa_family != b->ss_family) {
        return false;
    }
    if (a->sa_family == AF_INET) {
        return memcmp(&((const struct sockaddr_in *)(const void *)a)->sin_addr,
                      &((const struct sockaddr_in *)(const void *)b)->sin_addr, 4) == 0;
    }
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)(const void *)a;
    const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)(const void *)b;
    /* Interfaces of one device may have the same link-local address. */
    return a->sa_family == AF_INET6 && a6->sin6_scope_id == b6->sin6_scope_id &&
           memcmp(&a6->sin6_addr, &b6->sin6_addr, 16) == 0;
}

/* Name of the interface with this local address; false = none. For an address with a label,
 * getifaddrs returns the label, such as eth0:1; the part before the colon is the interface. A host
 * may have its address on the loopback interface, and its routes on others: then the interface is
 * not known. */
static bool name_of(const struct sockaddr_storage *local, bool loopback, char name_p[IF_NAMESIZE])
{
    bool found = false;
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) {
        return false;
    }
    for (const struct ifaddrs *next = all; next != NULL && !found; next = next->ifa_next) {
        found = same_host(next->ifa_addr, local) &&
                ((next->ifa_flags & IFF_LOOPBACK) != 0) == loopback &&
                snprintf(name_p, IF_NAMESIZE, "%.*s", (int)strcspn(next->ifa_name, ":"),
                         next->ifa_name) < IF_NAMESIZE;
    }
    freeifaddrs(all);
    return found;
}

/* connect on a UDP socket looks up the route and sends nothing. */
static bool name_towards(const struct weft_addr *to, char name_p[IF_NAMESIZE])
{
    struct sockaddr_storage local = {0};
    socklen_t bytes = sizeof(local);
    int fd = socket(weft_sock_addr_family(to), SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    const struct sockaddr *target = (const struct sockaddr *)(const void *)to->bytes;
    bool known = connect(fd, target, to->bytes_used) == 0 &&
                 getsockname(fd, (struct sockaddr *)&local, &bytes) == 0;
    (void)close(fd);
    return known && name_of(&local, weft_sock_addr_is_loopback(to), name_p);
}

/* The open file keeps the network namespace of the thread that has opened it. */
static void look_up(struct weft_link_counter *counter, const struct weft_addr *to)
{
    if (name_towards(to, counter->name)) {
        counter->fd = open("/proc/thread-self/net/dev", O_RDONLY | O_CLOEXEC);
    }
}

/* ---- the count ------------------------------------------------------------------------------- */

uint64_t weft_link_counter_parse(const char *text, const char *name, size_t *bytes_p)
{
    size_t name_bytes = strlen(name);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += strspn(line, " \n");
        const char *at = line + name_bytes;
        if (strncmp(line, name, name_bytes) != 0 || *at != ':') {
            continue;
        }
        at++;
        for (int field = 0; field < SENT_FIELD; field++) {
            at += strspn(at, " ");
            at += strspn(at, "0123456789");
        }
        char *end;
        uint64_t sent = strtoull(at, &end, 10);
        *bytes_p = (size_t)(end - text) + 1;
        return *end == ' ' ? sent : 0; /* otherwise the text ends within the line */
    }
    return 0;
}

/* The kernel writes the lines of the interfaces only as far as the read goes, and at most a page.
 * So the first read ends a little behind the line of the interface as it was the last time. */
static uint64_t sent_now(struct weft_link_counter *counter)
{
    char text[TEXT_BYTES_MAX + 1];
    size_t used = 0, most = counter->text_bytes + LINE_BYTES_MORE;
    uint64_t sent = 0;
    ssize_t more = 1;
    while (sent == 0 && more > 0 && used < TEXT_BYTES_MAX) {
        most = weft_min_u64(most, TEXT_BYTES_MAX);
        more = pread(counter->fd, text + used, most - used, (off_t)used);
        used += more > 0 ? (size_t)more : 0;
        text[used] = '\0';
        sent = weft_link_counter_parse(text, counter->name, &counter->text_bytes);
        most = used + PAGE_BYTES;
    }
    return sent;
}

uint64_t weft_link_counter_sent(struct weft_link_counter *counter, const struct weft_addr *to)
{
    if (counter->left > 0) {
        counter->left--;
        return 0;
    }
    if (counter->fd < 0) {
        look_up(counter, to);
    }
    uint64_t sent = counter->fd >= 0 ? sent_now(counter) : 0;
    if (sent > 0) {
        counter->pause = PAUSE_FIRST;
        return sent;
    }
    weft_link_counter_close(counter); /* the interface is gone, or its count may not be read */
    counter->left = counter->pause;
    counter->pause = (uint32_t)weft_min_u64(2 * (uint64_t)counter->pause, PAUSE_MAX);
    return 0;
}
