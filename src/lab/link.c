#include "lab/link.h"

#include "base/assert.h"
#include "lab/bpf_load.h"
#include "lab/bpf_objects.h"
#include "lab/link_bpf.h"

#include <errno.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The program's constants, in the order of bpf/link.bpf.c; the size is compared. */
struct constants {
    uint32_t mark_bytes;
    struct weft_gilbert gilbert;
};

static int set_constants(struct bpf_object *object, const struct constants *constants)
{
    struct bpf_map *map = bpf_object__find_map_by_name(object, ".rodata");
    return map != NULL ? -bpf_map__set_initial_value(map, constants, sizeof(*constants)) : ENOENT;
}

/* Disable the other programs of the object, so that the kernel need not support their features. */
static void choose(struct bpf_object *object, const char *name)
{
    struct bpf_program *program;
    bpf_object__for_each_program(program, object)
    {
        (void)bpf_program__set_autoload(program, strcmp(bpf_program__name(program), name) == 0);
    }
}

/* Returns 0 or an errno. */
static int attach(struct bpf_object *object, const char *name, int ifindex,
                  enum bpf_tc_attach_point where)
{
    LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex, .attach_point = where);
    struct bpf_program *program = bpf_object__find_program_by_name(object, name);
    if (program == NULL) {
        return ENOENT;
    }
    LIBBPF_OPTS(bpf_tc_opts, options, .prog_fd = bpf_program__fd(program), .handle = 1,
                .priority = 1);
    int code = -bpf_tc_hook_create(&hook);
    return code == 0 || code == EEXIST ? -bpf_tc_attach(&hook, &options) : code;
}

static weft_status put(const char *port, const char *name, enum bpf_tc_attach_point where,
                       const struct constants *constants, struct weft_error *error)
{
    unsigned ifindex = if_nametoindex(port);
    if (ifindex == 0) {
        return weft_fail(error, WEFT_IO, "%s: %s", port, strerror(errno));
    }
    struct weft_bpf_words words;
    struct bpf_object *object = NULL;
    weft_bpf_words_init(&words);
    weft_status status = weft_bpf_open(weft_bpf_link, weft_bpf_link_bytes, "link", &object, error);
    if (status == WEFT_OK) {
        choose(object, name);
        int code = set_constants(object, constants);
        if (code == 0) {
            code = -bpf_object__load(object);
        }
        if (code == 0) {
            code = attach(object, name, (int)ifindex, where);
        }
        status = code == 0 ? WEFT_OK : weft_bpf_fail(error, code, port, 6, 2);
    }
    bpf_object__close(object);
    weft_bpf_words_fini(&words);
    return status;
}

weft_status weft_link_mark(const char *port, uint32_t queue_bytes, struct weft_error *error)
{
    struct constants constants = {.mark_bytes = queue_bytes};
    return put(port, "mark", BPF_TC_EGRESS, &constants, error);
}

static uint32_t in_units(double probability)
{
    double units = probability * 0x1p32;
    return units < 0x1p32 ? (uint32_t)units : UINT32_MAX;
}

weft_status weft_link_lose(const char *port, uint32_t loss_ppm, double burst_packets,
                           struct weft_error *error)
{
    WEFT_ASSERT(loss_ppm < 1000000 && burst_packets >= 1);
    double loss = loss_ppm / 1e6;
    double to_good = 1 / burst_packets;
    struct constants constants = {
        .gilbert = {.to_bad = in_units(loss * to_good / (1 - loss)), .to_good = in_units(to_good)},
    };
    return put(port, "burst_loss", BPF_TC_INGRESS, &constants, error);
}
