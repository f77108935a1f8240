#include "cli/train/hosts.h"

#include "base/units.h"

#include <stdio.h>

weft_status weft_train_hosts_find(struct weft_train_hosts *hosts, uint32_t servers,
                                  uint32_t workers, struct weft_error *error)
{
    if (hosts->lab == NULL) {
        return WEFT_OK;
    }
    weft_status status = weft_lab_find(hosts->lab, &hosts->info, error);
    if (status == WEFT_OK && hosts->info.hosts < 2) {
        return weft_fail(
            error, WEFT_INVALID,
            "lab %s has only one host, so servers and workers would not use the network; run `weft "
            "lab up` with --hosts %u (one host per process), or at least 2",
            hosts->lab, servers + workers);
    }
    return status;
}

void weft_train_hosts_address(const struct weft_train_hosts *hosts, uint32_t server,
                              char out[WEFT_LAB_ADDRESS_BYTES])
{
    if (hosts->lab != NULL) {
        weft_lab_address(&hosts->info, server % hosts->info.hosts, out);
    } else {
        snprintf(out, WEFT_LAB_ADDRESS_BYTES, "127.0.0.1");
    }
}

pid_t weft_train_hosts_fork(void *hosts, uint32_t process, struct weft_error *error_p)
{
    const struct weft_lab_info *info = &((const struct weft_train_hosts *)hosts)->info;
    pid_t pid;
    return weft_lab_fork(info, process % info->hosts, &pid, error_p) == WEFT_OK ? pid : -1;
}

cJSON *weft_train_hosts_report(const struct weft_train_hosts *hosts)
{
    const struct weft_lab_info *info = &hosts->info;
    if (hosts->lab == NULL) {
        return cJSON_CreateNull();
    }
    cJSON *lab = cJSON_CreateObject();
    cJSON_AddStringToObject(lab, "name", hosts->lab);
    cJSON_AddStringToObject(lab, "lab_settings", info->settings);
    cJSON_AddStringToObject(lab, "topology", info->topology);
    cJSON_AddNumberToObject(lab, "hosts", info->hosts);
    cJSON_AddNumberToObject(lab, "rate_bps", (double)info->rate_bps);
    cJSON_AddNumberToObject(lab, "buffer", (double)info->buffer_bytes);
    cJSON_AddNumberToObject(lab, "loss", (double)info->loss_ppm / WEFT_PPM);
    cJSON_AddNumberToObject(lab, "ecn", info->ecn_bytes);
    cJSON_AddBoolToObject(lab, "htb_hysteresis", info->hysteresis);
    cJSON_AddBoolToObject(lab, "offload", info->offload);
    cJSON_AddNumberToObject(lab, "base_rtt_ms", (double)info->base_rtt_ns / WEFT_NS_PER_MS);
    return lab;
}
