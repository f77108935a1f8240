#include "lab/aggregate.h"

#include "base/units.h"
#include "lab/aggregate_box.h"
#include "lab/bpf_load.h"
#include "lab/bpf_objects.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const char *const map_names[] = {"slots", "banks",   "settings",   "counts",
                                        "ports", "members", "interfaces", "addresses"};

/* The value of a map of slots or banks starts with a lock. */
enum { LOCK_BYTES = 8 };

_Static_assert(sizeof(map_names) / sizeof(map_names[0]) == MAPS, "every map has a name");

weft_status weft_aggregate_fail(struct weft_error *error, const char *what)
{
    return weft_bpf_fail(error, errno, what, WEFT_AGGREGATE_KERNEL_MAJOR,
                         WEFT_AGGREGATE_KERNEL_MINOR);
}

weft_status weft_aggregate_write_settings(struct weft_aggregate *box, struct weft_error *error)
{
    uint32_t key = 0;
    return bpf_map_update_elem(box->maps[SETTINGS], &key, &box->settings, BPF_ANY) == 0
               ? WEFT_OK
               : weft_aggregate_fail(error, "aggregation in the kernel: settings");
}

/* Returns an errno. */
static int load(struct weft_aggregate *box)
{
    uint32_t entries[] = {box->slots, box->banks};
    for (int i = SLOTS; i <= BANKS; i++) {
        struct bpf_map *map = bpf_object__find_map_by_name(box->object, map_names[i]);
        int code =
            map == NULL ? -ENOENT : bpf_map__set_max_entries(map, entries[i] > 0 ? entries[i] : 1);
        if (code != 0) {
            return -code;
        }
    }
    int code = -bpf_object__load(box->object);
    if (code != 0) {
        return code;
    }
    for (int i = 0; i < MAPS; i++) {
        box->maps[i] = bpf_object__find_map_fd_by_name(box->object, map_names[i]);
    }
    box->program = bpf_program__fd(bpf_object__find_program_by_name(box->object, "aggregate"));
    box->control = bpf_program__fd(bpf_object__find_program_by_name(box->object, "control"));
    box->toward = bpf_program__fd(bpf_object__find_program_by_name(box->object, "toward"));
    box->spread = bpf_program__fd(bpf_object__find_program_by_name(box->object, "spread"));
    return 0;
}

/* NULL: out of memory. */
static struct weft_aggregate *make_box(void)
{
    struct weft_aggregate *box = calloc(1, sizeof(*box));
    if (box != NULL) {
        box->program = box->control = box->toward = box->spread = -1;
        for (int i = 0; i < MAPS; i++) {
            box->maps[i] = -1;
        }
    }
    return box;
}

weft_status weft_aggregate_open(const struct weft_agg_config *config, uint16_t port,
                                struct weft_aggregate **box_p, struct weft_error *error)
{
    struct weft_aggregate *box = make_box();
    if (box == NULL) {
        return weft_fail(error, WEFT_NOMEM, "aggregation in the kernel: no memory");
    }
    box->slots = config->slots;
    box->banks = config->banks;
    box->settings.port = __builtin_bswap16(port);
    if (getrandom(&box->settings.mark, sizeof(box->settings.mark), 0) !=
        (ssize_t)sizeof(box->settings.mark)) {
        weft_status status = weft_fail(error, WEFT_IO, "getrandom: %s", strerror(errno));
        weft_aggregate_close(box);
        return status;
    }
    struct weft_bpf_words words;
    weft_bpf_words_init(&words);
    weft_status status = weft_bpf_open(weft_bpf_aggregate, weft_bpf_aggregate_bytes, "aggregate",
                                       &box->object, error);
    if (status == WEFT_OK) {
        int code = load(box);
        if (code != 0) {
            status = weft_bpf_fail(error, code, "aggregation in the kernel",
                                   WEFT_AGGREGATE_KERNEL_MAJOR, WEFT_AGGREGATE_KERNEL_MINOR);
        }
    }
    weft_bpf_words_fini(&words);
    if (status == WEFT_OK) {
        status = weft_aggregate_configure(box, config, error);
    }
    if (status != WEFT_OK) {
        weft_aggregate_close(box);
        return status;
    }
    *box_p = box;
    return WEFT_OK;
}

void weft_aggregate_close(struct weft_aggregate *box)
{
    if (box == NULL) {
        return;
    }
    weft_aggregate_detach(box);
    if (box->object == NULL) {
        for (int i = 0; i < MAPS; i++) {
            if (box->maps[i] >= 0) {
                close(box->maps[i]);
            }
        }
        if (box->program >= 0) {
            close(box->program);
        }
    }
    bpf_object__close(box->object);
    free(box);
}

