/* One incoming message: the chunks received and its bound. Internal to src/core.
 *
 * Only rx_msg.c and the functions below write the fields; all other files read them.
 * The set of a peer's incoming messages is struct rx_msgs in rx_msgs.h.
 */
#ifndef WEFT_CORE_RX_MSG_H
#define WEFT_CORE_RX_MSG_H

#include "base/bits.h"
#include "core/limits.h"

enum rx_state { RX_FREE, RX_OPEN, RX_CLOSED };

struct rx_msg {
    enum rx_state state;
    enum weft_msg_outcome outcome;
    enum weft_msg_sink sink;
    bool unpolled;       /* closed, and its RECEIVED event is still in the ring */
    bool pass_over;      /* the sender's first pass has ended */
    bool critical_known; /* all parts of `critical_mask` have arrived */
    uint8_t critical;    /* leading critical chunks, or WEFT_CRITICAL_MASKED */
    uint8_t priority;
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t total;
    uint32_t chunks;   /* N */
    uint32_t lost_max; /* K */
    uint32_t received_count;
    uint32_t refused; /* chunks that the application refused */
    uint32_t
        data_count_open; /* DATA packets that the peer had sent before the first of this message */
    uint32_t data_heard_open; /* number of those that this end had received */
    uint32_t data_heard;      /* DATA packets received of this message */
    uint32_t critical_left;   /* critical chunks missing; UINT32_MAX: the mask is not known yet */
    uint64_t opened_pn;       /* largest packet number received when the message was opened */
    uint64_t seq;
    uint64_t tag;
    uint64_t user;
    uint64_t pass_over_ns;
    uint64_t timeout_ns;    /* absolute */
    uint32_t done_word;     /* first word of the mask that is not in a DONE yet */
    uint64_t done_first_pn; /* packet numbers of the first and the last packet with the last DONE */
    uint64_t done_last_pn;
    uint8_t *memory;
    uint64_t *received;      /* N bits */
    uint64_t *critical_mask; /* N bits, when critical = WEFT_CRITICAL_MASKED */
    /* Storage of these two masks up to INLINE_CHUNKS; longer ones are in the arena. */
    uint64_t inline_mask[RX_MASKS];
    uint64_t
        critical_parts[MASK_PARTS_WORDS]; /* bit = this part of the critical mask has arrived */
};

static inline bool rx_critical_chunk(const struct rx_msg *m, uint32_t chunk)
{
    return m->critical == WEFT_CRITICAL_MASKED
               ? m->critical_known && weft_bits_test(m->critical_mask, chunk)
               : chunk < m->critical;
}

/* A DATA packet of the message arrived, whether or not its chunk is new. */
static inline void rx_msg_data_heard(struct rx_msg *m)
{
    m->data_heard++;
}
/* A new chunk. The bit is set before the chunk reaches its sink, so no chunk is counted twice. */
static inline void rx_msg_chunk_received(struct rx_msg *m, uint32_t chunk)
{
    weft_bits_set(m->received, chunk);
    m->received_count++;
    m->critical_left -= rx_critical_chunk(m, chunk);
}
/* Record the end of the sender's first pass; requires !pass_over. */
static inline void rx_msg_pass_end(struct rx_msg *m, uint64_t now_ns)
{
    m->pass_over = true;
    m->pass_over_ns = now_ns;
}
static inline void rx_msg_priority_set(struct rx_msg *m, uint8_t priority)
{
    m->priority = priority;
}
static inline void rx_msg_user_set(struct rx_msg *m, uint64_t user)
{
    m->user = user;
}
/* The application refused one of the chunks; a refusal beyond the chunks received is ignored. */
static inline void rx_msg_refuse(struct rx_msg *m)
{
    m->refused += m->refused < m->received_count;
}
/* Packet pn contains `words` more words of the message's DONE. */
static inline void rx_msg_done_part_sent(struct rx_msg *m, uint32_t words, uint64_t pn)
{
    m->done_first_pn = m->done_word == 0 ? pn : m->done_first_pn;
    m->done_last_pn = pn;
    m->done_word += words;
}
/* The next DONE starts with the first word. */
static inline void rx_msg_done_restart(struct rx_msg *m)
{
    m->done_word = 0;
}
static inline void rx_msg_polled(struct rx_msg *m)
{
    m->unpolled = false;
}
/* Free the slot. If the slot is already free, nothing is written, because its page may never have
 * been used. */
static inline void rx_msg_clear(struct rx_msg *m)
{
    if (m->state != RX_FREE) {
        m->state = RX_FREE;
    }
}

#endif
