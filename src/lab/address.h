/* Addresses of the nodes of a lab (the public function is weft_lab_address in lab/cluster.h).
 *
 * All addresses are known in advance, so all neighbour entries are static and no ARP is sent: a
 * lost ARP reply would be a loss that was not configured.
 */
#ifndef WEFT_LAB_ADDRESS_H
#define WEFT_LAB_ADDRESS_H

#include <stdint.h>

/* Leaves first, then spines. */
enum { WEFT_LAB_ROUTERS_MAX = 128, WEFT_LAB_MAC_BYTES = 18 };

/* `out` has WEFT_LAB_ADDRESS_BYTES. */
void weft_lab_host_address(uint32_t host, char *out);
void weft_lab_router_address(uint32_t router, char *out);

/* `out` has WEFT_LAB_MAC_BYTES. All ports of a router have the same MAC address. */
void weft_lab_host_mac(uint32_t host, char *out);
void weft_lab_router_mac(uint32_t router, char *out);

#endif
