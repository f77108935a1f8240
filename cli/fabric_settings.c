/* Files of settings: one JSON object, numbers under the keys of a table. Keys missing in a file
 * have the values of `fixed` and `homogeneous`. */
#include "cli/fabric_settings.h"

#include "cli/options.h"
#include "cli/output.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 65536, KEYS_MAX = 16 };

/* A field is a uint64_t or a uint32_t: value x scale. */
struct key {
    const char *name;
    size_t offset;
    bool wide;
    double scale;
    double most; /* limits of the value in the file */
};

#define COMPUTE(field) offsetof(struct weft_fabric_compute, field)
#define NETWORK(field) offsetof(struct weft_fabric_network, field)

static const struct key compute_keys[] = {
    {"step_ms_min", COMPUTE(step_ns_min), true, 1e6, 3.6e6},
    {"step_ms_max", COMPUTE(step_ns_max), true, 1e6, 3.6e6},
    {"slow_steps", COMPUTE(slow_steps_ppm), false, 1e6, 1},
    {"slow_step_factor", COMPUTE(slow_step_factor_ppm), false, 1e6, WEFT_FABRIC_FACTOR_MAX},
    {"slow_workers", COMPUTE(slow_workers_ppm), false, 1e6, 1},
    {"slow_worker_factor", COMPUTE(slow_worker_factor_ppm), false, 1e6, WEFT_FABRIC_FACTOR_MAX},
    {0},
};

static const struct key network_keys[] = {
    {"rate_mbps", NETWORK(rate_bps), true, 1e6, 1e6},
    {"delay_us", NETWORK(delay_ns), true, 1e3, 1e6},
    {"slow_uplinks", NETWORK(slow_uplinks_ppm), false, 1e6, 1},
    {"slow_uplink_factor", NETWORK(slow_uplink_factor_ppm), false, 1e6, 1},
    {"contended_workers", NETWORK(contended_workers_ppm), false, 1e6, 1},
    {"contended_servers", NETWORK(contended_servers_ppm), false, 1e6, 1},
    {"outside", NETWORK(outside_ppm), false, 1e6, 1},
    {"outside_on_ms", NETWORK(outside_on_ns), true, 1e6, 3.6e6},
    {"outside_off_ms", NETWORK(outside_off_ns), true, 1e6, 3.6e6},
    {"rate_factor_min", NETWORK(rate_factor_ppm_min), false, 1e6, 1},
    {"rate_every_ms", NETWORK(rate_every_ns), true, 1e6, 3.6e6},
    {0},
};

struct reading {
    const char *path;
    char *error; /* WEFT_CLI_FABRIC_ERROR_BYTES */
};

[[gnu::format(printf, 2, 3)]] static bool wrong(const struct reading *reading, const char *format,
                                                ...)
{
    int used = snprintf(reading->error, WEFT_CLI_FABRIC_ERROR_BYTES, "%.200s: ", reading->path);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reading->error + used, WEFT_CLI_FABRIC_ERROR_BYTES - (size_t)used, format,
                    args);
    va_end(args);
    return false;
}

static bool unknown_key(const struct reading *reading, const char *name, const struct key *keys)
{
    const char *names[KEYS_MAX] = {"name"};
    for (uint32_t i = 0; keys[i].name != NULL; i++) {
        names[i + 1] = keys[i].name;
    }
    const char *closest = weft_options_closest(name, names);
    return closest != NULL
               ? wrong(reading, "unknown key \"%.64s\"; did you mean \"%s\"?", name, closest)
               : wrong(reading, "unknown key \"%.64s\"; docs/SIMULATOR.md lists the keys", name);
}

static bool take_number(const struct reading *reading, const cJSON *item, const struct key *key,
                        void *setting)
{
    double value = item->valuedouble;
    if (!cJSON_IsNumber(item)) {
        return wrong(reading, "\"%s\" is not a number", key->name);
    }
    if (!(value >= 0 && value <= key->most)) {
        return wrong(reading, "\"%s\" is %g; it must be from 0 to %g", key->name, value, key->most);
    }
    uint64_t scaled = (uint64_t)llround(value * key->scale);
    if (key->wide) {
        memcpy((char *)setting + key->offset, &scaled, sizeof(scaled));
    } else {
        uint32_t narrow = (uint32_t)scaled;
        memcpy((char *)setting + key->offset, &narrow, sizeof(narrow));
    }
    return true;
}