weft_status weft_aggregate_configure(struct weft_aggregate *box,
                                     const struct weft_agg_config *config, struct weft_error *error)
{
    if (config->slots > box->slots || config->banks > box->banks) {
        return weft_fail(
            error, WEFT_INVALID,
            "aggregation in the kernel: %u slots and %u banks, it was made for %u and %u",
            config->slots, config->banks, box->slots, box->banks);
    }
    if (config->form != 0) {
        return weft_fail(error, WEFT_INVALID,
                         "aggregation in the kernel: number format %u, it adds int32 alone (0); "
                         "floats are for src/agg/box.h",
                         config->form);
    }
    box->settings.config = *config;
    return weft_aggregate_write_settings(box, error);
}

weft_status weft_aggregate_reset(struct weft_aggregate *box, struct weft_error *error)
{
    int processors = libbpf_num_possible_cpus();
    size_t bytes = LOCK_BYTES + sizeof(struct weft_agg_bank);
    size_t tally_bytes =
        (size_t)(processors > 0 ? processors : 1) * sizeof(struct weft_aggregate_counts);
    void *zeros = calloc(1, bytes > tally_bytes ? bytes : tally_bytes);
    if (zeros == NULL) {
        return weft_fail(error, WEFT_NOMEM, "aggregation in the kernel: no memory");
    }
    const uint32_t places[MAPS] = {[SLOTS] = box->slots,
                                   [BANKS] = box->banks,
                                   [COUNTS] = 1,
                                   [MEMBERS] = box->settings.learns ? WEFT_AGG_MEMBERS_MAX : 0};
    int code = 0;
    for (int map = 0; map < MAPS; map++) {
        for (uint32_t i = 0; i < places[map] && code == 0; i++) {
            code = bpf_map_update_elem(box->maps[map], &i, zeros,
                                       map == SLOTS || map == BANKS ? BPF_F_LOCK : BPF_ANY);
        }
    }
    free(zeros);
    return code == 0 ? WEFT_OK : weft_aggregate_fail(error, "aggregation in the kernel: reset");
}

/* Open the maps of the program that box->program has. Returns false with errno set; ENOENT: it is
 * not a box. */
static bool open_maps(struct weft_aggregate *box)
{
    uint32_t ids[MAPS + 4];
    struct bpf_prog_info info = {.nr_map_ids = WEFT_ARRAY_COUNT(ids),
                                 .map_ids = (uint64_t)(uintptr_t)ids};
    uint32_t bytes = sizeof(info);
    if (bpf_obj_get_info_by_fd(box->program, &info, &bytes) != 0) {
        return false;
    }
    uint32_t found = 0;
    for (uint32_t i = 0; i < info.nr_map_ids && i < WEFT_ARRAY_COUNT(ids); i++) {
        int fd = bpf_map_get_fd_by_id(ids[i]);
        struct bpf_map_info map = {0};
        bytes = sizeof(map);
        if (fd < 0) {
            return false;
        }
        if (bpf_obj_get_info_by_fd(fd, &map, &bytes) != 0) {
            int code = errno;
            close(fd);
            errno = code;
            return false;
        }
        bool known = false;
        for (int m = 0; m < MAPS; m++) {
            if (strcmp(map.name, map_names[m]) == 0 && box->maps[m] < 0) {
                box->maps[m] = fd;
                box->slots = m == SLOTS ? map.max_entries : box->slots;
                box->banks = m == BANKS ? map.max_entries : box->banks;
                known = true;
                found++;
            }
        }
        if (!known) {
            close(fd);
        }
    }
    errno = ENOENT;
    return found == MAPS && strcmp(info.name, "aggregate") == 0;
}

weft_status weft_aggregate_find(const char *interface, struct weft_aggregate **box_p,
                                struct weft_error *error)
{
    int ifindex = (int)if_nametoindex(interface);
    uint32_t id = 0;
    if (ifindex == 0 || bpf_xdp_query_id(ifindex, 0, &id) != 0 || id == 0) {
        return weft_fail(error, WEFT_NOTFOUND, "%s: no aggregation box is attached", interface);
    }
    struct weft_aggregate *box = make_box();
    if (box == NULL) {
        return weft_fail(error, WEFT_NOMEM, "aggregation in the kernel: no memory");
    }
    uint32_t key = 0;
    box->program = bpf_prog_get_fd_by_id(id);
    weft_status status = WEFT_OK;
    if (box->program < 0) {
        status = weft_aggregate_fail(error, interface);
    } else if (!open_maps(box)) {
        status = errno == ENOENT ? weft_fail(error, WEFT_NOTFOUND,
                                             "%s: its XDP program is no aggregation box", interface)
                                 : weft_aggregate_fail(error, interface);
    } else if (bpf_map_lookup_elem(box->maps[SETTINGS], &key, &box->settings) != 0) {
        status = weft_aggregate_fail(error, interface);
    }
    if (status != WEFT_OK) {
        weft_aggregate_close(box);
        return status;
    }
    *box_p = box;
    return WEFT_OK;
}

