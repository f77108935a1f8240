/* The syntax of a transport: NAME[:PART]..., where a part is
 *
 *     0.1            weft, tcp: the bound
 *     none auth seal weft, tcp: security, when not that of --security
 *     rto5           tcp, tcp-raw: minimum retransmission timeout, in ms
 *     drop0.1        tcp-raw: the fraction that the sender omits
 *     anything else  the congestion control
 */
#include "cli/node_options.h"
#include "cli/perf/compare.h"
#include "core/cc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *weft_compare_list_cut(const char *text, void *list)
{
    struct weft_compare_list *list_p = list;
    *list_p = (struct weft_compare_list){0};
    if (strlen(text) >= sizeof(list_p->room)) {
        return "a shorter list";
    }
    strcpy(list_p->room, text);
    char *rest = list_p->room;
    while (rest != NULL) {
        if (list_p->count == WEFT_COMPARE_LIST_MAX) {
            return "a list of at most 24";
        }
        char *item = strsep(&rest, ",");
        if (item[0] == '\0') {
            return "a list with commas, such as 0,0.01";
        }
        list_p->items[list_p->count++] = item;
    }
    return NULL;
}

const char *weft_compare_check_numbers(const struct weft_compare_list *list, double least,
                                       double most, uint32_t multiple_of)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const char *item = list->items[i];
        char *end;
        double value = strtod(item, &end);
        bool whole = item[strspn(item, "0123456789")] == '\0';
        if (end == item || *end != '\0' || !(value >= least && value <= most) ||
            (multiple_of > 0 && (!whole || strtoul(item, NULL, 10) % multiple_of != 0))) {
            return item;
        }
    }
    return NULL;
}

static void add(struct weft_compare_transport *transport, const char *option, const char *value)
{
    (void)snprintf(transport->words[transport->word_count++], sizeof(transport->words[0]), "%s",
                   option);
    (void)snprintf(transport->words[transport->word_count++], sizeof(transport->words[0]), "%s",
                   value);
}

static bool is_fraction(const char *text, double *value_p)
{
    char *end;
    *value_p = strtod(text, &end);
    return end != text && *end == '\0' && *value_p >= 0 && *value_p < 1;
}

/* Parse one part. False: it is not valid for this transport. */
static bool parse_part(struct weft_compare_transport *p, const char *part, bool raw)
{
    double value;
    uint8_t mode;
    if (is_fraction(part, &value)) {
        add(p, "--bound", part);
        return !raw;
    }
    if (weft_security_parse_mode(part, &mode) == NULL) {
        add(p, "--security", part);
        return !raw;
    }
    if (strncmp(part, "rto", 3) == 0) {
        char number[8] = "";
        (void)sscanf(part + 3, "%7[0-9]", number);
        add(p, "--tcp-rto-min", number);
        return p->is_tcp && number[0] != '\0' &&
               (part[3 + strlen(number)] == '\0' || strcmp(part + 3 + strlen(number), "ms") == 0);
    }
    if (strncmp(part, "drop", 4) == 0) {
        add(p, "--drop-at-sender", part + 4);
        return raw && p->is_tcp && is_fraction(part + 4, &value);
    }
    add(p, p->is_weft ? "--cc" : "--tcp-cc", part);
    return strlen(part) < sizeof(p->words[0]) &&
           (p->is_weft ? weft_cc_find(part) != NULL : p->is_tcp && part[0] != '\0');
}

bool weft_compare_transport_parse(const char *text, struct weft_compare_transport *p)
{
    char room[96];
    if (strlen(text) >= sizeof(room)) {
        return false;
    }
    strcpy(room, text);
    char *rest = room;
    const char *name = strsep(&rest, ":");
    *p = (struct weft_compare_transport){.name = text};
    p->is_weft = strcmp(name, "weft") == 0;
    p->is_tcp = strcmp(name, "tcp") == 0 || strcmp(name, "tcp-raw") == 0;
    bool raw = strcmp(name, "tcp-raw") == 0 || strcmp(name, "udp-raw") == 0;
    if (!p->is_weft && !p->is_tcp && !raw) {
        return false;
    }
    p->secure = !raw;
    add(p, "--transport", name);
    while (rest != NULL) {
        const char *part = strsep(&rest, ":");
        if (p->word_count + 2 > WEFT_ARRAY_COUNT(p->words) || !parse_part(p, part, raw)) {
            return false;
        }
    }
    return true;
}
