/* The address plan, for both topologies: host h is 10.77.0.0 + 1 + h, routers are numbered
 * downwards from 10.77.255.254. Hosts keep their address when the topology changes, so scripts need
 * no change.
 */
#include "lab/address.h"

#include "base/assert.h"
#include "lab/cluster.h"

#include <stdio.h>

static void write_address(uint32_t number, char *out)
{
    snprintf(out, WEFT_LAB_ADDRESS_BYTES, "10.77.%u.%u", number >> 8, number & 0xFF);
}

void weft_lab_address(const struct weft_lab_info *info, uint32_t host,
                      char out[WEFT_LAB_ADDRESS_BYTES])
{
    WEFT_ASSERT(host < info->hosts);
    write_address(1 + host, out);
}

void weft_lab_host_address(uint32_t host, char *out)
{
    WEFT_ASSERT(host < WEFT_LAB_HOSTS_MAX);
    write_address(1 + host, out);
}

void weft_lab_router_address(uint32_t router, char *out)
{
    WEFT_ASSERT(router < WEFT_LAB_ROUTERS_MAX);
    write_address(0xFFFE - router, out);
}

/* Locally administered; the remaining bytes are the kind, host (0) or router (1), and the
 * number. */
static void write_mac(uint8_t kind, uint32_t number, char *out)
{
    snprintf(out, WEFT_LAB_MAC_BYTES, "02:77:00:%02x:%02x:%02x", kind, (uint8_t)(number >> 8),
             (uint8_t)number);
}

void weft_lab_host_mac(uint32_t host, char *out)
{
    write_mac(0, host, out);
}

void weft_lab_router_mac(uint32_t router, char *out)
{
    write_mac(1, router, out);
}