static uint32_t count_known(const struct weft_aggregate *box)
{
    uint32_t known = 0;
    for (uint32_t i = 0; i < WEFT_AGG_MEMBERS_MAX; i++) {
        struct weft_aggregate_member member;
        known += bpf_map_lookup_elem(box->maps[MEMBERS], &i, &member) == 0 && member.ifindex != 0;
    }
    return known;
}

weft_status weft_aggregate_read_facts(const struct weft_aggregate *box,
                                      struct weft_aggregate_facts *facts_p,
                                      struct weft_error *error)
{
    struct weft_aggregate_settings settings; /* its epoch may be later than ours */
    struct bpf_prog_info info = {0};
    uint32_t bytes = sizeof(info);
    uint32_t key = 0;
    if (bpf_obj_get_info_by_fd(box->program, &info, &bytes) != 0 ||
        bpf_map_lookup_elem(box->maps[SETTINGS], &key, &settings) != 0) {
        return weft_aggregate_fail(error, "aggregation in the kernel: facts");
    }
    *facts_p = (struct weft_aggregate_facts){.config = settings.config,
                                             .port = __builtin_bswap16(settings.port),
                                             .slots_max = box->slots,
                                             .program = info.id,
                                             .known = count_known(box)};
    return WEFT_OK;
}

weft_status weft_aggregate_command(struct weft_aggregate *box,
                                   const struct weft_aggregate_command *command, bool *done_p,
                                   struct weft_error *error)
{
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = command, .data_size_in = sizeof(*command),
                .repeat = 1);
    if (bpf_prog_test_run_opts(box->control, &options) != 0) {
        return weft_aggregate_fail(error, "aggregation in the kernel: command");
    }
    *done_p = options.retval == WEFT_AGGREGATE_DONE;
    return WEFT_OK;
}

/* Read the value of a slot or bank, without its lock. */
static weft_status read_place(const struct weft_aggregate *box, int map, uint32_t place,
                              uint32_t places, void *value_p, size_t bytes,
                              struct weft_error *error)
{
    if (place >= places) {
        return weft_fail(error, WEFT_INVALID, "aggregation in the kernel: %s has %u, not %u",
                         map_names[map], places, place);
    }
    uint8_t *value = malloc(bytes + LOCK_BYTES);
    if (value == NULL) {
        return weft_fail(error, WEFT_NOMEM, "aggregation in the kernel: no memory");
    }
    int code = bpf_map_lookup_elem_flags(box->maps[map], &place, value, BPF_F_LOCK);
    if (code == 0) {
        memcpy(value_p, value + LOCK_BYTES, bytes);
    }
    weft_status status = code == 0 ? WEFT_OK : weft_aggregate_fail(error, map_names[map]);
    free(value);
    return status;
}

weft_status weft_aggregate_read_bank(const struct weft_aggregate *box, uint32_t bank,
                                     struct weft_agg_bank *bank_p, struct weft_error *error)
{
    return read_place(box, BANKS, bank, box->banks, bank_p, sizeof(*bank_p), error);
}

weft_status weft_aggregate_read_slot(const struct weft_aggregate *box, uint32_t slot,
                                     struct weft_agg_dense *slot_p, struct weft_error *error)
{
    return read_place(box, SLOTS, slot, box->slots, slot_p, sizeof(*slot_p), error);
}

weft_status weft_aggregate_read_counts(const struct weft_aggregate *box,
                                       struct weft_aggregate_counts *counts_p,
                                       struct weft_error *error)
{
    int processors = libbpf_num_possible_cpus();
    struct weft_aggregate_counts *each =
        processors > 0 ? calloc((size_t)processors, sizeof(*each)) : NULL;
    if (each == NULL) {
        return weft_fail(error, WEFT_NOMEM, "aggregation in the kernel: no memory");
    }
    uint32_t key = 0;
    weft_status status = WEFT_OK;
    if (bpf_map_lookup_elem(box->maps[COUNTS], &key, each) != 0) {
        status = weft_aggregate_fail(error, map_names[COUNTS]);
    } else {
        *counts_p = (struct weft_aggregate_counts){.moved = 0};
        for (int i = 0; i < processors; i++) {
            for (int v = 0; v < WEFT_AGG_VERDICTS; v++) {
                counts_p->box.packets[v] += each[i].box.packets[v];
            }
            counts_p->box.values += each[i].box.values;
            counts_p->box.voided += each[i].box.voided;
            counts_p->moved += each[i].moved;
            counts_p->unnoted += each[i].unnoted;
        }
    }
    free(each);
    return status;
}

