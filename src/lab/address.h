/* Addresses of the nodes of a lab (weft_lab_address in lab/cluster.h is what users see of it).
 *
 * Every address is known beforehand, so every neighbour entry is written down and no ARP is sent:
 * a lost ARP reply would be a loss that nobody asked for.
 */
#ifndef WEFT_LAB_ADDRESS_H
#define WEFT_LAB_ADDRESS_H

#include <stdint.h>

/* Leaves first, then spines. */
enum { WEFT_LAB_ROUTERS_MAX = 128, WEFT_LAB_MAC_BYTES = 18 };

/* `out` holds WEFT_LAB_ADDRESS_BYTES. */
void weft_lab_host_address(uint32_t host, char *out);
void weft_lab_router_address(uint32_t router, char *out);

/* `out` holds WEFT_LAB_MAC_BYTES. All ports of a router share one. */
void weft_lab_host_mac(uint32_t host, char *out);
void weft_lab_router_mac(uint32_t router, char *out);

#endif
