/* Packet layouts on the wire, and the only code that encodes and decodes them.
 *
 * docs/PROTOCOL.md sections 2 and 3 contain the byte tables, with the same names. Decoding checks
 * everything that can be checked without connection state and never trusts a length. Encoding into
 * a writer that is too small sets writer.bad; the caller must provide enough space.
 */
#ifndef WEFT_WIRE_PACKET_H
#define WEFT_WIRE_PACKET_H

#include "base/cursor.h"
#include "base/status.h"
#include "wire/weft_wire.h"

enum weft_wire_mode { WEFT_MODE_NONE = 0, WEFT_MODE_AUTH = 1, WEFT_MODE_SEAL = 2 };

enum weft_wire_flags {
    WEFT_FLAG_KEY_PHASE = 0x80,
    WEFT_FLAG_PASS_END = 0x40,
    WEFT_FLAG_SENDER_LIMITED = 0x20,
    WEFT_FLAG_PRIORITY = 0x1c, /* shifted left by 2; with DATA only */
    WEFT_FLAG_BRIEF = 0x10,    /* without DATA: a chunk with the short header */
    WEFT_FLAG_SHARED = 0x04,   /* with BRIEF only: the sender also has chunks for other peers */
    WEFT_FLAG_CONTROL = 0x02,
    WEFT_FLAG_DATA = 0x01,
};

/* True if a packet with these flags ends in a chunk, with either header. */
static inline bool weft_wire_has_chunk(uint8_t flags)
{
    return (flags & (WEFT_FLAG_DATA | WEFT_FLAG_BRIEF)) != 0;
}

/* True if the header of that chunk is the short one. */
static inline bool weft_wire_is_brief(uint8_t flags)
{
    return (flags & (WEFT_FLAG_DATA | WEFT_FLAG_BRIEF)) == WEFT_FLAG_BRIEF;
}

enum weft_wire_sizes {
    WEFT_HEADER_BYTES = 16,
    WEFT_HEADER_BRIEF_BYTES = 12, /* header of a packet that contains only a chunk with the short
                                   * header */
    WEFT_DATA_BYTES = 32,
    WEFT_BRIEF_BYTES = 8,
    WEFT_BRIEF_CHUNK_BITS = 18, /* the other 14 bits of 32 identify the message */
    WEFT_TAG_BYTES = 16,
    WEFT_HELLO_BYTES = 120,
    WEFT_ACCEPT_BYTES = 112,
    WEFT_COOKIE_BYTES = 40,
    WEFT_UNKNOWN_BYTES = 32,
    WEFT_REFUSED_BYTES = 8,
    WEFT_MAC_BYTES = 16,
    WEFT_ACK_BYTES = 36, /* + 8 per word + 8 per note */
    WEFT_ACK_SHORT_BYTES = 20,
    WEFT_DONE_BYTES = 24, /* + 8 per word */
    WEFT_FINISH_BYTES = 6,
    WEFT_PING_BYTES = 1,
    WEFT_PATH_BYTES = 9,
    WEFT_CLOSE_BYTES = 3,
    WEFT_PADDING_BYTES = 3, /* + the zeros */
    WEFT_BACKLOG_BYTES = 5,
    WEFT_MESSAGE_BYTES = 24,  /* + the message */
    WEFT_CRITICAL_BYTES = 16, /* + 8 per word */
    WEFT_CRITICAL_WORDS_MAX = 160,
    WEFT_CRITICAL_MASKED = 255, /* value of DATA's critical: CRITICAL frames follow */
    WEFT_ACK_WORDS_MAX = 32,
    WEFT_ACK_NOTES_MAX = 32,
    WEFT_DONE_WORDS_MAX = 160,
    WEFT_KEY_BYTES = 32,
    WEFT_COOKIE_VALUE_BYTES = 16,
    /* Header, DATA header and tag: the bytes of a message's first packet that are not part of
     * its chunk, in any mode. The chunk size is chosen for that packet. */
    WEFT_DATA_OVERHEAD_BYTES = 64,
    /* The other packets of a message are shorter by this. */
    WEFT_BRIEF_SAVED_BYTES =
        WEFT_HEADER_BYTES - WEFT_HEADER_BRIEF_BYTES + WEFT_DATA_BYTES - WEFT_BRIEF_BYTES,
};

