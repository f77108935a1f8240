/* Intel's ipsec-mb, loaded when the first provider of a process is made. Internal to this folder.
 *
 * It is not linked: weft, and programs that link libweft.so, start on machines without it, too,
 * and the hundreds of symbols that it exports (sha1_sse) do not enter their namespace. A build
 * needs its header. Packets use the function pointers in its manager, as if it were linked.
 *
 * Supported versions: only the exact version of the header. The soname guarantees too little: the
 * caller allocates the key schedules, and has their size and the offsets of the manager's fields
 * only from the header.
 *
 *   1.3 -> 1.4   the same soname, but a key schedule is 256 bytes longer with AVX-512 and VAES:
 *                with a build for 1.3 it would overwrite other memory (its issue 116)
 *   1.x -> 2.0   another soname
 *   3.0          the bits of IMB_MGR.features have other numbers than in 1.3; IMB_MGR is opaque
 *
 * There is no guarantee for versions that differ in the third number (2.0.1, 2.0.2) either.
 * Rejecting a compatible version costs time, and `weft doctor` reports it; accepting an
 * incompatible one corrupts memory and keys.
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

/* Load the library and return its functions; it stays loaded. NULL: *about_p has the reason, and
 * advice.
 *
 * Thread:  one at a time (aead_ipsec_mb.c calls it once per process). */
const struct weft_ipsec_mb *weft_ipsec_mb_load(struct weft_provider_aead *about_p);

#endif
