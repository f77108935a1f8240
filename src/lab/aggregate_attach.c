#include "lab/aggregate.h"

#include "base/assert.h"
#include "lab/aggregate_box.h"
#include "lab/bpf_load.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- addresses ------------------------------------------------------------------------------- */

/* Returns false with errno set. */
static bool read_mac(const char *interface, uint8_t *mac_p)
{
    struct ifreq request = {.ifr_flags = 0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    memcpy(request.ifr_name, interface, strnlen(interface, IF_NAMESIZE - 1));
    bool good = ioctl(fd, SIOCGIFHWADDR, &request) == 0;
    int code = errno;
    close(fd);
    errno = code;
    if (good) {
        memcpy(mac_p, request.ifr_hwaddr.sa_data, 6);
    }
    return good;
}

weft_status weft_aggregate_accept(struct weft_aggregate *box, const char *interface,
                                  struct weft_error *error)
{
    struct weft_aggregate_interface value = {.member = WEFT_AGG_MEMBERS_MAX};
    uint8_t mac[6];
    uint32_t ifindex = if_nametoindex(interface);
    if (ifindex == 0) {
        return weft_fail(error, WEFT_NOTFOUND, "no interface named %s", interface);
    }
    if (!read_mac(interface, mac)) {
        return errno == ENODEV ? weft_fail(error, WEFT_NOTFOUND, "no interface named %s", interface)
                               : weft_aggregate_fail(error, interface);
    }
    bool known = bpf_map_lookup_elem(box->maps[INTERFACES], &ifindex, &value) == 0;
    if (known && memcmp(value.mac, mac, sizeof(mac)) == 0) {
        return WEFT_OK;
    }
    memcpy(value.mac, mac, sizeof(mac));
    return bpf_map_update_elem(box->maps[INTERFACES], &ifindex, &value, BPF_ANY) == 0
               ? WEFT_OK
               : weft_aggregate_fail(error, interface);
}

static bool has(const uint32_t *addresses, uint32_t count, uint32_t address)
{
    while (count > 0 && addresses[count - 1] != address) {
        count--;
    }
    return count > 0;
}

weft_status weft_aggregate_set_addresses(struct weft_aggregate *box, const uint32_t *addresses,
                                         uint32_t count, struct weft_error *error)
{
    const uint32_t value = 1;
    if (count > WEFT_AGGREGATE_ADDRESSES_MAX) {
        return weft_fail(error, WEFT_INVALID,
                         "aggregation in the kernel: %u IPv4 addresses, at most %d are possible",
                         count, WEFT_AGGREGATE_ADDRESSES_MAX);
    }
    /* Step by step as in the kernel, so that a call after a failed one goes on from there. */
    int code = 0;
    for (uint32_t i = box->addresses_count; i > 0 && code == 0; i--) {
        uint32_t *known = &box->addresses[i - 1];
        if (!has(addresses, count, *known)) {
            code = bpf_map_delete_elem(box->maps[ADDRESSES], known);
            if (code == 0) {
                *known = box->addresses[--box->addresses_count];
            }
        }
    }
    for (uint32_t i = 0; i < count && code == 0; i++) {
        if (!has(box->addresses, box->addresses_count, addresses[i])) {
            code = bpf_map_update_elem(box->maps[ADDRESSES], &addresses[i], &value, BPF_ANY);
            if (code == 0) {
                box->addresses[box->addresses_count++] = addresses[i];
            }
        }
    }
    return code == 0 ? WEFT_OK
                     : weft_aggregate_fail(error, "aggregation in the kernel: addresses");
}

weft_status weft_aggregate_follow_host(struct weft_aggregate *box, struct weft_error *error)
{
    uint32_t addresses[WEFT_AGGREGATE_ADDRESSES_MAX];
    uint32_t count = 0;
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) {
        return weft_fail(error, WEFT_IO, "cannot read the addresses of this host: %s",
                         strerror(errno));
    }
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET) {
            continue;
        }
        struct sockaddr_in address;
        memcpy(&address, at->ifa_addr, sizeof(address));
        uint32_t one = address.sin_addr.s_addr;
        if (!has(addresses, count, one) && count < WEFT_AGGREGATE_ADDRESSES_MAX) {
            addresses[count++] = one;
        }
    }
    freeifaddrs(all);
    weft_status status = weft_aggregate_set_addresses(box, addresses, count, error);
    for (uint32_t i = 0; i < box->attached && status == WEFT_OK; i++) {
        char name[IF_NAMESIZE];
        if (if_indextoname((uint32_t)box->interfaces[i].ifindex, name) == NULL) {
            continue;
        }
        status = weft_aggregate_accept(box, name, error);
        status = status == WEFT_NOTFOUND ? WEFT_OK : status; /* gone between the two calls */
    }
    return status;
}

