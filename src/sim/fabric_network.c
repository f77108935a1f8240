/* The network that carries the transfers of a run: fluid flows (sim/fluid.h) or messages of
 * production endpoints (sim/packet_flows.h). The other files do not depend on the choice, with two
 * exceptions: with packets an event means that bytes have arrived, not that they were sent, and
 * only a part of a link's rate is payload. */
#include "sim/fabric_internal.h"

#include "base/assert.h"
#include "sim/packet_flows.h"
#include "sim/wire_time.h"

/* Connections that may be needed: workers to servers and back, servers to their replicas, and, if
 * hosts of workers sum or forward, each worker to each. */
static void connect_hosts(struct weft_fabric *f)
{
    const struct weft_fabric_config *config = &f->config;
    bool among_workers = config->policy >= WEFT_FABRIC_AGGREGATION;
    for (uint32_t i = 0; among_workers && i < config->workers; i++) {
        for (uint32_t j = i + 1; j < config->workers; j++) {
            weft_packet_flows_connect(f->packets, i, j);
        }
    }
    for (uint32_t s = 0; s < config->servers && !weft_fabric_is_all_reduce(config->policy); s++) {
        for (uint32_t i = 0; i < config->workers; i++) {
            weft_packet_flows_connect(f->packets, i, weft_fabric_server_host(f, s));
        }
        if (config->div_max > 0) {
            weft_packet_flows_connect(f->packets, weft_fabric_server_host(f, s),
                                      weft_fabric_replica_host(f, s));
        }
    }
}

void weft_fabric_network_new(struct weft_fabric *f)
{
    if (f->config.level == WEFT_FABRIC_FLOWS) {
        f->fluid = weft_fluid_new(2 * f->hosts);
        return;
    }
    const struct weft_packet_flows_config config = {
        .hosts = f->hosts,
        .delay_ns = f->config.network.delay_ns,
        .bytes_max = weft_max_u64(f->config.update_bytes, f->config.model_bytes),
        .seed = f->config.seed,
    };
    f->packets = weft_packet_flows_new(&config);
    connect_hosts(f);
}

void weft_fabric_network_begin(struct weft_fabric *f)
{
    if (f->packets != NULL && !weft_packet_flows_begin(f->packets)) {
        weft_fabric_fail(f, "%s", weft_packet_flows_wrong(f->packets));
    }
}

void weft_fabric_network_free(struct weft_fabric *f)
{
    if (f->fluid != NULL) {
        weft_fluid_free(f->fluid);
    }
    weft_packet_flows_free(f->packets);
}

void weft_fabric_network_set_capacity(struct weft_fabric *f, uint32_t link, uint64_t bps)
{
    if (f->packets != NULL) {
        weft_packet_flows_set_capacity(f->packets, link, bps);
    } else {
        weft_fluid_set_capacity(f->fluid, link, bps);
    }
}

uint64_t weft_fabric_network_payload_bps(const struct weft_fabric *f, uint32_t link)
{
    return f->packets != NULL ? weft_sim_goodput_bps(weft_packet_flows_capacity(f->packets, link))
                              : weft_fluid_capacity(f->fluid, link);
}

uint64_t weft_fabric_network_delay_ns(const struct weft_fabric *f)
{
    return f->packets != NULL ? 0 : f->config.network.delay_ns;
}

uint32_t weft_fabric_network_start(struct weft_fabric *f, const struct weft_fluid_flow *flow,
                                   uint64_t released)
{
    return f->packets != NULL ? weft_packet_flows_start(f->packets, flow, released)
                              : weft_fluid_start(f->fluid, flow, released);
}

void weft_fabric_network_release(struct weft_fabric *f, uint32_t flow, uint64_t bytes)
{
    if (f->packets != NULL) {
        weft_packet_flows_release(f->packets, flow, bytes);
    } else {
        weft_fluid_release(f->fluid, flow, bytes);
    }
}

void weft_fabric_network_limit(struct weft_fabric *f, uint32_t flow,
                               const struct weft_fabric_rate *rate, uint64_t rank)
{
    if (f->packets == NULL) {
        weft_fluid_limit(f->fluid, flow, rate->bps, rank);
    } else if (rate->bps > 0) {
        weft_packet_flows_limit(f->packets, flow, f->now_ns, rate->bps);
    } else {
        weft_packet_flows_limit(f->packets, flow, rate->next_ns, rate->next_bps);
    }
}

uint64_t weft_fabric_network_next_ns(const struct weft_fabric *f)
{
    return f->packets != NULL ? weft_packet_flows_next_ns(f->packets)
                              : weft_fluid_next_ns(f->fluid);
}

void weft_fabric_network_advance(struct weft_fabric *f)
{
    if (f->packets == NULL) {
        weft_fluid_advance(f->fluid, f->now_ns);
        return;
    }
    weft_packet_flows_advance(f->packets, f->now_ns);
    if (weft_packet_flows_wrong(f->packets)[0] != '\0') {
        weft_fabric_fail(f, "%s", weft_packet_flows_wrong(f->packets));
    }
}

bool weft_fabric_network_poll(struct weft_fabric *f, struct weft_fluid_event *event_p)
{
    return f->packets != NULL ? weft_packet_flows_poll(f->packets, event_p)
                              : weft_fluid_poll(f->fluid, event_p);
}

double weft_fabric_network_utilization(const struct weft_fabric *f)
{
    weft_fluid_nanobits carried = 0;
    weft_fluid_nanobits offered = 0;
    for (uint32_t s = 0; s < f->config.servers; s++) {
        uint32_t link = weft_fabric_down(weft_fabric_server_host(f, s));
        carried += f->packets != NULL ? weft_packet_flows_carried(f->packets, link)
                                      : weft_fluid_carried(f->fluid, link);
        offered += f->packets != NULL ? weft_packet_flows_offered(f->packets, link)
                                      : weft_fluid_offered(f->fluid, link);
    }
    return offered > 0 ? (double)carried / (double)offered : 0;
}

void weft_fabric_network_count(const struct weft_fabric *f)
{
    if (f->packets != NULL) {
        struct weft_packet_flows_counters counters;
        weft_packet_flows_counters(f->packets, &counters);
        f->result->packets = counters.packets;
        f->result->packets_again = counters.again;
        f->result->packets_dropped = counters.dropped;
        f->result->trace_hash = counters.hash;
    }
}
