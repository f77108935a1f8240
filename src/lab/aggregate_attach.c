#include "lab/aggregate.h"

#include "base/assert.h"
#include "lab/aggregate_box.h"
#include "lab/bpf_load.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>

/* errno says why an interface was refused. */
static weft_status refused(const char *interface, struct weft_error *error)
{
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
        return weft_aggregate_fail(error, interface);
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
    if (how != 0) {
        weft_status status = use_queues(box, error);
        if (status != WEFT_OK) {
            return status;
        }
        tc = bpf_link_create(box->spread, ifindex, (enum bpf_attach_type)TCX_INGRESS, NULL);
        if (tc < 0) {
            return weft_bpf_fail(error, errno, interface, 6, 6);
        }
    }
    int xdp = bpf_link_create(box->program, ifindex, BPF_XDP, &options);
    if (xdp < 0) {
        weft_status status = refused(interface, error);
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
        status = use_queues(box, error);
    }
    if (status == WEFT_OK &&
        bpf_xdp_attach(ifindex, box->program, XDP_FLAGS_UPDATE_IF_NOEXIST | XDP_FLAGS_DRV_MODE,
                       NULL) != 0) {
        status = refused(interface, error);
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
    uint32_t ifindex = if_nametoindex(interface);
    uint32_t key = member->member;
    struct weft_aggregate_member value = *member;
    value.ifindex = ifindex;
    if (ifindex == 0 || bpf_map_update_elem(box->maps[MEMBERS], &key, &value, BPF_ANY) != 0 ||
        bpf_map_update_elem(box->maps[BEHIND], &ifindex, &key, BPF_ANY) != 0 ||
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
