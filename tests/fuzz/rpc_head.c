/* Heads, tags and table specifications from arbitrary bytes: a decoder refuses them, or its result
 * packs into the same bytes. The first byte selects the decoder. */
#include "base/assert.h"
#include "rpc/latency.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void request(const uint8_t *data, size_t size)
{
    struct weft_rpc_request request;
    uint8_t bytes[WEFT_RPC_REQUEST_BYTES];
    if (weft_rpc_request_unpack(data, size, &request) == WEFT_OK) {
        WEFT_ASSERT(request.rpc_id != 0 && request.reply_bound_ppm < WEFT_PPM);
        weft_rpc_request_pack(&request, bytes);
        WEFT_ASSERT(memcmp(bytes, data, sizeof(bytes)) == 0);
    }
}

static void reply(const uint8_t *data, size_t size)
{
    struct weft_rpc_reply reply;
    uint8_t bytes[WEFT_RPC_REPLY_BYTES];
    if (weft_rpc_reply_unpack(data, size, &reply) == WEFT_OK) {
        weft_rpc_reply_pack(&reply, bytes);
        WEFT_ASSERT(memcmp(bytes, data, sizeof(bytes)) == 0);
        WEFT_ASSERT(weft_rpc_status_text(reply.status) != NULL);
        struct weft_rpc_latency l = weft_rpc_latency_make(&reply, 1000, 1001, 1002);
        WEFT_ASSERT(l.n_tx_ns <= 1000);
    }
}

static void spec(const uint8_t *data, size_t size)
{
    struct weft_table_spec spec;
    uint8_t bytes[WEFT_RPC_SPEC_BYTES];
    if (weft_table_spec_unpack(7, data, size, &spec) == WEFT_OK) {
        WEFT_ASSERT(weft_table_spec_valid(&spec) && spec.table == 7);
        WEFT_ASSERT(spec.dim >= 1 && spec.dim <= WEFT_RPC_DIM_MAX);
        weft_table_spec_pack(&spec, bytes);
        WEFT_ASSERT(memcmp(bytes, data, sizeof(bytes)) == 0);
    }
}

static void tag(const uint8_t *data, size_t size)
{
    uint64_t bits;
    struct weft_rpc_tag tag;
    if (size >= sizeof(bits)) {
        memcpy(&bits, data, sizeof(bits));
        WEFT_ASSERT(!weft_rpc_tag_unpack(bits, &tag) || weft_rpc_tag_pack(tag) == bits);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const targets[])(const uint8_t *, size_t) = {request, reply, spec, tag};
    if (size > 0) {
        targets[data[0] % WEFT_ARRAY_COUNT(targets)](data + 1, size - 1);
    }
    return 0;
}
