/* libmicrohttpd, loaded when the first server of a process starts. Internal to this folder.
 *
 * It is not linked: it brings GnuTLS and eight libraries behind it, for a TLS that is never used,
 * and libweft.so goes into programs of other people (a Python with libraries of its own), of which
 * few serve metrics. Where it is not installed, only those who ask for metrics hear of it.
 */
#ifndef WEFT_OBS_HTTP_LIBRARY_H
#define WEFT_OBS_HTTP_LIBRARY_H

#include <microhttpd.h>

#define WEFT_MICROHTTPD_FUNCTIONS(X)                                                               \
    X(start_daemon)                                                                                \
    X(stop_daemon)                                                                                 \
    X(get_daemon_info)                                                                             \
    X(get_connection_info)                                                                         \
    X(lookup_connection_value)                                                                     \
    X(create_response_from_buffer)                                                                 \
    X(add_response_header)                                                                         \
    X(queue_response)                                                                              \
    X(destroy_response)

struct weft_microhttpd {
#define WEFT_MICROHTTPD_FIELD(name) typeof(MHD_##name) *name;
    WEFT_MICROHTTPD_FUNCTIONS(WEFT_MICROHTTPD_FIELD)
#undef WEFT_MICROHTTPD_FIELD
};

/* The functions; loaded for good. NULL: *why_p says why not.   Thread: any. */
const struct weft_microhttpd *weft_microhttpd_load(const char **why_p);

#endif
