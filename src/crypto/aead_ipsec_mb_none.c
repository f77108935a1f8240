/* Builds without ipsec-mb: this provider has no algorithms. */
#include "crypto/aead.h"

#include <stdio.h>

const struct weft_aead_ops *weft_aead_ipsec_mb(struct weft_provider_aead *about_p)
{
    snprintf(about_p->text, sizeof(about_p->text), "libcrypto; built without ipsec-mb");
#ifdef __x86_64__
    about_p->advice =
        "ipsec-mb does the cryptography of a packet in a quarter of the time: install "
        "libipsec-mb-dev (1.3 to 2.0), then make clean and make";
#else
    about_p->advice = ""; /* no advice for this processor */
#endif
    return NULL;
}
