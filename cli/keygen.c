/* `weft keygen`: creates a job key, or prints the fingerprint of an existing one. */
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "crypto/job_key.h"

static bool print_json(const char *path, const char *fingerprint)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "path", path);
    cJSON_AddStringToObject(object, "fingerprint", fingerprint);
    return weft_output_json("keygen", object, true);
}

/* A truncated result must not look like success: check standard output. */
static bool print_text(const char *path, const char *fingerprint, bool made)
{
    printf("%s: key %s\n", path, fingerprint);
    if (made) {
        printf("copy it to every host of the job over a secure channel (scp), and give it to weft "
               "with\n"
               "--key-file; `weft keygen --check FILE` must print the same 8 digits there\n");
    }
    return weft_output_close("keygen", NULL, stdout, true);
}

static weft_status make(const char *path, struct weft_job_key **key_p, struct weft_error *error)
{
    struct weft_job_key *key = NULL;
    weft_status status = weft_job_key_random(&key, error);
    if (status == WEFT_OK) {
        status = weft_job_key_write(key, path, error);
    }
    if (status != WEFT_OK) {
        weft_job_key_free(key);
        return status;
    }
    *key_p = key;
    return WEFT_OK;
}

static int keygen(const char *path, bool check, bool json)
{
    struct weft_error error = {.text = ""};
    struct weft_job_key *key = NULL;
    char fingerprint[WEFT_JOB_KEY_FINGERPRINT_BYTES];
    weft_status status = check ? weft_job_key_read(path, &key, &error) : make(path, &key, &error);
    if (status != WEFT_OK) {
        return weft_cli_fail("keygen", "%s", error.text);
    }
    status = weft_job_key_fingerprint(key, fingerprint);
    weft_job_key_free(key);
    if (status != WEFT_OK) {
        return weft_cli_fail("keygen", "cannot compute the fingerprint: %s",
                             weft_status_text(status));
    }
    bool good = json ? print_json(path, fingerprint) : print_text(path, fingerprint, !check);
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_keygen(int argc, char **argv)
{
    const char *path = NULL;
    bool check = false;
    bool json = false;
    const struct weft_option options[] = {
        {"check", NULL, "create nothing; print the fingerprint of the key in FILE",
         WEFT_OPTION_FLAG,
         .value = &check},
        {"json", NULL, "print path and fingerprint as one JSON object", WEFT_OPTION_FLAG,
         .value = &json},
        {0},
    };
    const struct weft_command command = {
        .name = "keygen",
        .summary = "create the secret key that the processes of a job share",
        .arguments = "FILE",
        .operand = &path,
        .without = "FILE is missing",
        .description =
            "Creates FILE, readable by its owner only, with 64 random hexadecimal digits; an "
            "existing\n"
            "file is never overwritten. Any process with the key can join the job. The 8 digits\n"
            "printed are a fingerprint and not secret: two hosts with the same fingerprint have "
            "the\n"
            "same key.",
        .example = "  weft keygen job.key\n"
                   "  weft keygen --check job.key",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    return status == WEFT_OPTIONS_RUN ? keygen(path, check, json) : status;
}
