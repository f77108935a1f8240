#include "cli/output.h"

#include "base/utf8.h"
#include "file/target.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHELL_DESCRIPTOR_MAX = 9 }; /* the last that each shell can redirect */

static void say(void *verb, enum weft_node_level level, const char *text)
{
    (void)level;
    if (verb != NULL) {
        fprintf(stderr, "weft %s: %s\n", (const char *)verb, text);
    } else {
        fprintf(stderr, "weft: %s\n", text);
    }
}

static void say_warning(void *verb, enum weft_node_level level, const char *text)
{
    if (level == WEFT_NODE_WARNING) {
        say(verb, level, text);
    }
}

struct weft_node_log weft_output_log(const char *verb, bool warnings_only)
{
    return (struct weft_node_log){.say = warnings_only ? say_warning : say,
                                  .arg = (void *)(uintptr_t)verb};
}

bool weft_output_json(const char *verb, cJSON *object, bool pretty)
{
    char *text = NULL;
    if (object != NULL) {
        text = pretty ? cJSON_Print(object) : cJSON_PrintUnformatted(object);
    }
    cJSON_Delete(object);
    if (text == NULL) {
        fprintf(stderr, "weft %s: out of memory\n", verb);
        return false;
    }
    weft_utf8_repair(text);
    bool good = puts(text) >= 0 && fflush(stdout) == 0;
    if (!good) {
        fprintf(stderr, "weft %s: standard output: %s\n", verb, strerror(errno));
    }
    cJSON_free(text);
    return good;
}

void weft_json_add_known(cJSON *object, const char *key, double value, bool known)
{
    cJSON_AddItemToObject(object, key, known ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

void weft_json_add_float(cJSON *object, const char *key, float value)
{
    char text[32];
    snprintf(text, sizeof(text), "%.7g", (double)value);
    cJSON_AddRawToObject(object, key, text);
}

void weft_json_add_text(cJSON *object, const char *key, const char *text)
{
    cJSON_AddItemToObject(object, key,
                          text != NULL ? cJSON_CreateString(text) : cJSON_CreateNull());
}

bool weft_json_number_at(const cJSON *object, const char *path, double *value_p)
{
    for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        char key[64];
        (void)snprintf(key, sizeof(key), "%.*s", (int)(dot - path), path);
        object = cJSON_GetObjectItemCaseSensitive(object, key);
    }
    object = cJSON_GetObjectItemCaseSensitive(object, path);
    if (!cJSON_IsNumber(object)) {
        return false;
    }
    *value_p = object->valuedouble;
    return true;
}

double weft_times_mean(const struct weft_hist *hist)
{
    return hist->count > 0 ? (double)hist->sum / (double)hist->count : 0.0;
}

cJSON *weft_json_add_times(cJSON *object, const char *key, const struct weft_hist *hist,
                           unsigned which, double unit_ns)
{
    static const struct {
        unsigned which;
        const char *key;
        uint32_t ppm;
    } quantiles[] = {
        {WEFT_TIMES_P50, "p50", 500000},
        {WEFT_TIMES_P90, "p90", 900000},
        {WEFT_TIMES_P99, "p99", 990000},
    };
    cJSON *times = cJSON_AddObjectToObject(object, key);
    if (which & WEFT_TIMES_COUNT) {
        cJSON_AddNumberToObject(times, "count", (double)hist->count);
    }
    if (which & WEFT_TIMES_MEAN) {
        cJSON_AddNumberToObject(times, "mean", weft_times_mean(hist) / unit_ns);
    }
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(quantiles); i++) {
        if (which & quantiles[i].which) {
            cJSON_AddNumberToObject(times, quantiles[i].key,
                                    (double)weft_hist_quantile(hist, quantiles[i].ppm) / unit_ns);
        }
    }
    if (which & WEFT_TIMES_MAX) {
        cJSON_AddNumberToObject(times, "max", (double)hist->max / unit_ns);
    }
    return times;
}