/* Bytes of a connection packet before its control block or chunk; they are not encrypted in any
 * mode. */
static inline size_t weft_wire_header_bytes(uint8_t flags)
{
    uint8_t parts = flags & (WEFT_FLAG_DATA | WEFT_FLAG_BRIEF | WEFT_FLAG_CONTROL);
    return parts == WEFT_FLAG_BRIEF ? WEFT_HEADER_BRIEF_BYTES : WEFT_HEADER_BYTES;
}

/* A parsed connection packet; the pointers borrow the datagram. */
struct weft_wire_packet {
    uint8_t klass;
    uint8_t flags;
    uint16_t data_count;
    uint32_t connection_id;
    uint64_t number;        /* if the header has 12 bytes, decode sets only the low half */
    const uint8_t *control; /* frames; NULL without CONTROL */
    size_t control_bytes;
    const uint8_t *data; /* the header of DATA or BRIEF; NULL without a chunk */
    size_t data_bytes;   /* header and chunk */
};

struct weft_wire_hello {
    uint8_t mode;
    uint16_t key_id;
    uint32_t connection_id;
    uint64_t incarnation;
    uint64_t name;
    uint64_t open_from;
    uint32_t clock;
    uint16_t unscheduled;
    uint16_t packet_bytes_max;
    uint8_t cookie[WEFT_COOKIE_VALUE_BYTES];
    uint8_t ephemeral[WEFT_KEY_BYTES];
    uint8_t tag[WEFT_TAG_BYTES];
    uint8_t mac[WEFT_MAC_BYTES];
};

struct weft_wire_accept {
    uint8_t mode;
    uint16_t key_id;
    uint32_t connection_id; /* HELLO's */
    uint32_t own_connection_id;
    uint32_t clock; /* HELLO's */
    uint64_t incarnation;
    uint64_t name;
    uint64_t open_from;
    uint16_t unscheduled;
    uint16_t packet_bytes_max;
    uint8_t ephemeral[WEFT_KEY_BYTES];
    uint8_t tag[WEFT_TAG_BYTES];
    uint8_t mac[WEFT_MAC_BYTES];
};

struct weft_wire_cookie {
    uint32_t connection_id; /* HELLO's */
    uint8_t cookie[WEFT_COOKIE_VALUE_BYTES];
    uint8_t mac[WEFT_MAC_BYTES];
};

struct weft_wire_unknown {
    uint32_t connection_id; /* connection id and number of the packet of an unknown connection */
    uint32_t number;        /* low half */
    uint64_t incarnation;   /* of the sender; the low 16 bits are not sent, and zero */
    uint8_t mac[WEFT_MAC_BYTES];
};

enum weft_wire_refusal {
    WEFT_REFUSED_VERSION = 1,
    WEFT_REFUSED_KEY = 2,
    WEFT_REFUSED_MODE = 3,
    WEFT_REFUSED_FULL = 4,
    WEFT_REFUSED_CLOSED = 5,
};

/* This layout is the same in every version of the protocol. */
struct weft_wire_refused {
    uint8_t version; /* version of the sender of this packet */
    uint8_t reason;
    uint8_t mode; /* lowest mode that the sender accepts */
    uint32_t connection_id;
};

enum weft_wire_frame_type {
    WEFT_FRAME_ACK = 1,
    WEFT_FRAME_DONE = 2,
    WEFT_FRAME_FINISH = 3,
    WEFT_FRAME_PING = 4,
    WEFT_FRAME_PATH_CHALLENGE = 5,
    WEFT_FRAME_PATH_RESPONSE = 6,
    WEFT_FRAME_CLOSE = 7,
    WEFT_FRAME_CRITICAL = 8,
    WEFT_FRAME_PADDING = 10,
    WEFT_FRAME_BACKLOG = 11,
    WEFT_FRAME_ACK_SHORT = 12,
    WEFT_FRAME_MESSAGE = 13,
};

enum {
    WEFT_ACK_IDLE = 0x01,
    WEFT_ACK_LATER = 0x02,
    WEFT_ACK_DELAY_SHIFT = 2, /* delay_step is above the flags */
    WEFT_ACK_DELAY_STEPS = 64,
};
enum { WEFT_DONE_COMPLETE = 0, WEFT_DONE_SHORT = 1 };
enum { WEFT_FINISH_SHORT = 0x01 };
enum {
    WEFT_CLOSE_FINISHED = 0,
    WEFT_CLOSE_SILENT = 1,
    WEFT_CLOSE_PROTOCOL = 2,
    WEFT_CLOSE_IDLE = 3,
    WEFT_CLOSE_REPLACED = 4, /* another process has replaced this one: do not reconnect */
};

