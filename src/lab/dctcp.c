#include "lab/dctcp.h"

#include "base/prng.h"
#include "lab/bpf_load.h"
#include "lab/bpf_objects.h"

#include <assert.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* From linux/bpf.h since Linux 6.4; distributions with older headers can run newer kernels. */
static const uint32_t map_flag_link = UINT32_C(1) << 13;                        /* BPF_F_LINK */
static const enum bpf_attach_type attach_struct_ops = (enum bpf_attach_type)44; /* BPF_STRUCT_OPS */

/* Names are unique in the kernel; if one is taken, the next attempt uses another. */
enum { ATTEMPTS = 16 };

static const char placeholder[] = "weft_dctcp_0000";
static_assert(sizeof(placeholder) == WEFT_DCTCP_NAME_BYTES, "the kernel's TCP_CA_NAME_MAX");

struct weft_dctcp {
    char name[WEFT_DCTCP_NAME_BYTES];
    struct bpf_object *object;
    /* The kernel unregisters the congestion control when the last descriptor of this link is
     * closed, also when the process is killed. (Without a link it would stay until it is removed
     * explicitly.) */
    int link_fd;
};

const char *weft_dctcp_name(const struct weft_dctcp *dctcp)
{
    return dctcp->name;
}

void weft_dctcp_detach(struct weft_dctcp *dctcp)
{
    if (dctcp == NULL) {
        return;
    }
    if (dctcp->link_fd >= 0) {
        (void)close(dctcp->link_fd);
    }
    bpf_object__close(dctcp->object);
    free(dctcp);
}

/* Not derived from the process id: members of a lab are in a separate PID namespace. */
static void name_draw(char *name)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t lot;
    if (getrandom(&lot, sizeof(lot), GRND_NONBLOCK) != (ssize_t)sizeof(lot)) {
        lot = weft_mix64((uint64_t)getpid());
    }
    for (size_t i = sizeof(placeholder) - 5; i < sizeof(placeholder) - 1; i++) {
        name[i] = digits[lot % 36];
        lot /= 36;
    }
}

/* A copy of the embedded object with the name inserted. libbpf 1.1 has no call to change the
 * initial value of such a map, and the name occurs in its bytes exactly once. */
static weft_status object_named(const char *name, unsigned char **copy_p, struct weft_error *error)
{
    unsigned char *copy = malloc(weft_bpf_dctcp_bytes);
    if (copy == NULL) {
        return weft_fail(error, WEFT_NOMEM, "dctcp: no memory");
    }
    memcpy(copy, weft_bpf_dctcp, weft_bpf_dctcp_bytes);
    unsigned char *at = memmem(copy, weft_bpf_dctcp_bytes, placeholder, sizeof(placeholder));
    if (at == NULL) {
        free(copy);
        return weft_fail(error, WEFT_IO, "dctcp: the embedded program has no name to replace");
    }
    memcpy(at, name, sizeof(placeholder));
    *copy_p = copy;
    return WEFT_OK;
}

