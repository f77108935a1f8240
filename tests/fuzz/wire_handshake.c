/* HELLO, ACCEPT, COOKIE, UNKNOWN or REFUSED of any bytes: at most one decoder accepts them, and the
 * decoded message encodes to the same bytes. */
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

static bool cookie(const uint8_t *data, size_t size)
{
    struct weft_wire_cookie c;
    if (weft_wire_cookie_decode(data, size, &c) != WEFT_OK) {
        return false;
    }
    uint8_t out[OUT_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_cookie_encode(&w, &c);
    check_again(&w, out, data, size);
    return true;
}

static bool unknown(const uint8_t *data, size_t size)
{
    struct weft_wire_unknown u;
    if (weft_wire_unknown_decode(data, size, &u) != WEFT_OK) {
        return false;
    }
    uint8_t out[OUT_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_unknown_encode(&w, &u);
    check_again(&w, out, data, size);
    return true;
}

static bool refused(const uint8_t *data, size_t size)
{
    struct weft_wire_refused f;
    if (weft_wire_refused_decode(data, size, &f) != WEFT_OK) {
        return false;
    }
    uint8_t out[OUT_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_refused_encode(&w, &f);
    if (f.version == WEFT_WIRE_VERSION) { /* other versions are read, never written */
        check_again(&w, out, data, size);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t version = 0;
    uint8_t klass = 0;
    weft_status status = weft_wire_classify(data, size, &version, &klass);
    bool is_hello = hello(data, size);
    bool is_accept = accept(data, size);
    bool is_cookie = cookie(data, size);
    bool is_unknown = unknown(data, size);
    bool is_refused = refused(data, size);
    WEFT_ASSERT(status == WEFT_OK || !(is_hello || is_accept || is_cookie || is_unknown));
    WEFT_ASSERT(!is_hello || klass == WEFT_CLASS_HELLO);
    WEFT_ASSERT(!is_accept || klass == WEFT_CLASS_ACCEPT);
    WEFT_ASSERT(!is_cookie || klass == WEFT_CLASS_COOKIE);
    WEFT_ASSERT(!is_unknown || klass == WEFT_CLASS_UNKNOWN);
    WEFT_ASSERT(!is_refused || klass == WEFT_CLASS_REFUSED);
    return 0;
}