struct weft_wire_note {
    uint32_t msg;
    uint32_t received;
};

struct weft_wire_ack {
    uint8_t word_count;
    uint8_t note_count;
    uint8_t flags;
    uint8_t delay_step; /* < WEFT_ACK_DELAY_STEPS: maximum delay of an acknowledgement from now
                         * on */
    uint64_t largest;
    uint32_t delay; /* in units of 64 ns, like clock */
    uint32_t clock;
    uint32_t ect;
    uint32_t ce;
    uint32_t credit;
    uint32_t open_from;
    uint64_t words[WEFT_ACK_WORDS_MAX];
    struct weft_wire_note notes[WEFT_ACK_NOTES_MAX];
};

/* An ACK that fits into a packet with a full chunk and the short header. The receiver extends each
 * field to the full number nearest to the value that it knows. */
struct weft_wire_ack_short {
    uint8_t flags;      /* without IDLE */
    uint8_t delay_step; /* as in struct weft_wire_ack */
    uint32_t largest;
    uint16_t delay; /* in units of 1,024 ns */
    uint16_t credit;
    uint8_t open_from;
    uint8_t ce;
    uint64_t mask; /* bit 63 is largest, and always set; bit i is largest - 63 + i */
};

/* 100 us x 2^(step / 4), linear within an octave. */
static inline uint64_t weft_wire_ack_delay_ns(uint8_t step)
{
    return (UINT64_C(4) + step % 4) * 25000 << step / 4;
}

/* The largest step whose delay is at most ns; 0 if ns is less than 100 us. */
uint8_t weft_wire_ack_delay_step(uint64_t ns);

struct weft_wire_done {
    uint8_t status;
    uint16_t word_count;
    uint32_t msg;
    uint32_t chunks;
    uint32_t received;
    uint32_t refused;
    uint32_t first;
    uint64_t words[WEFT_DONE_WORDS_MAX];
};

struct weft_wire_finish {
    uint8_t flags;
    uint32_t msg;
};

struct weft_wire_critical {
    uint16_t word_count;
    uint32_t msg;
    uint32_t chunks;
    uint32_t first;
    uint64_t words[WEFT_CRITICAL_WORDS_MAX];
};

/* A whole message of one chunk, in addition to the chunk of the packet. */
struct weft_wire_message {
    uint8_t priority;
    uint8_t critical; /* 0 or 1 */
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t msg;
    uint32_t total; /* 1 .. chunk_elems */
    uint64_t tag;
    const uint8_t *payload; /* total x elem_bytes bytes; decode borrows the datagram */
};

struct weft_wire_frame {
    enum weft_wire_frame_type type;
    union {
        struct weft_wire_ack ack;
        struct weft_wire_ack_short ack_short;
        struct weft_wire_done done;
        struct weft_wire_finish finish;
        struct weft_wire_critical critical;
        struct weft_wire_message message;
        uint64_t token; /* PATH_* */
        uint16_t close_code;
        uint16_t padding_bytes; /* zeros */
        uint32_t backlog_end;   /* data_count at which the passes of all open messages are
                                 * complete */
    };
};

struct weft_wire_data {
    uint32_t msg;
    uint32_t chunk;
    uint32_t total;
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint8_t critical;
    uint32_t lost_max;
    uint64_t tag;
    uint32_t clock;
    /* derived and checked by decode */
    uint32_t chunks;        /* N */
    uint32_t elems;         /* in this chunk */
    const uint8_t *payload; /* elems x elem_bytes bytes */
};

/* A chunk of a message whose grid the receiver already knows. */
struct weft_wire_brief {
    uint16_t msg;   /* low 14 bits of the message's sequence number */
    uint32_t chunk; /* below 2^18 */
    uint32_t clock;
    const uint8_t *payload;
    size_t payload_bytes;
};

/* Version and class of any packet. WEFT_PROTO: empty, or another version (see *version_p). */
weft_status weft_wire_classify(const void *bytes, size_t count, uint8_t *version_p,
                               uint8_t *class_p);

