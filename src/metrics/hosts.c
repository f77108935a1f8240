#include "metrics/hosts.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { NAME_BYTES = 256 }; /* in DNS 253, and a dot */

/* An address as 16 bytes, IPv4 as ::ffff:a.b.c.d. */
static bool address_of(const char *text, struct in6_addr *address_p)
{
    struct in_addr v4;
    if (inet_pton(AF_INET, text, &v4) != 1) {
        return inet_pton(AF_INET6, text, address_p) == 1;
    }
    memset(address_p, 0, sizeof(*address_p));
    memset(address_p->s6_addr + 10, 0xff, 2);
    memcpy(address_p->s6_addr + 12, &v4, sizeof(v4));
    return true;
}

static bool is_loopback(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LOOPBACK(address) ||
           (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}

static bool is_any(const struct in6_addr *address)
{
    static const uint8_t zeros[4];
    return IN6_IS_ADDR_UNSPECIFIED(address) ||
           (IN6_IS_ADDR_V4MAPPED(address) && memcmp(address->s6_addr + 12, zeros, 4) == 0);
}

/* True for the same name, or the same address in any notation. */
static bool same(const char *a, const char *b)
{
    struct in6_addr x, y;
    return strcasecmp(a, b) == 0 ||
           (address_of(a, &x) && address_of(b, &y) && memcmp(&x, &y, sizeof(x)) == 0);
}

/* Extract the name from "name", "name:port", "1.2.3.4:port", "[v6]:port" or a bare v6, without
 * the port, the brackets and a final dot. False: it is none of these. */
static bool name_of(const char *text, size_t bytes, char name_p[NAME_BYTES])
{
    const char *end = text + bytes;
    const char *colon = memchr(text, ':', bytes);
    const char *port = colon;
    if (bytes > 0 && text[0] == '[') {
        const char *close = memchr(text, ']', bytes);
        if (close == NULL) {
            return false;
        }
        text++;
        port = close + 1;
        bytes = (size_t)(close - text);
    } else if (colon != NULL && memchr(colon + 1, ':', (size_t)(end - colon - 1)) != NULL) {
        port = end; /* a bare IPv6 address */
    } else if (colon != NULL) {
        bytes = (size_t)(colon - text);
    } else {
        port = end;
    }
    bool good =
        port == end || (*port == ':' && strspn(port + 1, "0123456789") >= (size_t)(end - port - 1));
    bytes -= bytes > 1 && text[bytes - 1] == '.';
    if (!good || bytes == 0 || bytes >= NAME_BYTES) {
        return false;
    }
    memcpy(name_p, text, bytes);
    name_p[bytes] = '\0';
    return true;
}

bool weft_metrics_hosts_valid(const char *list)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-._:[],";
    char name[NAME_BYTES];
    size_t bytes = strlen(list);
    if (bytes >= WEFT_METRICS_HOSTS_BYTES || strspn(list, allowed) != bytes) {
        return false;
    }
    for (const char *at = list; bytes > 0;) {
        size_t one = strcspn(at, ",");
        if (!name_of(at, one, name)) {
            return false;
        }
        if (at[one] == '\0') {
            break;
        }
        at += one + 1;
    }
    return true;
}

static bool in_list(const char *list, const char *name)
{
    char one[NAME_BYTES];
    for (const char *at = list; *at != '\0';) {
        size_t bytes = strcspn(at, ",");
        if (name_of(at, bytes, one) && same(one, name)) {
            return true;
        }
        at += bytes + (at[bytes] == ',');
    }
    return false;
}

bool weft_metrics_hosts_allow(const struct weft_metrics_hosts *hosts, const char *header,
                              const char *local)
{
    struct in6_addr address;
    char name[NAME_BYTES];
    if (header == NULL) {
        return true;
    }
    if (!name_of(header, strlen(header), name)) {
        return false;
    }
    if (!address_of(name, &address)) {
        return strcasecmp(name, "localhost") == 0 || same(name, hosts->bound) ||
               in_list(hosts->list, name);
    }
    /* 0.0.0.0 is never allowed: it reaches this machine, and a page of any site can use it. */
    return !is_any(&address) && (is_loopback(&address) || same(name, local) ||
                                 same(name, hosts->bound) || in_list(hosts->list, name));
}
