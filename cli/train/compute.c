#include "cli/train/compute.h"

#include "cli/output.h"

int weft_compute_settle(const struct weft_command *command, struct weft_compute *compute)
{
    char error[WEFT_CLI_FABRIC_ERROR_BYTES];
    if (compute->given == NULL) {
        return compute->scale == 0.0F
                   ? WEFT_OPTIONS_RUN
                   : weft_options_usage(command, "--compute-scale requires --compute");
    }
    if (compute->scale > WEFT_COMPUTE_SCALE_MAX) {
        return weft_options_usage(command,
                                  "--compute-scale %g is not allowed; it must be at most %d",
                                  (double)compute->scale, (int)WEFT_COMPUTE_SCALE_MAX);
    }
    compute->scale = compute->scale > 0.0F ? compute->scale : 1.0F;
    return weft_cli_fabric_compute(compute->given, &compute->setting, error)
               ? WEFT_OPTIONS_RUN
               : weft_options_usage(command, "--compute: %s", error);
}

void weft_compute_add(const struct weft_compute *compute, struct weft_args *args)
{
    if (compute->given != NULL) {
        weft_args_add(args, "--compute=%s", compute->given);
        weft_args_add(args, "--compute-scale=%.9g", (double)compute->scale);
    }
}

uint64_t weft_compute_step_ns(const struct weft_compute *compute, uint64_t seed, uint32_t rank,
                              uint32_t workers, uint32_t step)
{
    if (compute->given == NULL) {
        return 0;
    }
    const struct weft_fabric_compute *setting = &compute->setting;
    bool is_slow = weft_fabric_worker_is_slow(setting, seed, rank, workers);
    uint64_t ns = weft_fabric_worker_step_ns(setting, seed, rank, is_slow, step);
    return (uint64_t)((double)ns * (double)compute->scale);
}

cJSON *weft_compute_report(const struct weft_compute *compute, double waited_s)
{
    if (compute->given == NULL) {
        return cJSON_CreateNull();
    }
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "setting", compute->setting.name);
    weft_json_add_float(object, "scale", compute->scale);
    cJSON_AddNumberToObject(object, "waited_s", waited_s);
    return object;
}
