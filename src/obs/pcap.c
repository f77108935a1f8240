#include "obs/pcap.h"

#include <string.h>

enum { ETHERNET_BYTES = 14, IP_BYTES = 20, UDP_BYTES = 8, SNAP_BYTES = 262144 };

static void put_be(uint8_t *at, unsigned bytes, uint64_t value)
{
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    }
}

/* A reader derives the byte order from the magic number. */
weft_status weft_pcap_open(const char *path, FILE **file_p)
{
    FILE *file = fopen(path, "wbe");
    if (file == NULL) {
        return WEFT_IO;
    }
    uint8_t head[24] = {0};
    put_be(head, 4, 0xa1b23c4d); /* nanoseconds */
    put_be(head + 4, 2, 2);
    put_be(head + 6, 2, 4);
    put_be(head + 16, 4, SNAP_BYTES);
    put_be(head + 20, 4, 1); /* Ethernet */
    fwrite(head, 1, sizeof(head), file);
    *file_p = file;
    return WEFT_OK;
}

static void ethernet_put(uint8_t *at, uint32_t from, uint32_t to)
{
    put_be(at, 6, UINT64_C(0x020000000000) | to); /* locally administered */
    put_be(at + 6, 6, UINT64_C(0x020000000000) | from);
    put_be(at + 12, 2, 0x0800);
}

static void ip_put(uint8_t *at, uint32_t from, uint32_t to, enum weft_ecn ecn, uint32_t count)
{
    uint32_t sum = 0;
    memset(at, 0, IP_BYTES);
    at[0] = 0x45;
    at[1] = (uint8_t)ecn;
    put_be(at + 2, 2, IP_BYTES + UDP_BYTES + count);
    at[6] = 0x40; /* don't fragment */
    at[8] = 64;
    at[9] = 17;
    put_be(at + 12, 4, UINT32_C(0x0a000000) | (from & 0xffffff));
    put_be(at + 16, 4, UINT32_C(0x0a000000) | (to & 0xffffff));
    for (unsigned i = 0; i < IP_BYTES; i += 2) {
        sum += (uint32_t)at[i] << 8 | at[i + 1];
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    put_be(at + 10, 2, ~sum & 0xffff);
}

void weft_pcap_write(FILE *file, uint64_t time_ns, uint32_t from_host, uint32_t to_host,
                     enum weft_ecn ecn, const void *bytes, uint32_t count)
{
    uint8_t head[16 + ETHERNET_BYTES + IP_BYTES + UDP_BYTES];
    uint32_t length = ETHERNET_BYTES + IP_BYTES + UDP_BYTES + count;
    put_be(head, 4, time_ns / WEFT_NS_PER_S);
    put_be(head + 4, 4, time_ns % WEFT_NS_PER_S);
    put_be(head + 8, 4, length);
    put_be(head + 12, 4, length);
    uint8_t *at = head + 16;
    ethernet_put(at, from_host, to_host);
    at += ETHERNET_BYTES;
    ip_put(at, from_host, to_host, ecn, count);
    at += IP_BYTES;
    put_be(at, 2, WEFT_PCAP_PORT);
    put_be(at + 2, 2, WEFT_PCAP_PORT);
    put_be(at + 4, 2, UDP_BYTES + count);
    put_be(at + 6, 2, 0);
    fwrite(head, 1, sizeof(head), file);
    fwrite(bytes, 1, count, file);
}
