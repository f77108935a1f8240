/* Wire bytes of messages of floats, with headers, if each chunk crosses the link once: the ideals
 * of sim/incast.h and sim/exchange.h. The headers are those of an authenticated packet of 1,472
 * bytes, with the short header from a message's second chunk on. Also the number of chunks that a
 * message may miss. */
#ifndef WEFT_SIM_WIRE_TIME_H
#define WEFT_SIM_WIRE_TIME_H

#include "base/units.h"
#include "sim/net.h"
#include "wire/packet.h"

enum { WEFT_SIM_PACKET_BYTES = 1472, WEFT_SIM_ELEM_BYTES = 4 };

static inline uint32_t weft_sim_chunk_elems(void)
{
    return (WEFT_SIM_PACKET_BYTES - WEFT_DATA_OVERHEAD_BYTES) / WEFT_SIM_ELEM_BYTES / 32 * 32;
}

static inline uint32_t weft_sim_chunks(uint64_t message_bytes)
{
    return (uint32_t)weft_div_ceil_u64(message_bytes / WEFT_SIM_ELEM_BYTES, weft_sim_chunk_elems());
}

/* K (docs/PROTOCOL.md section 6) of the message that follows `before` equal messages of its stream.
 * The first r of these messages together may miss floor(r x b) chunks, with b the bound of one
 * message in chunks. */
static inline uint32_t weft_sim_lost_max(uint64_t message_bytes, uint32_t bound_ppm,
                                         uint32_t before)
{
    uint64_t parts = bound_ppm * (message_bytes / WEFT_SIM_ELEM_BYTES);
    uint64_t chunk = (uint64_t)WEFT_PPM * weft_sim_chunk_elems();
    uint64_t whole = (before + UINT64_C(1)) * parts / chunk - before * parts / chunk;
    return (uint32_t)weft_min_u64(whole, weft_sim_chunks(message_bytes) - 1);
}

static inline uint64_t weft_sim_wire_bytes(uint64_t message_bytes)
{
    uint64_t chunks = weft_sim_chunks(message_bytes);
    uint64_t headers = WEFT_NET_OVERHEAD_BYTES + WEFT_DATA_OVERHEAD_BYTES;
    return message_bytes + chunks * headers - (chunks - 1) * WEFT_BRIEF_SAVED_BYTES;
}

static inline uint64_t weft_sim_wire_ns(uint64_t wire_bytes, uint64_t rate_bps)
{
    __extension__ unsigned __int128 bits_ns = (unsigned __int128)wire_bytes * 8 * WEFT_NS_PER_S;
    return (uint64_t)(bits_ns / rate_bps);
}

/* The goodput of a link that carries full chunks, each with the short header. */
static inline uint64_t weft_sim_goodput_bps(uint64_t link_bps)
{
    uint64_t chunk = (uint64_t)weft_sim_chunk_elems() * WEFT_SIM_ELEM_BYTES;
    uint64_t packet =
        chunk + WEFT_NET_OVERHEAD_BYTES + WEFT_DATA_OVERHEAD_BYTES - WEFT_BRIEF_SAVED_BYTES;
    __extension__ unsigned __int128 scaled = (unsigned __int128)link_bps * chunk;
    return (uint64_t)(scaled / packet);
}

/* The rate to give a held message (core/msg.h) for this goodput, with full chunks and the short
 * header. That rate counts UDP payload, here without the tag of mode auth. */
static inline uint64_t weft_sim_paced_bps(uint64_t goodput_bps)
{
    uint64_t chunk = (uint64_t)weft_sim_chunk_elems() * WEFT_SIM_ELEM_BYTES;
    uint64_t payload = chunk + WEFT_DATA_OVERHEAD_BYTES - WEFT_BRIEF_SAVED_BYTES - WEFT_TAG_BYTES;
    __extension__ unsigned __int128 scaled = (unsigned __int128)goodput_bps * payload;
    return (uint64_t)(scaled / chunk);
}

#endif
