#include "cli/train/hosts.h"

#include "base/units.h"

#include <stdio.h>

weft_status weft_train_place_find(struct weft_train_place *place, uint32_t servers,
                                  uint32_t workers, struct weft_lab_error *error)
{
    place->servers = servers;
    if (place->lab == NULL) {
        return WEFT_OK;
    }
    weft_status status = weft_lab_find(place->lab, &place->info, error);
    if (status == WEFT_OK && place->info.hosts < 2) {
        snprintf(error->text, sizeof(error->text),
                 "lab %s has one host, and servers and workers on it would not use the network: "
                 "bring one up with --hosts %u, a host for each process, or with 2 at least",
                 place->lab, servers + workers);
        return WEFT_INVALID;
    }
    return status;
}

void weft_train_place_address(const struct weft_train_place *place, uint32_t server,
                              char out[WEFT_LAB_ADDRESS_BYTES])
{
    if (place->lab != NULL) {
        weft_lab_address(&place->info, server % place->info.hosts, out);
    } else {
        snprintf(out, WEFT_LAB_ADDRESS_BYTES, "127.0.0.1");
    }
}

static void put(const struct weft_train_place *place, uint32_t process,
                struct weft_arguments *arguments)
{
    if (place->lab != NULL) {
        arguments->lab = &place->info;
        arguments->host = process % place->info.hosts;
    }
}

void weft_train_place_server(const struct weft_train_place *place, uint32_t server,
                             struct weft_arguments *arguments)
{
    char address[WEFT_LAB_ADDRESS_BYTES];
    weft_train_place_address(place, server, address);
    weft_arguments_add(arguments, "--host=%s", address);
    put(place, server, arguments);
}

void weft_train_place_worker(const struct weft_train_place *place, uint32_t worker,
                             struct weft_arguments *arguments)
{
    put(place, place->servers + worker, arguments);
}

cJSON *weft_train_place_report(const struct weft_train_place *place)
{
    const struct weft_lab_info *info = &place->info;
    if (place->lab == NULL) {
        return cJSON_CreateNull();
    }
    cJSON *lab = cJSON_CreateObject();
    cJSON_AddStringToObject(lab, "name", place->lab);
    cJSON_AddStringToObject(lab, "topology", info->topology);
    cJSON_AddNumberToObject(lab, "hosts", info->hosts);
    cJSON_AddNumberToObject(lab, "rate_bps", (double)info->rate_bps);
    cJSON_AddNumberToObject(lab, "buffer", (double)info->buffer_bytes);
    cJSON_AddNumberToObject(lab, "loss", (double)info->loss_ppm / WEFT_PPM);
    cJSON_AddNumberToObject(lab, "ecn", info->ecn_bytes);
    cJSON_AddBoolToObject(lab, "htb_hysteresis", info->hysteresis);
    cJSON_AddNumberToObject(lab, "base_rtt_ms", (double)info->base_rtt_ns / WEFT_NS_PER_MS);
    return lab;
}