weft_status weft_aggregate_run(struct weft_aggregate *box, const void *frame, uint32_t count,
                               uint32_t repeat, void *answer, uint32_t *answer_count,
                               struct weft_aggregate_run *run_p, struct weft_error *error)
{
    /* The kernel gives back metadata and frame in one piece, as it takes them. */
    const struct xdp_md context = {.data = run_p->meta_bytes,
                                   .data_end = run_p->meta_bytes + count};
    uint32_t room = run_p->meta_bytes + *answer_count;
    uint8_t *bytes = calloc(1, run_p->meta_bytes + (count > *answer_count ? count : *answer_count));
    if (bytes == NULL) {
        return weft_fail(error, WEFT_NOMEM, "aggregation in the kernel: no memory");
    }
    memcpy(bytes + run_p->meta_bytes, frame, count);
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = bytes,
                .data_size_in = run_p->meta_bytes + count, .data_out = bytes, .data_size_out = room,
                .repeat = (int)repeat);
    if (run_p->meta_bytes > 0) {
        options.ctx_in = &context;
        options.ctx_size_in = sizeof(context);
    }
    int program = run_p->is_tc ? box->spread : box->program;
    weft_status status = WEFT_OK;
    if (bpf_prog_test_run_opts(program, &options) != 0) {
        status = weft_aggregate_fail(error, "aggregation in the kernel: run");
    } else {
        *answer_count = options.data_size_out - run_p->meta_bytes;
        memcpy(answer, bytes + run_p->meta_bytes, *answer_count);
        run_p->action = options.retval;
        run_p->ns = options.duration;
    }
    free(bytes);
    return status;
}

/* One member, one slot: its packet completes the round at once, and the sum is returned. */
enum { PROBE_PORT = 7701, PROBE_HEADS = 42, PROBE_VALUES = 8 };

static uint32_t probe_frame(uint8_t *frame)
{
    enum { UDP_BYTES = 8 + WEFT_AGG_HEADER_BYTES + 4 * PROBE_VALUES };
    struct weft_wire_agg packet = {.kind = WEFT_AGG_DENSE, .count = PROBE_VALUES};
    weft_wire_put_u16(frame + 12, 0x0800);
    frame[14] = 0x45;
    weft_wire_put_u16(frame + 16, 20 + UDP_BYTES);
    frame[22] = 64;
    frame[23] = 17;
    weft_wire_put_u16(frame + 36, PROBE_PORT);
    weft_wire_put_u16(frame + 38, UDP_BYTES);
    weft_wire_agg_encode(frame + PROBE_HEADS, &packet);
    for (uint32_t i = 0; i < PROBE_VALUES; i++) {
        weft_wire_store_u32(frame + PROBE_HEADS + WEFT_AGG_HEADER_BYTES + 4 * i, i + 1);
    }
    return 34 + UDP_BYTES;
}

weft_status weft_aggregate_probe(struct weft_error *error)
{
    struct weft_agg_config config = {.members = 1, .slots = 1};
    struct weft_aggregate *box = NULL;
    weft_status status = weft_aggregate_open(&config, PROBE_PORT, &box, error);
    if (status != WEFT_OK) {
        return status;
    }
    uint8_t frame[256] = {0};
    uint32_t count = probe_frame(frame);
    const uint32_t address = 0; /* of the frame */
    uint8_t answer[256];
    uint32_t answer_count = sizeof(answer);
    struct weft_aggregate_run run = {.is_tc = false};
    struct weft_agg_dense slot;
    status = weft_aggregate_accept(box, "lo", error); /* its MAC address is 0, too */
    if (status == WEFT_OK) {
        status = weft_aggregate_set_addresses(box, &address, 1, error);
    }
    if (status == WEFT_OK) {
        status = weft_aggregate_run(box, frame, count, 1, answer, &answer_count, &run, error);
    }
    if (status == WEFT_OK) {
        status = weft_aggregate_read_slot(box, 0, &slot, error);
    }
    /* A kernel that cannot redirect to all members ends the run with another action here, with the
     * sum in the packet. */
    if (status == WEFT_OK && (run.action != XDP_REDIRECT || answer_count != count ||
                              answer[PROBE_HEADS + 1] != WEFT_AGG_SUM ||
                              slot.sets[0].sums[PROBE_VALUES - 1] != PROBE_VALUES)) {
        status = weft_fail(error, WEFT_IO,
                           "aggregation in the kernel: loaded, but the sum of one packet is wrong "
                           "or does not go to all members (action %u)",
                           run.action);
    }
    weft_aggregate_close(box);
    return status;
}
