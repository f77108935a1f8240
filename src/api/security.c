/* The security settings of a caller, and its job key. */
#include "api/internal.h"

weft_status weft_api_security_load(const struct weft_api_security *config,
                                   struct weft_security *security_p, struct weft_error *error)
{
    static const uint8_t modes[] = {[WEFT_TRANSPORT_AUTH] = WEFT_MODE_AUTH,
                                    [WEFT_TRANSPORT_SEAL] = WEFT_MODE_SEAL,
                                    [WEFT_TRANSPORT_NONE] = WEFT_MODE_NONE};
    struct weft_error crypto_error = {.text = ""};
    *security_p = (struct weft_security){.mode = modes[config->security],
                                         .key_bytes = config->key,
                                         .key_file = config->key_file,
                                         .keep_variable = true};
    weft_status status = weft_security_load(security_p, false, &crypto_error);
    return status == WEFT_OK ? status : weft_fail(error, status, "%s", crypto_error.text);
}
