/* Status codes of all weft calls: one list defines the enum, the names and the texts.
 *
 * Unless its comment states otherwise, a function that returns a status writes its outputs only on
 * WEFT_OK. A message that lost elements within its bound is not an error: the mask in the event
 * shows which elements arrived (struct weft_mask).
 *
 * ABI: within one soname values are only appended.
 */
#ifndef WEFT_STATUS_H
#define WEFT_STATUS_H

#include <weft/export.h>

/* X(name, meaning; remedy) */
#define WEFT_STATUS_MAP(X)                                                                         \
    X(OK, "success")                                                                               \
    X(AGAIN, "not now: a queue or window is full; progress the endpoint and try again")            \
    X(INVALID, "an argument is outside its documented range; correct the call")                    \
    X(STATE, "the object is not in a state that allows this; see the header's lifecycle")          \
    X(NOMEM, "posted or allocated memory is exhausted; post more or reduce the request")           \
    X(PROTO, "the bytes violate the protocol; they were dropped and counted")                      \
    X(NOTFOUND, "no such object")                                                                  \
    X(EXISTS, "the object exists already")                                                         \
    X(IO, "a system call failed; the error text names the call and errno")                         \
    X(DATA, "data is malformed or was refused; the error text has the reason")                     \
    X(PEER, "the peer is down or refused the request")                                             \
    X(TIMEOUT, "no reply arrived within the timeout")                                              \
    X(UNSUPPORTED, "this build or host does not support it; `weft doctor` reports what is missing")\
    X(DROPPED, "the update was dropped; keep or discard its values, and pull again")

typedef enum WEFT_NODISCARD {
#define X(name, text) WEFT_##name,
    WEFT_STATUS_MAP(X)
#undef X
        WEFT_STATUS_COUNT
} weft_status;

#ifdef __cplusplus
extern "C" {
#endif

/* "WEFT_AGAIN", for logs and tests; never NULL. */
WEFT_API const char *weft_status_name(weft_status status);

/* Meaning and remedy, one line without a full stop; never NULL. */
WEFT_API const char *weft_status_text(weft_status status);

#ifdef __cplusplus
}
#endif

#endif
