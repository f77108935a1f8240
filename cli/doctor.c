/* `weft doctor`: checks what this host provides for weft; prints a table or JSON. */
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "node/security.h"

#include "io/doctor.h"
#include "lab/aggregate.h"

static bool print_json(const struct weft_doctor *doctor, bool ok)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddBoolToObject(object, "ok", ok);
    cJSON *facts = cJSON_AddArrayToObject(object, "facts");
    for (uint32_t i = 0; i < doctor->count; i++) {
        const struct weft_fact *fact = &doctor->facts[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", fact->name);
        cJSON_AddStringToObject(item, "value", fact->value);
        cJSON_AddStringToObject(item, "state", weft_fact_state_name(fact->state));
        cJSON_AddStringToObject(item, "advice", fact->advice);
        cJSON_AddItemToArray(facts, item);
    }
    return weft_output_json("doctor", object, true);
}

static void print_table(const struct weft_doctor *doctor)
{
    static const char *const marks[] = {
        [WEFT_FACT_OK] = "ok", [WEFT_FACT_WARN] = "warn", [WEFT_FACT_MISSING] = "MISSING"};
    uint32_t warnings = 0;
    uint32_t missing = 0;
    for (uint32_t i = 0; i < doctor->count; i++) {
        const struct weft_fact *fact = &doctor->facts[i];
        printf("%-8s %-28s %s\n", marks[fact->state], fact->name, fact->value);
        if (fact->advice[0] != '\0') {
            printf("%-8s   -> %s\n", "", fact->advice);
        }
        warnings += fact->state == WEFT_FACT_WARN;
        missing += fact->state == WEFT_FACT_MISSING;
    }
    printf("\n%u facts, %u warnings, %u missing: ", doctor->count, warnings, missing);
    puts(missing > 0    ? "weft does not work here with these options"
         : warnings > 0 ? "weft works here; see the warnings for possible speedups"
                        : "weft works here");
}

/* Cryptography, and the key if --key-file is given. */
static void add_security(struct weft_doctor *doctor, const char *key_file)
{
    struct weft_provider *provider = NULL;
    weft_status status = weft_provider_new(1, &provider);
    bool works = status == WEFT_OK;
    weft_doctor_add(doctor, "libcrypto", works ? WEFT_FACT_OK : WEFT_FACT_MISSING,
                    "weft needs AES-GCM, X25519 and HMAC-SHA256 of OpenSSL 3; check its "
                    "configuration (openssl version -d)",
                    "%s", works ? "works" : "lacks an algorithm that weft needs");
    if (works) {
        const struct weft_provider_aead aead = weft_provider_aead(provider);
        weft_doctor_add(doctor, "aes_gcm", aead.advice[0] == '\0' ? WEFT_FACT_OK : WEFT_FACT_WARN,
                        aead.advice, "%s", aead.text);
    }
    weft_provider_free(provider);
    if (key_file == NULL) {
        return;
    }
    struct weft_error error = {.text = ""};
    struct weft_job_key *key = NULL;
    char value[64] = "unusable";
    char fingerprint[WEFT_JOB_KEY_FINGERPRINT_BYTES];
    status = weft_job_key_read(key_file, &key, &error);
    if (status == WEFT_OK && weft_job_key_fingerprint(key, fingerprint) == WEFT_OK) {
        snprintf(value, sizeof(value), "fingerprint %s", fingerprint);
    }
    weft_job_key_free(key);
    weft_doctor_add(doctor, "job_key", status == WEFT_OK ? WEFT_FACT_OK : WEFT_FACT_MISSING,
                    error.text, "%s", value);
}

/* Optional: without XDP, a host process aggregates. */
static void add_xdp(struct weft_doctor *doctor)
{
    struct weft_error error = {.text = ""};
    bool works = weft_aggregate_probe(&error) == WEFT_OK;
    weft_doctor_add(doctor, "xdp_aggregation", works ? WEFT_FACT_OK : WEFT_FACT_WARN, error.text,
                    "%s",
                    works ? "loads and aggregates; native mode depends on the interface" : "no");
}

int weft_cli_doctor(int argc, char **argv)
{
    uint32_t port = 0;
    const char *key_file = NULL;
    bool json = false;
    const struct weft_option options[] = {
        {"key-file", "FILE", "also check this job key and show its fingerprint",
         WEFT_OPTION_STRING, .value = &key_file, .fallback = ""},
        {"port", "P", "also check that UDP port P is free on 127.0.0.1; 0 = no check",
         WEFT_OPTION_U32, .value = &port, .max = UINT16_MAX},
        {"json", NULL, "print the results as one JSON object", WEFT_OPTION_FLAG, .value = &json},
        {0},
    };
    const struct weft_command command = {
        .name = "doctor",
        .summary = "check this host's socket buffers, offloads, MTU and ports",
        .description =
          "Tests the features that weft uses (socket buffers, GSO and GRO, timestamps, ECN, MTU,\n"
          "ports, and the XDP program for aggregation, which needs root) and prints a remedy for\n"
          "each problem. It changes nothing and sends nothing beyond loopback. Exit status 1 if a\n"
          "required feature is missing.",
        .example = "  weft doctor --port 7700 --key-file job.key",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    struct weft_doctor doctor;
    weft_doctor_run((uint16_t)port, &doctor);
    add_security(&doctor, key_file);
    add_xdp(&doctor);
    bool ok = true;
    for (uint32_t i = 0; i < doctor.count; i++) {
        ok = ok && doctor.facts[i].state != WEFT_FACT_MISSING;
    }
    if (json) {
        ok = print_json(&doctor, ok) && ok;
    } else {
        print_table(&doctor);
    }
    return ok ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}
