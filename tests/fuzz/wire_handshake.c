/* HELLO, ACCEPT, COOKIE or UNKNOWN of any bytes: at most one decoder takes them, and what it takes
 * encodes again to the same bytes. */
#include "base/assert.h"
#include "wire/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OUT_BYTES = 128 };

static void check_again(const struct weft_writer *w, const uint8_t *out, const uint8_t *data,
                        size_t size)
{
    WEFT_ASSERT(!w->bad && (size_t)(w->at - out) == size);
    WEFT_ASSERT(memcmp(out, data, size) == 0);
}

static bool hello(const uint8_t *data, size_t size)
{
    struct weft_wire_hello h;
    if (weft_wire_hello_decode(data, size, &h) != WEFT_OK) {
        return false;
    }
    WEFT_ASSERT(size == WEFT_HELLO_BYTES && h.mode <= WEFT_MODE_SEAL);
    uint8_t out[OUT_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_hello_encode(&w, &h);
    check_again(&w, out, data, size);
    return true;
}

static bool accept(const uint8_t *data, size_t size)
{
    struct weft_wire_accept a;
    if (weft_wire_accept_decode(data, size, &a) != WEFT_OK) {
        return false;
    }
    WEFT_ASSERT(size == WEFT_ACCEPT_BYTES && a.mode <= WEFT_MODE_SEAL);
    uint8_t out[OUT_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_accept_encode(&w, &a);
    check_again(&w, out, data, size);
    return true;
}

static bool short_packet(const uint8_t *data, size_t size)
{
    struct weft_wire_short s;
    if (weft_wire_short_decode(data, size, &s) != WEFT_OK) {
        return false;
    }
    uint8_t out[OUT_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_short_encode(&w, (enum weft_wire_class)(data[0] & 15), &s);
    check_again(&w, out, data, size);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t version = 0;
    uint8_t klass = 0;
    weft_status status = weft_wire_classify(data, size, &version, &klass);
    bool is_hello = hello(data, size);
    bool is_accept = accept(data, size);
    bool is_short = short_packet(data, size);
    WEFT_ASSERT(status == WEFT_OK || !(is_hello || is_accept || is_short));
    WEFT_ASSERT(!is_hello || klass == WEFT_CLASS_HELLO);
    WEFT_ASSERT(!is_accept || klass == WEFT_CLASS_ACCEPT);
    WEFT_ASSERT(!is_short || klass == WEFT_CLASS_COOKIE || klass == WEFT_CLASS_UNKNOWN);
    return 0;
}
