/* Records: what travels over TCP in place of packets.
 *
 * A TCP stream after its handshake is a row of records. A record has the control block and the
 * DATA of a packet, but no number and no connection id, for the stream has both: its place is its
 * number. docs/PROTOCOL.md section 10 has the byte tables. Frames and the DATA header are those of
 * wire/packet.h; two frames exist only here, since over UDP a chunk without memory is just not
 * acknowledged.
 *
 *     0  version, class        1  flags        2  length u16: bytes that follow, the tag included
 *     4  control block with its length (CONTROL), DATA header and chunk (DATA), tag (AUTH, SEAL)
 */
#ifndef WEFT_WIRE_RECORD_H
#define WEFT_WIRE_RECORD_H

#include "wire/packet.h"

enum weft_wire_record_sizes {
    WEFT_RECORD_HEAD_BYTES = 4,
    WEFT_RECORD_BYTES_MAX = 65536,  /* head and tag included */
    WEFT_RECORD_CHUNK_MAX = 64936,  /* the chunk of a packet of 65,000 bytes: one grid for both */
    WEFT_RECORD_FIRST_MAX = 256,    /* the first record of the one who connected: no DATA */
    WEFT_HOLD_BYTES = 5,
};

/* Frames that only records have. */
enum weft_wire_record_frame_type {
    WEFT_FRAME_HOLD = 16,  /* no memory is posted for msg: its chunks were dropped, send no more */
    WEFT_FRAME_READY = 17, /* there is memory now: send msg, from its first chunk on */
};

/* The head, and after weft_wire_record_body the parts; the pointers borrow the record. */
struct weft_wire_record {
    uint8_t klass;
    uint8_t flags;          /* KEY_PHASE, CONTROL, DATA */
    uint32_t bytes;         /* behind the head */
    const uint8_t *control; /* frames; NULL without CONTROL */
    size_t control_bytes;
    const uint8_t *data;    /* the DATA header; NULL without DATA */
    size_t data_bytes;      /* header and chunk */
};

struct weft_wire_record_frame {
    uint8_t type;                 /* of either enum */
    uint32_t msg;                 /* HOLD, READY */
    struct weft_wire_frame other; /* all else */
};

/* WEFT_PROTO: another version, no class of connection packets, flags that contradict each other or
 * that records do not have, or a length that cannot be. */
weft_status weft_wire_record_head(const uint8_t head[WEFT_RECORD_HEAD_BYTES],
                                  struct weft_wire_record *record_p);

/* Take the body apart, `count` bytes without the tag; frames are only delimited. The record is one
 * that head has filled in. WEFT_PROTO: malformed. */
weft_status weft_wire_record_body(const uint8_t *body, size_t count,
                                  struct weft_wire_record *record);

/* Walk every frame once. WEFT_PROTO: at least one is malformed, or is none that records may have;
 * so none may act. */
weft_status weft_wire_record_check(const uint8_t *control, size_t count);

/* The next frame; false at the end or when malformed (reader->bad tells which). */
bool weft_wire_record_frame_decode(struct weft_reader *reader,
                                   struct weft_wire_record_frame *frame_p);

void weft_wire_record_head_encode(uint8_t head_p[WEFT_RECORD_HEAD_BYTES], uint8_t klass,
                                  uint8_t flags, uint32_t bytes);
void weft_wire_hold_encode(struct weft_writer *w, enum weft_wire_record_frame_type type,
                           uint32_t msg);

#endif
