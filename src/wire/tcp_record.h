/* Records: the framing over TCP, in place of packets.
 *
 * After its handshake a TCP stream is a sequence of records. A record has the control block and the
 * DATA of a packet, but no number and no connection id: its number is its position in the stream.
 * docs/PROTOCOL.md section 10 has the byte tables. Frames and the DATA header are those of
 * wire/packet.h. Two frames exist only in records; over UDP a receiver without posted memory for a
 * message does not acknowledge its chunks instead.
 *
 *     0  version, class        1  flags        2  length u16: bytes that follow, the tag included
 *     4  control block with its length (CONTROL), DATA header and chunk (DATA), tag (AUTH, SEAL)
 */
#ifndef WEFT_WIRE_TCP_RECORD_H
#define WEFT_WIRE_TCP_RECORD_H

#include "wire/packet.h"

enum weft_wire_record_sizes {
    WEFT_WIRE_RECORD_HEAD_BYTES = 4,
    WEFT_WIRE_RECORD_BYTES_MAX = 65536, /* head and tag included */
    WEFT_WIRE_RECORD_CHUNK_MAX = 64936, /* the chunk of a packet of 65,000 bytes: equal for UDP and
                                         * TCP */
    WEFT_WIRE_RECORD_FIRST_MAX = 256,   /* the first record of the initiator: no DATA */
    WEFT_BLOCKED_BYTES = 5,
};

/* Frames that only records have. */
enum weft_wire_record_frame_type {
    WEFT_FRAME_BLOCKED = 16, /* no memory is posted for msg: its chunks were dropped, stop sending
                              * it */
    WEFT_FRAME_READY = 17,   /* memory is posted now: send msg from its first chunk on */
};

/* A decoded record: its header and, after weft_wire_record_body, its parts; the pointers point into
 * the record's bytes. */
struct weft_wire_record {
    uint8_t klass;
    uint8_t flags;          /* KEY_PHASE, CONTROL, DATA */
    uint32_t bytes;         /* after the header */
    const uint8_t *control; /* frames; NULL without CONTROL */
    size_t control_bytes;
    const uint8_t *data; /* the DATA header; NULL without DATA */
    size_t data_bytes;   /* header and chunk */
};

struct weft_wire_record_frame {
    uint8_t type;                 /* of records (WEFT_FRAME_*) or packets */
    uint32_t msg;                 /* BLOCKED, READY */
    struct weft_wire_frame other; /* all other frames */
};

/* WEFT_PROTO: another version, not a class of connection packets, contradictory flags or flags
 * that records do not have, or an impossible length. */
weft_status weft_wire_record_head(const uint8_t head[WEFT_WIRE_RECORD_HEAD_BYTES],
                                  struct weft_wire_record *record_p);

/* Parse the body, `count` bytes without the tag; frames are only delimited. The record was
 * filled in by weft_wire_record_head. WEFT_PROTO: malformed. */
weft_status weft_wire_record_body(const uint8_t *body, size_t count,
                                  struct weft_wire_record *record);

/* Check every frame once. WEFT_PROTO: at least one is malformed or not allowed in records, so no
 * frame may be processed. */
weft_status weft_wire_record_check(const uint8_t *control, size_t count);

/* The next frame; false at the end or when malformed (then reader->bad is set). */
bool weft_wire_record_frame_decode(struct weft_reader *reader,
                                   struct weft_wire_record_frame *frame_p);

void weft_wire_record_head_encode(uint8_t head_p[WEFT_WIRE_RECORD_HEAD_BYTES], uint8_t klass,
                                  uint8_t flags, uint32_t bytes);
void weft_wire_blocked_encode(struct weft_writer *w, enum weft_wire_record_frame_type type,
                              uint32_t msg);

#endif
