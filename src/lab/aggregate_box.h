/* A box in the kernel, for the two files that implement lab/aggregate.h: aggregate.c loads,
 * configures and reads it, aggregate_attach.c connects it to interfaces.
 */
#ifndef WEFT_LAB_AGGREGATE_BOX_H
#define WEFT_LAB_AGGREGATE_BOX_H

#include "lab/aggregate.h"

#include <stdint.h>

struct bpf_object;

enum { WEFT_AGGREGATE_KERNEL_MAJOR = 5, WEFT_AGGREGATE_KERNEL_MINOR = 15 };

enum { SLOTS, BANKS, SETTINGS, COUNTS, PORTS, MEMBERS, INTERFACES, ADDRESSES, MAPS };

struct weft_aggregate {
    struct bpf_object *object; /* NULL: found, not loaded; then maps and program are descriptors of
                                * this struct */
    int maps[MAPS];
    int program;
    int control;
    int toward;
    int spread;
    uint32_t slots;
    uint32_t banks;
    struct weft_aggregate_settings settings; /* as in the kernel, except for the configuration */
    uint32_t attached;                       /* interfaces */
    struct {
        int ifindex;
        int links[2]; /* of XDP, of tc (-1: none); their end detaches the programs */
    } interfaces[WEFT_AGG_MEMBERS_MAX];
    uint32_t addresses_count;
    uint32_t addresses[WEFT_AGGREGATE_ADDRESSES_MAX]; /* as in the kernel */
};

/* weft_bpf_fail with errno and the version of Linux that the program needs. */
weft_status weft_aggregate_fail(struct weft_error *error, const char *what);

/* Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_write_settings(struct weft_aggregate *box,
                                                        struct weft_error *error);

#endif
