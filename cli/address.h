/* "host:port" as it stands in lists of servers; an IPv6 host stands in brackets. */
#ifndef WEFT_CLI_ADDRESS_H
#define WEFT_CLI_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the first `bytes` of text. False: not of that form, port 0, or a host too long for host_p. */
bool weft_cli_address_parse(const char *text, size_t bytes, char *host_p, size_t host_bytes_max,
                            uint16_t *port_p);

#endif