weft_status weft_file_read(const char *path, size_t bytes_max, char **text_p, size_t *bytes_p)
{
    FILE *file = fopen(path, "rbe");
    size_t room = 0, bytes = 0, got = 1;
    char *text = NULL;
    while (file != NULL && got > 0 && bytes <= bytes_max) {
        if (bytes + 1 >= room) {
            room = room == 0 ? 65536 : 2 * room;
            char *more = realloc(text, room);
            if (more == NULL) {
                free(text);
                (void)fclose(file);
                errno = ENOMEM;
                return WEFT_NOMEM;
            }
            text = more;
        }
        got = fread(text + bytes, 1, room - bytes - 1, file);
        bytes += got;
    }
    int why = file == NULL || ferror(file) ? errno : bytes > bytes_max ? EFBIG : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (why != 0) {
        free(text);
        errno = why;
        return WEFT_IO;
    }
    text[bytes] = '\0';
    *text_p = text;
    *bytes_p = bytes;
    return WEFT_OK;
}

int weft_output_given(const char *path)
{
    struct stat about, given;
    for (int fd = 1; stat(path, &about) == 0 && fd <= SHELL_DESCRIPTOR_MAX; fd++) {
        if (fstat(fd, &given) == 0 && given.st_dev == about.st_dev &&
            given.st_ino == about.st_ino && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY) {
            return fd;
        }
    }
    return -1;
}

static weft_status check_replaceable(const char *path, struct weft_error *error)
{
    return path == NULL || weft_output_given(path) < 0
               ? WEFT_OK
               : weft_fail(error, WEFT_IO,
                           "cannot write %.400s: this process has it open, as its standard output "
                           "for instance; name another",
                           path);
}

bool weft_output_replaceable(const char *verb, const char *path)
{
    struct weft_error error;
    if (check_replaceable(path, &error) == WEFT_OK) {
        return true;
    }
    fprintf(stderr, "weft %s: %s\n", verb, error.text);
    return false;
}

weft_status weft_output_check_inputs(const char *path, const char *const *inputs, uint32_t count,
                                     struct weft_error *error)
{
    struct stat about, input;
    if (path == NULL || stat(path, &about) != 0 || !S_ISREG(about.st_mode)) {
        return WEFT_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (inputs[i] != NULL && stat(inputs[i], &input) == 0 && input.st_dev == about.st_dev &&
            input.st_ino == about.st_ino) {
            return weft_fail(error, WEFT_IO,
                             "cannot write %.400s: it is an input; name another file", path);
        }
    }
    return WEFT_OK;
}

bool weft_output_distinct(const char *verb, const char *path, const char *const *inputs,
                          uint32_t count)
{
    struct weft_error error;
    if (weft_output_check_inputs(path, inputs, count, &error) == WEFT_OK) {
        return true;
    }
    fprintf(stderr, "weft %s: %s\n", verb, error.text);
    return false;
}

weft_status weft_output_check(const char *path, bool may_be_stream, struct weft_error *error)
{
    if (path == NULL) {
        return WEFT_OK;
    }
    struct stat about;
    const bool is_there = stat(path, &about) == 0;
    if (is_there && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode) &&
        (!may_be_stream || S_ISBLK(about.st_mode))) {
        return weft_fail(error, WEFT_IO,
                         "cannot write %.400s: it is not a regular file; name another", path);
    }
    if (!may_be_stream && check_replaceable(path, error) != WEFT_OK) {
        return WEFT_IO;
    }
    char *copy = NULL;
    bool good = weft_file_target(path, &copy) == WEFT_OK;
    good = good && (is_there && !S_ISREG(about.st_mode)
                        ? access(path, W_OK) == 0
                        : access(dirname(copy), W_OK | X_OK) == 0);
    if (good && is_there && S_ISDIR(about.st_mode)) {
        errno = EISDIR;
        good = false;
    }
    weft_status status = good ? WEFT_OK
                              : weft_fail(error, WEFT_IO, "cannot write %.400s: %s", path,
                                          strerror(errno));
    free(copy);
    return status;
}

FILE *weft_output_open(const char *path)
{
    return path != NULL ? fopen(path, "we") : stdout;
}

bool weft_output_close(const char *verb, const char *path, FILE *out, bool good)
{
    int why = errno;
    if (out != NULL) {
        errno = 0;
        bool written = fflush(out) == 0; /* fails again with the reason of an earlier failure */
        int reason = errno;
        written = ferror(out) == 0 && written;
        written = (out == stdout || fclose(out) == 0) && written;
        reason = reason != 0 ? reason : errno;
        why = good && !written ? (reason != 0 ? reason : EIO) : why;
        good = good && written;
    }
    if (!good || out == NULL) {
        fprintf(stderr, "weft %s: %s: %s\n", verb, path != NULL ? path : "standard output",
                strerror(why));
    }
    return good && out != NULL;
}