/* ---- interfaces ------------------------------------------------------------------------------ */

/* errno says why an interface was refused. In native mode a driver may need queues or memory that
 * it has not; generic mode needs none. */
static weft_status refused(const char *interface, bool generic, struct weft_error *error)
{
    bool lacks_room = errno == ENOSPC || errno == ENOMEM;
    if (lacks_room && !generic) {
        return weft_fail(error, WEFT_UNSUPPORTED, "%s: XDP in native mode: %s", interface,
                         strerror(errno));
    }
    switch (errno) {
    case EBUSY:
    case EEXIST:
        return weft_fail(error, WEFT_EXISTS, "%s: another XDP program is attached", interface);
    case EOPNOTSUPP:
    case EINVAL:
    case ERANGE:
        return weft_fail(error, WEFT_UNSUPPORTED, "%s: XDP in this mode: %s", interface,
                         strerror(errno));
    default:
        (void)weft_aggregate_fail(error, interface);
        return WEFT_IO; /* in any mode: not WEFT_UNSUPPORTED */
    }
}

static weft_status use_queues(struct weft_aggregate *box, struct weft_error *error)
{
    if (box->settings.through_queue) {
        return WEFT_OK;
    }
    box->settings.through_queue = 1;
    return weft_aggregate_write_settings(box, error);
}

/* libbpf 1.1 has no name for it, and passes the number on. */
enum { TCX_INGRESS = 46 };

