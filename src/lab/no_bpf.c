/* Stands in for what needs BPF in a build that has none (bpf/meson.build). */
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
