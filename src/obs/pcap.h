/* A capture file of simulated packets, for Wireshark: pcap with nanoseconds, Ethernet, IPv4, UDP.
 *
 * The headers are synthetic: host h is 10.x.y.z with h in its low 24 bits, every port is 7700, the
 * UDP checksum is 0 (none). Times are the simulation's.
 */
#ifndef WEFT_OBS_PCAP_H
#define WEFT_OBS_PCAP_H

#include "base/status.h"
#include "core/endpoint.h"

#include <stdio.h>

enum { WEFT_PCAP_PORT = 7700 };

/* Errors:  WEFT_IO  see errno. */
weft_status weft_pcap_open(const char *path, FILE **file_p);

/* Append one datagram; write errors are reported by ferror(file). */
void weft_pcap_write(FILE *file, uint64_t time_ns, uint32_t from_host, uint32_t to_host,
                     enum weft_ecn ecn, const void *bytes, uint32_t count);

#endif