/* Register the loaded map. Returns 0 or an errno. */
static int link_make(struct weft_dctcp *dctcp, struct bpf_map *map)
{
    struct bpf_link *link = bpf_map__attach_struct_ops(map);
    if (link == NULL) {
        return errno;
    }
    int fd = bpf_link__fd(link);
    if (fd == bpf_map__fd(map)) {
        /* libbpf before 1.2 only passes the value to the kernel; its link object has the map's
         * descriptor, and would remove the value if it were not disconnected. */
        fd = bpf_link_create(fd, 0, attach_struct_ops, NULL);
        bpf_link__disconnect(link);
    } else {
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    int code = fd < 0 ? errno : 0;
    (void)bpf_link__destroy(link);
    dctcp->link_fd = fd;
    return code;
}

/* One attempt with the given name. *taken_p: the name is in use. */
static weft_status attach_named(struct weft_dctcp *dctcp, bool *taken_p, struct weft_error *error)
{
    unsigned char *bytes = NULL;
    weft_status status = object_named(dctcp->name, &bytes, error);
    if (status == WEFT_OK) {
        status = weft_bpf_open(bytes, weft_bpf_dctcp_bytes, "dctcp", &dctcp->object, error);
    }
    if (status != WEFT_OK) {
        free(bytes);
        return status;
    }
    struct bpf_map *map = bpf_object__find_map_by_name(dctcp->object, "weft_dctcp");
    int code = map == NULL ? ENOENT : -bpf_map__set_map_flags(map, map_flag_link);
    if (code == 0) {
        code = -bpf_object__load(dctcp->object);
    }
    free(bytes);
    if (code == 0) {
        code = link_make(dctcp, map);
    }
    *taken_p = code == EEXIST;
    return code == 0 ? WEFT_OK : weft_bpf_fail(error, code, "dctcp", 6, 4);
}

weft_status weft_dctcp_attach(struct weft_dctcp **dctcp_p, struct weft_error *error)
{
    struct weft_dctcp *dctcp = malloc(sizeof(*dctcp));
    if (dctcp == NULL) {
        return weft_fail(error, WEFT_NOMEM, "dctcp: no memory");
    }
    memcpy(dctcp->name, placeholder, sizeof(placeholder));
    dctcp->link_fd = -1;
    dctcp->object = NULL;

    struct weft_bpf_words words;
    weft_bpf_words_init(&words);
    bool taken = true;
    weft_status status = WEFT_IO;
    for (int attempt = 0; attempt < ATTEMPTS && taken; attempt++) {
        bpf_object__close(dctcp->object);
        dctcp->object = NULL;
        taken = false;
        name_draw(dctcp->name);
        status = attach_named(dctcp, &taken, error);
    }
    weft_bpf_words_fini(&words);
    if (status != WEFT_OK) {
        weft_dctcp_detach(dctcp);
        return status;
    }
    *dctcp_p = dctcp;
    return WEFT_OK;
}

/* Read the program's variable to the heap: it is too large for the stack. */
static weft_status read_seen(const struct weft_dctcp *dctcp, struct weft_dctcp_seen **seen_p,
                             struct weft_error *error)
{
    struct bpf_map *map = bpf_object__find_map_by_name(dctcp->object, ".bss");
    if (map == NULL || bpf_map__value_size(map) < sizeof(struct weft_dctcp_seen)) {
        return weft_fail(error, WEFT_IO, "dctcp: the program has no counters");
    }
    /* The kernel rounds the value up to its own size. */
    struct weft_dctcp_seen *seen = calloc(1, bpf_map__value_size(map) + sizeof(*seen));
    if (seen == NULL) {
        return weft_fail(error, WEFT_NOMEM, "dctcp: no memory");
    }
    uint32_t key = 0;
    if (bpf_map_lookup_elem(bpf_map__fd(map), &key, seen) != 0) {
        weft_status status = weft_fail(error, WEFT_IO, "dctcp: its counters: %s", strerror(errno));
        free(seen);
        return status;
    }
    *seen_p = seen;
    return WEFT_OK;
}

weft_status weft_dctcp_read_counts(const struct weft_dctcp *dctcp,
                                   struct weft_dctcp_counts *counts_p, struct weft_error *error)
{
    struct weft_dctcp_seen *seen;
    weft_status status = read_seen(dctcp, &seen, error);
    if (status == WEFT_OK) {
        *counts_p = seen->counts;
        free(seen);
    }
    return status;
}

weft_status weft_dctcp_read_records(const struct weft_dctcp *dctcp,
                                    struct weft_dctcp_record *records_p, uint32_t *count_p,
                                    uint32_t *first_p, struct weft_error *error)
{
    struct weft_dctcp_seen *seen;
    weft_status status = read_seen(dctcp, &seen, error);
    if (status != WEFT_OK) {
        return status;
    }
    uint32_t count = seen->next < WEFT_DCTCP_RECORDS ? seen->next : WEFT_DCTCP_RECORDS;
    uint32_t first = seen->next - count;
    for (uint32_t i = 0; i < count; i++) {
        records_p[i] = seen->records[(first + i) % WEFT_DCTCP_RECORDS];
    }
    free(seen);
    *count_p = count;
    *first_p = first;
    return WEFT_OK;
}
