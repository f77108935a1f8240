/* libmicrohttpd, loaded when the first server of a process starts. Internal to this folder.
 *
 * It is not linked: it depends on GnuTLS and eight more libraries for TLS, which is never used, and
 * libweft.so is loaded into other programs (a Python with its own libraries), few of which serve
 * metrics. If it is not installed, only a program that requests metrics reports an error.
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

/* The functions; the library stays loaded. NULL: *why_p has the reason.   Thread: any. */
const struct weft_microhttpd *weft_microhttpd_load(const char **why_p);

#endif
