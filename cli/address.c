#define _GNU_SOURCE // memrchr
#include "cli/address.h"

#include "ml/number.h"

#include <string.h>

bool weft_cli_address_parse(const char *text, size_t bytes, char *host_p, size_t host_bytes_max,
                            uint16_t *port_p)
{
    const char *colon = memrchr(text, ':', bytes);
    uint64_t port;
    if (colon == NULL ||
        !weft_ml_number_u64(colon + 1, bytes - (size_t)(colon + 1 - text), &port) || port == 0 ||
        port > UINT16_MAX) {
        return false;
    }
    size_t host_bytes = (size_t)(colon - text);
    if (host_bytes >= 2 && text[0] == '[' && text[host_bytes - 1] == ']') {
        text++;
        host_bytes -= 2;
    }
    if (host_bytes == 0 || host_bytes >= host_bytes_max) {
        return false;
    }
    memcpy(host_p, text, host_bytes);
    host_p[host_bytes] = '\0';
    *port_p = (uint16_t)port;
    return true;
}
