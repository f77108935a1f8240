/* Status codes: the one list from which enum, name and text are made.
 *
 * Four kinds of trouble are never mixed (see docs/ARCHITECTURE.md):
 *   1. programmer error      WEFT_ASSERT, always on
 *   2. bad bytes of a peer   dropped and counted, never a status of the caller's
 *   3. local failure         a status from this list; must be checked
 *   4. loss                  data: a partial message is success with a received mask
 *
 * A function that returns a status writes its outputs only on WEFT_OK.
 */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

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
    X(UNSUPPORTED, "this build or host does not offer it; `weft doctor` says what is missing")

typedef enum [[nodiscard]] {
#define X(name, text) WEFT_##name,
    WEFT_STATUS_MAP(X)
#undef X
    WEFT_STATUS_COUNT
} weft_status;

/* "WEFT_AGAIN", for logs and tests; never NULL. */
const char *weft_status_name(weft_status status);

/* What happened and what to do next, one line without a full stop; never NULL. */
const char *weft_status_text(weft_status status);

#endif
