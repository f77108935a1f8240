/* Status codes of every weft call: the one list from which enum, name and text are made.
 *
 * A function that returns a status writes its outputs only on WEFT_OK. A message that lost elements
 * within its bound is no error: loss is data (see weft_transport_event).
 *
 * ABI: values are only ever appended within one soname.
 */
#ifndef WEFT_STATUS_H
#define WEFT_STATUS_H

#include <weft/export.h>

/* X(name, what happened; what to do next) */
#define WEFT_STATUS_MAP(X)                                                                         \
    X(OK, "success")                                                                               \
    X(AGAIN, "not now: a queue or window is full; progress the endpoint and try again")            \
    X(INVALID, "an argument is out of its documented range; correct the call")                     \
    X(STATE, "the object is not in a state that allows this; see the header's lifecycle")          \
    X(NOMEM, "posted or allocated memory is used up; post more or lower the request")              \
    X(PROTO, "the bytes break the protocol; they were dropped and counted")                        \
    X(NOTFOUND, "no such object")                                                                  \
    X(EXISTS, "the object exists already")                                                         \
    X(IO, "the operating system refused; the message names the call and errno")                    \
    X(DATA, "the input data is malformed; the message names the line")                             \
    X(PEER, "the peer is gone or refused")                                                         \
    X(TIMEOUT, "the time allowed passed before an answer came")                                    \
    X(UNSUPPORTED, "this build or host does not offer it; `weft doctor` says what is missing")     \
    X(DROPPED, "the update was dropped; keep its values or let them go, and pull again")

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

/* What happened and what to do next, one line without a full stop; never NULL. */
WEFT_API const char *weft_status_text(weft_status status);

#ifdef __cplusplus
}
#endif

#endif