/* Decode the 12 or 16 bytes that are not encrypted in any mode; all other fields of *packet_p are
 * set to zero. WEFT_PROTO: another version, not a class of connection packets, too short for its
 * class, number 0 (of 64 bits), or contradictory flags. */
weft_status weft_wire_header_decode(const void *bytes, size_t count,
                                    struct weft_wire_packet *packet_p);

/* Decode the part after the header, which weft_wire_header_decode has read into *packet; frames
 * are only delimited. WEFT_PROTO: malformed; control and data may then point into the bytes. */
weft_status weft_wire_body_decode(const void *bytes, size_t count, struct weft_wire_packet *packet);

/* Decode a connection packet: header and body. WEFT_PROTO: malformed. */
weft_status weft_wire_packet_decode(const void *bytes, size_t count,
                                    struct weft_wire_packet *packet_p);

/* True if a frame of this type requests an acknowledgement. */
static inline bool weft_wire_frame_eliciting(enum weft_wire_frame_type type)
{
    return type != WEFT_FRAME_ACK && type != WEFT_FRAME_ACK_SHORT && type != WEFT_FRAME_CLOSE &&
           type != WEFT_FRAME_PADDING;
}

/* Check every frame of a control block. WEFT_PROTO: at least one is malformed, so none may be
 * processed. *eliciting_p: at least one requests an acknowledgement. */
weft_status weft_wire_control_check(const uint8_t *control, size_t count, bool *eliciting_p);

/* The next frame; false at the end or when malformed (then reader->bad is set). */
bool weft_wire_frame_decode(struct weft_reader *reader, struct weft_wire_frame *frame_p);

/* Decode a DATA header and its chunk and check them against the chunk's own grid: all of section
 * 3.7 except the state of the message. Range arithmetic on network input is validated only here. */
weft_status weft_wire_data_decode(const uint8_t *bytes, size_t count,
                                  struct weft_wire_data *data_p);

/* Decode the short header alone; weft_wire_brief_complete checks it against the message. */
weft_status weft_wire_brief_decode(const uint8_t *bytes, size_t count,
                                   struct weft_wire_brief *brief_p);

/* *data has the grid of the message (msg, total, chunk_elems, elem_bytes, critical, lost_max,
 * tag); the other fields are set from *brief, and all are checked as in weft_wire_data_decode.
 * WEFT_PROTO: the chunk does not fit the grid, *data is unchanged. */
weft_status weft_wire_brief_complete(const struct weft_wire_brief *brief,
                                     struct weft_wire_data *data);

weft_status weft_wire_hello_decode(const void *bytes, size_t count,
                                   struct weft_wire_hello *hello_p);
weft_status weft_wire_accept_decode(const void *bytes, size_t count,
                                    struct weft_wire_accept *accept_p);
weft_status weft_wire_cookie_decode(const void *bytes, size_t count,
                                    struct weft_wire_cookie *cookie_p);
weft_status weft_wire_unknown_decode(const void *bytes, size_t count,
                                     struct weft_wire_unknown *unknown_p);
/* Decode REFUSED of any version. */
weft_status weft_wire_refused_decode(const void *bytes, size_t count,
                                     struct weft_wire_refused *refused_p);

/* Encode the header of a connection packet; the caller appends a control block and DATA
 * according to the flags. */
void weft_wire_header_encode(struct weft_writer *w, const struct weft_wire_packet *packet);
void weft_wire_data_encode(struct weft_writer *w, const struct weft_wire_data *data);
/* Encodes msg, chunk and clock of *data. */
void weft_wire_brief_encode(struct weft_writer *w, const struct weft_wire_data *data);
void weft_wire_frame_encode(struct weft_writer *w, const struct weft_wire_frame *frame);
void weft_wire_hello_encode(struct weft_writer *w, const struct weft_wire_hello *hello);
void weft_wire_accept_encode(struct weft_writer *w, const struct weft_wire_accept *accept);
void weft_wire_cookie_encode(struct weft_writer *w, const struct weft_wire_cookie *cookie);
void weft_wire_unknown_encode(struct weft_writer *w, const struct weft_wire_unknown *unknown);
/* Encode REFUSED in this version; refused->version is ignored. */
void weft_wire_refused_encode(struct weft_writer *w, const struct weft_wire_refused *refused);

#endif
