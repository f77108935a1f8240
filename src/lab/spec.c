#include "lab/spec.h"

#include "base/prng.h"
#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t rate_bps_min = 8000;
static const uint64_t rate_bps_max = UINT64_C(100000000000);
static const uint64_t bytes_max = UINT64_C(1) << 30;

bool weft_lab_name_ok(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
    size_t bytes = strlen(name);
    return bytes > 0 && bytes < WEFT_LAB_NAME_BYTES && name[0] != '-' &&
           strspn(name, letters) == bytes;
}

struct unit {
    const char *name;
    double factor;
};

/* Parse a decimal number followed by one of the units (the list ends with a NULL name); false
 * for anything else. */
static bool parse_united(const char *text, const struct unit *units, double *value_p)
{
    if ((text[0] < '0' || text[0] > '9') || strchr(text, 'x') != NULL) {
        return false;
    }
    char *end = NULL;
    double value = strtod(text, &end);
    for (const struct unit *unit = units; unit->name != NULL; unit++) {
        if (strcmp(end, unit->name) == 0) {
            *value_p = value * unit->factor;
            return isfinite(*value_p);
        }
    }
    return false;
}

bool weft_lab_parse_rate(const char *text, uint64_t *rate_bps_p)
{
    static const struct unit units[] = {
        {"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {NULL, 0}};
    double value;
    if (!parse_united(text, units, &value) || value < (double)rate_bps_min ||
        value > (double)rate_bps_max) {
        return false;
    }
    *rate_bps_p = (uint64_t)llround(value);
    return true;
}

bool weft_lab_parse_bytes(const char *text, uint64_t *bytes_p)
{
    static const struct unit units[] = {{"", 1},     {"b", 1},         {"k", 1024},
                                        {"kb", 1024}, {"m", 1024 * 1024}, {"mb", 1024 * 1024},
                                        {NULL, 0}};
    double value;
    if (!parse_united(text, units, &value) || value > (double)bytes_max) {
        return false;
    }
    *bytes_p = (uint64_t)llround(value);
    return true;
}

bool weft_lab_parse_host(const char *text, uint32_t hosts, uint32_t *host_p)
{
    text += text[0] == 'h';
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 3 || text[digits] != '\0') {
        return false;
    }
    unsigned long host = strtoul(text, NULL, 10);
    if (host >= hosts) {
        return false;
    }
    *host_p = (uint32_t)host;
    return true;
}

void weft_lab_spec_links(struct weft_lab_spec *spec)
{
    for (uint32_t h = 0; h < WEFT_LAB_HOSTS_MAX; h++) {
        spec->links[h] = (struct weft_lab_link){spec->rate_bps, spec->rate_bps};
    }
}

const char *weft_lab_topology(const struct weft_lab_spec *spec)
{
    return spec->spines == 0 ? "star" : "spine-leaf";
}

void weft_lab_host_name(uint32_t host, char out[WEFT_LAB_NODE_BYTES])
{
    snprintf(out, WEFT_LAB_NODE_BYTES, "h%u", (uint16_t)host);
}

void weft_lab_router_name(const struct weft_lab_spec *spec, uint32_t router,
                          char out[WEFT_LAB_NODE_BYTES])
{
    if (spec->spines == 0) {
        snprintf(out, WEFT_LAB_NODE_BYTES, "switch");
    } else if (router < spec->leaves) {
        snprintf(out, WEFT_LAB_NODE_BYTES, "leaf%u", (uint16_t)router);
    } else {
        snprintf(out, WEFT_LAB_NODE_BYTES, "spine%u", (uint16_t)(router - spec->leaves));
    }
}

static void add_links(cJSON *object, const struct weft_lab_spec *spec)
{
    cJSON *links = cJSON_AddArrayToObject(object, "links_that_differ");
    for (uint32_t h = 0; h < spec->hosts; h++) {
        const struct weft_lab_link *link = &spec->links[h];
        if (link->up_bps != spec->rate_bps || link->down_bps != spec->rate_bps) {
            cJSON *item = cJSON_CreateObject();
            cJSON_AddNumberToObject(item, "host", h);
            cJSON_AddNumberToObject(item, "up_bps", (double)link->up_bps);
            cJSON_AddNumberToObject(item, "down_bps", (double)link->down_bps);
            cJSON_AddItemToArray(links, item);
        }
    }
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) {
        hash = weft_mix64(hash ^ (uint8_t)*text);
    }
    return hash;
}

void weft_lab_spec_settings(const struct weft_lab_spec *spec, char out[WEFT_LAB_SETTINGS_BYTES])
{
    const uint64_t numbers[] = {
        spec->hosts,       spec->leaves,   spec->spines,
        spec->rate_bps,    spec->core_bps, spec->buffer_bytes,
        spec->loss_ppm,    spec->burst_ppm, (uint64_t)llround(spec->burst_packets * 1e6),
        spec->ecn_bytes,   spec->offload,  spec->has_boxes,
        spec->trace_hash,
    };
    uint64_t hash = mix_text(0, spec->background);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(numbers); i++) {
        hash = weft_mix64(hash ^ weft_mix64(numbers[i] + i));
    }
    for (uint32_t h = 0; h < spec->hosts; h++) {
        hash = weft_mix64(hash ^ weft_mix64(spec->links[h].up_bps));
        hash = weft_mix64(hash ^ weft_mix64(spec->links[h].down_bps + 1));
    }
    snprintf(out, WEFT_LAB_SETTINGS_BYTES, "%016" PRIx64, hash);
}

cJSON *weft_lab_spec_json(const struct weft_lab_spec *spec)
{
    char settings[WEFT_LAB_SETTINGS_BYTES];
    cJSON *object = cJSON_CreateObject();
    weft_lab_spec_settings(spec, settings);
    cJSON_AddStringToObject(object, "name", spec->name);
    cJSON_AddStringToObject(object, "topology", weft_lab_topology(spec));
    cJSON_AddNumberToObject(object, "hosts", spec->hosts);
    cJSON_AddNumberToObject(object, "leaves", spec->leaves);
    cJSON_AddNumberToObject(object, "spines", spec->spines);
    cJSON_AddNumberToObject(object, "rate_bps", (double)spec->rate_bps);
    if (spec->spines > 0) {
        cJSON_AddNumberToObject(object, "core_bps", (double)spec->core_bps);
    }
    cJSON_AddNumberToObject(object, "buffer_bytes", (double)spec->buffer_bytes);
    cJSON_AddNumberToObject(object, "loss_ppm", spec->loss_ppm);
    add_links(object, spec);
    cJSON_AddStringToObject(object, "trace", spec->trace);
    cJSON_AddStringToObject(object, "settings", settings);
    cJSON_AddNumberToObject(object, "burst_ppm", spec->burst_ppm);
    cJSON_AddNumberToObject(object, "burst_packets", spec->burst_packets);
    cJSON_AddNumberToObject(object, "ecn_bytes", spec->ecn_bytes);
    cJSON_AddBoolToObject(object, "offload", spec->offload);
    cJSON_AddStringToObject(object, "aggregate", spec->has_boxes ? "xdp" : "");
    cJSON_AddStringToObject(object, "background", spec->background);
    return object;
}
