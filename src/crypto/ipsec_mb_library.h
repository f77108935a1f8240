/* Intel's ipsec-mb, loaded when the first provider of a process is made. Internal to this folder.
 *
 * It is not linked: weft, and programs that link libweft.so, start on machines without it, too,
 * and the hundreds of names that it exports (sha1_sse) stay out of theirs. A build needs its
 * header; what packets take of it are the function pointers in its manager, as if it were linked.
 *
 * Which versions. Only the very one of the header. The soname promises too little: key schedules
 * lie in memory of the caller, who has their size, and where the manager's fields are, from the
 * header alone.
 *
 *   1.3 -> 1.4   the same soname, but a key schedule is 256 bytes longer with AVX-512 and VAES:
 *                what was built with 1.3 would have other memory overwritten (its issue 116)
 *   1.x -> 2.0   another soname
 *   3.0          the bits of IMB_MGR.features have other numbers than in 1.3; IMB_MGR is opaque
 *
 * Of versions that differ in the third number (2.0.1, 2.0.2) nothing is promised either. To refuse
 * one wrongly costs time, and `weft doctor` says so; to take one wrongly costs memory, and keys.
 *
 * Source: intel-ipsec-mb.h; ReleaseNotes.md of intel-ipsec-mb; dlopen(3).
 */
#ifndef WEFT_CRYPTO_IPSEC_MB_LIBRARY_H
#define WEFT_CRYPTO_IPSEC_MB_LIBRARY_H

#include "crypto/provider.h"

#include <intel-ipsec-mb.h>

#define WEFT_IPSEC_MB_FUNCTIONS(X)                                                                 \
    X(imb_get_version)                                                                             \
    X(imb_get_version_str)                                                                         \
    X(imb_get_errno)                                                                               \
    X(alloc_mb_mgr)                                                                                \
    X(free_mb_mgr)                                                                                 \
    X(init_mb_mgr_auto)

struct weft_ipsec_mb {
#define WEFT_IPSEC_MB_FIELD(name) typeof(name) *name;
    WEFT_IPSEC_MB_FUNCTIONS(WEFT_IPSEC_MB_FIELD)
#undef WEFT_IPSEC_MB_FIELD
};

/* The functions; loaded for good. NULL: *about_p says why not, and what would mend it.
 *
 * Thread:  one at a time (aead_ipsec_mb.c calls it once in a process). */
const struct weft_ipsec_mb *weft_ipsec_mb_load(struct weft_provider_aead *about_p);

#endif