/* The name is printed, and quoted in a gnuplot script. */
static bool is_plain(const char *name)
{
    for (; *name != '\0'; name++) {
        unsigned char byte = (unsigned char)*name;
        if (byte < 0x20 || byte == 0x7f || strchr("'\"\\", byte) != NULL) {
            return false;
        }
    }
    return true;
}

static bool take_name(const struct reading *reading, const cJSON *item, char *name)
{
    if (!cJSON_IsString(item) || item->valuestring[0] == '\0' ||
        strlen(item->valuestring) >= WEFT_FABRIC_NAME_BYTES) {
        return wrong(reading, "\"name\" is not a string of 1 to %d bytes",
                     WEFT_FABRIC_NAME_BYTES - 1);
    }
    if (!is_plain(item->valuestring)) {
        return wrong(reading, "\"name\" has a quote, a backslash or a control character; "
                              "remove it");
    }
    strcpy(name, item->valuestring);
    return true;
}

static bool take_item(const struct reading *reading, const cJSON *root, const cJSON *item,
                      const struct key *keys, void *setting)
{
    if (cJSON_GetObjectItemCaseSensitive(root, item->string) != item) {
        return wrong(reading, "\"%.64s\" is a duplicate key", item->string);
    }
    if (strcmp(item->string, "name") == 0) {
        return take_name(reading, item, setting); /* the first field of both */
    }
    for (const struct key *key = keys; key->name != NULL; key++) {
        if (strcmp(key->name, item->string) == 0) {
            return take_number(reading, item, key, setting);
        }
    }
    return unknown_key(reading, item->string, keys);
}

static bool parse(const struct reading *reading, const char *text, const struct key *keys,
                  void *setting)
{
    const char *end = NULL;
    if (text[strspn(text, " \t\r\n")] == '\0') {
        return wrong(reading, "the file is empty; a JSON object is required");
    }
    cJSON *root = cJSON_ParseWithOpts(text, &end, true);
    if (root == NULL) {
        return wrong(reading, "not JSON, or truncated: byte %zu", (size_t)(end - text) + 1);
    }
    bool good = cJSON_IsObject(root) || wrong(reading, "a JSON object is required");
    for (const cJSON *item = root->child; good && item != NULL; item = item->next) {
        good = take_item(reading, root, item, keys, setting);
    }
    cJSON_Delete(root);
    return good;
}

static bool read_setting(const struct reading *reading, const char *built_in,
                         const struct key *keys, void *setting)
{
    char *text = NULL;
    size_t bytes = 0;
    if (weft_file_read(reading->path, FILE_BYTES_MAX, &text, &bytes) != WEFT_OK) {
        return wrong(reading, "not a built-in setting (%s), and not a readable file: %s", built_in,
                     strerror(errno));
    }
    bool good = strlen(text) == bytes ? parse(reading, text, keys, setting)
                                      : wrong(reading, "the file has a zero byte");
    free(text);
    return good;
}

bool weft_cli_fabric_compute(const char *name_or_file, struct weft_fabric_compute *compute_p,
                             char error_p[WEFT_CLI_FABRIC_ERROR_BYTES])
{
    static_assert(offsetof(struct weft_fabric_compute, name) == 0);
    const struct reading reading = {name_or_file, error_p};
    const struct weft_fabric_compute *built_in = weft_fabric_compute_find(name_or_file);
    if (built_in != NULL) {
        *compute_p = *built_in;
        return true;
    }
    weft_fabric_compute_default(compute_p);
    strcpy(compute_p->name, "of a file");
    if (!read_setting(&reading, "fixed, uniform, bimodal, slow-20, brief, CS1, CS2, CS3",
                      compute_keys, compute_p)) {
        return false;
    }
    const char *invalid = weft_fabric_compute_check(compute_p);
    return invalid == NULL || wrong(&reading, "%s", invalid);
}

bool weft_cli_fabric_network(const char *name_or_file, struct weft_fabric_network *network_p,
                             char error_p[WEFT_CLI_FABRIC_ERROR_BYTES])
{
    static_assert(offsetof(struct weft_fabric_network, name) == 0);
    const struct reading reading = {name_or_file, error_p};
    const struct weft_fabric_network *built_in = weft_fabric_network_find(name_or_file);
    if (built_in != NULL) {
        *network_p = *built_in;
        return true;
    }
    weft_fabric_network_default(network_p);
    strcpy(network_p->name, "of a file");
    if (!read_setting(&reading, "homogeneous, slow-uplinks, contended, varying, NS1, NS2, NS3",
                      network_keys, network_p)) {
        return false;
    }
    const char *invalid = weft_fabric_network_check(network_p);
    return invalid == NULL || wrong(&reading, "%s", invalid);
}
