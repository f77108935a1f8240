/* Replaces the functions that need BPF in a build without it (bpf/meson.build). */
#include "lab/aggregate.h"
#include "lab/dctcp.h"
#include "lab/link.h"

static weft_status no_bpf(const char *what, struct weft_error *error)
{
    return weft_fail(error, WEFT_UNSUPPORTED,
                     "%s: this build has no BPF (install clang libbpf-dev and build again)", what);
}

weft_status weft_dctcp_attach(struct weft_dctcp **dctcp_p, struct weft_error *error)
{
    (void)dctcp_p;
    return no_bpf("dctcp", error);
}

void weft_dctcp_detach(struct weft_dctcp *dctcp)
{
    (void)dctcp;
}

const char *weft_dctcp_name(const struct weft_dctcp *dctcp)
{
    (void)dctcp;
    return "";
}

weft_status weft_dctcp_read_counts(const struct weft_dctcp *dctcp,
                                   struct weft_dctcp_counts *counts_p, struct weft_error *error)
{
    (void)dctcp;
    (void)counts_p;
    return no_bpf("dctcp", error);
}

weft_status weft_dctcp_read_records(const struct weft_dctcp *dctcp,
                                    struct weft_dctcp_record *records_p, uint32_t *count_p,
                                    uint32_t *first_p, struct weft_error *error)
{
    (void)dctcp;
    (void)records_p;
    (void)count_p;
    (void)first_p;
    return no_bpf("dctcp", error);
}

weft_status weft_link_mark(const char *port, uint32_t queue_bytes, struct weft_error *error)
{
    (void)port;
    (void)queue_bytes;
    return no_bpf("marking links", error);
}

weft_status weft_link_lose(const char *port, uint32_t loss_ppm, double burst_packets,
                           struct weft_error *error)
{
    (void)port;
    (void)loss_ppm;
    (void)burst_packets;
    return no_bpf("losses in bursts", error);
}

weft_status weft_aggregate_open(const struct weft_agg_config *config, uint16_t port,
                                struct weft_aggregate **box_p, struct weft_error *error)
{
    (void)config;
    (void)port;
    (void)box_p;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_probe(struct weft_error *error)
{
    return no_bpf("aggregation in the kernel", error);
}

void weft_aggregate_close(struct weft_aggregate *box)
{
    (void)box;
}

weft_status weft_aggregate_configure(struct weft_aggregate *box,
                                     const struct weft_agg_config *config, struct weft_error *error)
{
    (void)box;
    (void)config;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_reset(struct weft_aggregate *box, struct weft_error *error)
{
    (void)box;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_set_addresses(struct weft_aggregate *box, const uint32_t *addresses,
                                         uint32_t count, struct weft_error *error)
{
    (void)box;
    (void)addresses;
    (void)count;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_follow_host(struct weft_aggregate *box, struct weft_error *error)
{
    (void)box;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_accept(struct weft_aggregate *box, const char *interface,
                                  struct weft_error *error)
{
    (void)box;
    (void)interface;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_attach(struct weft_aggregate *box, const char *interface, unsigned how,
                                  struct weft_error *error)
{
    (void)box;
    (void)interface;
    (void)how;
    return no_bpf("aggregation in the kernel", error);
}

void weft_aggregate_detach(struct weft_aggregate *box)
{
    (void)box;
}

weft_status weft_aggregate_install(struct weft_aggregate *box, const char *interface,
                                   struct weft_error *error)
{
    (void)box;
    (void)interface;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_learn(struct weft_aggregate *box, struct weft_error *error)
{
    (void)box;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_find(const char *interface, struct weft_aggregate **box_p,
                                struct weft_error *error)
{
    (void)interface;
    (void)box_p;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_read_facts(const struct weft_aggregate *box,
                                      struct weft_aggregate_facts *facts_p,
                                      struct weft_error *error)
{
    (void)box;
    (void)facts_p;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_reach(struct weft_aggregate *box, const char *interface,
                                 const struct weft_aggregate_member *member,
                                 struct weft_error *error)
{
    (void)box;
    (void)interface;
    (void)member;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_command(struct weft_aggregate *box,
                                   const struct weft_aggregate_command *command, bool *done_p,
                                   struct weft_error *error)
{
    (void)box;
    (void)command;
    (void)done_p;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_read_bank(const struct weft_aggregate *box, uint32_t bank,
                                     struct weft_agg_bank *bank_p, struct weft_error *error)
{
    (void)box;
    (void)bank;
    (void)bank_p;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_read_slot(const struct weft_aggregate *box, uint32_t slot,
                                     struct weft_agg_dense *slot_p, struct weft_error *error)
{
    (void)box;
    (void)slot;
    (void)slot_p;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_read_counts(const struct weft_aggregate *box,
                                       struct weft_aggregate_counts *counts_p,
                                       struct weft_error *error)
{
    (void)box;
    (void)counts_p;
    return no_bpf("aggregation in the kernel", error);
}

weft_status weft_aggregate_run(struct weft_aggregate *box, const void *frame, uint32_t count,
                               uint32_t repeat, void *answer, uint32_t *answer_count,
                               struct weft_aggregate_run *run_p, struct weft_error *error)
{
    (void)box;
    (void)frame;
    (void)count;
    (void)repeat;
    (void)answer;
    (void)answer_count;
    (void)run_p;
    return no_bpf("aggregation in the kernel", error);
}