weft_status weft_aggregate_attach(struct weft_aggregate *box, const char *interface, unsigned how,
                                  struct weft_error *error)
{
    WEFT_ASSERT(box->attached < WEFT_AGG_MEMBERS_MAX);
    bool generic = (how & WEFT_AGGREGATE_GENERIC) != 0;
    LIBBPF_OPTS(bpf_link_create_opts, options,
                .flags = generic ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE);
    int ifindex = (int)if_nametoindex(interface);
    int tc = -1;
    if (ifindex == 0) {
        return weft_fail(error, WEFT_NOTFOUND, "no interface named %s", interface);
    }
    weft_status status = weft_aggregate_accept(box, interface, error);
    if (status == WEFT_OK && how != 0) {
        status = use_queues(box, error);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (how != 0) {
        tc = bpf_link_create(box->spread, ifindex, (enum bpf_attach_type)TCX_INGRESS, NULL);
        if (tc < 0) {
            char what[IF_NAMESIZE + 32];
            snprintf(what, sizeof(what), "%s: tc program of a queue", interface);
            (void)weft_bpf_fail(error, errno, what, 6, 6);
            return WEFT_IO; /* in any mode: not WEFT_UNSUPPORTED */
        }
    }
    int xdp = bpf_link_create(box->program, ifindex, BPF_XDP, &options);
    if (xdp < 0) {
        status = refused(interface, generic, error);
        if (tc >= 0) {
            close(tc);
        }
        return status;
    }
    box->interfaces[box->attached].ifindex = ifindex;
    box->interfaces[box->attached].links[0] = xdp;
    box->interfaces[box->attached++].links[1] = tc;
    return WEFT_OK;
}

weft_status weft_aggregate_install(struct weft_aggregate *box, const char *interface,
                                   struct weft_error *error)
{
    int ifindex = (int)if_nametoindex(interface);
    LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex, .attach_point = BPF_TC_INGRESS);
    LIBBPF_OPTS(bpf_tc_opts, filter, .prog_fd = box->spread, .handle = 1, .priority = 1);
    if (ifindex == 0) {
        return weft_fail(error, WEFT_NOTFOUND, "no interface named %s", interface);
    }
    struct weft_bpf_words words;
    weft_bpf_words_init(&words);
    int code = -bpf_tc_hook_create(&hook); /* EEXIST: its egress marks packets */
    code = code == 0 || code == EEXIST ? -bpf_tc_attach(&hook, &filter) : code;
    weft_status status = code == 0
                             ? WEFT_OK
                             : weft_bpf_fail(error, code, interface, WEFT_AGGREGATE_KERNEL_MAJOR,
                                             WEFT_AGGREGATE_KERNEL_MINOR);
    weft_bpf_words_fini(&words);
    if (status == WEFT_OK) {
        status = weft_aggregate_accept(box, interface, error);
    }
    if (status == WEFT_OK) {
        status = use_queues(box, error);
    }
    if (status == WEFT_OK &&
        bpf_xdp_attach(ifindex, box->program, XDP_FLAGS_UPDATE_IF_NOEXIST | XDP_FLAGS_DRV_MODE,
                       NULL) != 0) {
        status = refused(interface, false, error);
    }
    return status;
}

/* Sums with key `key` of the broadcast leave by this interface. */
static bool set_port(struct weft_aggregate *box, uint32_t key, uint32_t ifindex)
{
    struct bpf_devmap_val port = {.ifindex = ifindex, .bpf_prog.fd = box->toward};
    return bpf_map_update_elem(box->maps[PORTS], &key, &port, BPF_ANY) == 0;
}

weft_status weft_aggregate_reach(struct weft_aggregate *box, const char *interface,
                                 const struct weft_aggregate_member *member,
                                 struct weft_error *error)
{
    WEFT_ASSERT(member->member < WEFT_AGG_MEMBERS_MAX);
    weft_status status = weft_aggregate_accept(box, interface, error);
    if (status != WEFT_OK) {
        return status;
    }
    uint32_t ifindex = if_nametoindex(interface);
    uint32_t key = member->member;
    struct weft_aggregate_member value = *member;
    struct weft_aggregate_interface place;
    value.ifindex = ifindex;
    if (bpf_map_lookup_elem(box->maps[INTERFACES], &ifindex, &place) != 0) {
        return weft_aggregate_fail(error, interface);
    }
    place.member = key;
    if (bpf_map_update_elem(box->maps[MEMBERS], &key, &value, BPF_ANY) != 0 ||
        bpf_map_update_elem(box->maps[INTERFACES], &ifindex, &place, BPF_ANY) != 0 ||
        !set_port(box, key, ifindex)) {
        return weft_aggregate_fail(error, interface);
    }
    return WEFT_OK;
}

weft_status weft_aggregate_learn(struct weft_aggregate *box, struct weft_error *error)
{
    for (uint32_t i = 0; i < box->attached; i++) {
        if (!set_port(box, i, (uint32_t)box->interfaces[i].ifindex)) {
            return weft_aggregate_fail(error, "aggregation in the kernel: interfaces");
        }
    }
    box->settings.learns = 1;
    return weft_aggregate_write_settings(box, error);
}

void weft_aggregate_detach(struct weft_aggregate *box)
{
    while (box->attached > 0) {
        const int *links = box->interfaces[--box->attached].links;
        close(links[0]);
        if (links[1] >= 0) {
            close(links[1]);
        }
    }
}
