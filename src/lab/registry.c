#include "lab/registry.h"

#include "lab/spec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRY_BYTES_MAX = 65536, PATH_BYTES = 128 };

static void entry_path(const char *name, const char *suffix, char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, WEFT_LAB_REGISTRY "/%s%s", name, suffix);
}

/* ---- live processes -------------------------------------------------------------------------- */

/* Start time in clock ticks since boot: field 22 of proc_pid_stat(5), counted after the name,
 * which may contain any bytes. 0 = no such process, or a zombie. */
static uint64_t start_time(pid_t pid)
{
    char path[32];
    char text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t count = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[count > 0 ? count : 0] = '\0';
    const char *at = strrchr(text, ')');
    if (at == NULL || strlen(at) < 3 || at[2] == 'Z' || at[2] == 'X') {
        return 0;
    }
    for (int field = 2; field < 22 && at != NULL; field++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

static void pid_namespace(char *out, size_t bytes)
{
    ssize_t count = readlink("/proc/self/ns/pid", out, bytes - 1);
    out[count > 0 ? count : 0] = '\0';
}

enum life { LIFE_UP, LIFE_ENDED, LIFE_ELSEWHERE };

static enum life life_of(const cJSON *facts)
{
    char here[64];
    pid_namespace(here, sizeof(here));
    if (strcmp(weft_lab_fact_text(facts, "pid_namespace"), here) != 0) {
        return LIFE_ELSEWHERE;
    }
    uint64_t start = weft_lab_fact_u64(facts, "holder_start");
    return start != 0 && start_time((pid_t)weft_lab_fact_u64(facts, "holder")) == start
               ? LIFE_UP
               : LIFE_ENDED;
}

/* ---- files ----------------------------------------------------------------------------------- */

uint64_t weft_lab_fact_u64(const cJSON *facts, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(facts, name);
    return cJSON_IsNumber(item) && item->valuedouble > 0 ? (uint64_t)item->valuedouble : 0;
}

const char *weft_lab_fact_text(const cJSON *facts, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(facts, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static cJSON *read_entry(const char *name)
{
    char path[PATH_BYTES];
    entry_path(name, "", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    static char text[ENTRY_BYTES_MAX];
    ssize_t count = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[count > 0 ? count : 0] = '\0';
    return cJSON_Parse(text);
}

weft_status weft_lab_registry_write(const cJSON *facts, struct weft_error *error)
{
    const char *name = weft_lab_fact_text(facts, "name");
    char path[PATH_BYTES];
    char fresh[PATH_BYTES];
    entry_path(name, "", path);
    entry_path(name, ".new", fresh);
    char *text = cJSON_Print(facts);
    if (text == NULL) {
        return weft_fail(error, WEFT_NOMEM, "out of memory");
    }
    FILE *file = fopen(fresh, "we");
    bool good = file != NULL && fprintf(file, "%s\n", text) > 0;
    good = (file == NULL || fclose(file) == 0) && good && rename(fresh, path) == 0;
    int why = errno;
    cJSON_free(text);
    if (!good) {
        unlink(fresh);
        return weft_fail(error, WEFT_IO, "cannot write %s: %s", path, strerror(why));
    }
    return WEFT_OK;
}

static void remove_files(const char *name)
{
    static const char *const suffixes[] = {"", ".log", ".new"};
    for (size_t i = 0; i < 3; i++) {
        char path[PATH_BYTES];
        entry_path(name, suffixes[i], path);
        unlink(path);
    }
}

void weft_lab_registry_remove(const char *name, pid_t holder)
{
    cJSON *facts = read_entry(name);
    if (weft_lab_fact_u64(facts, "holder") == (uint64_t)holder) {
        remove_files(name);
    }
    cJSON_Delete(facts);
}

/* ---- claims and lists ------------------------------------------------------------------------ */

/* Open and lock the folder, against concurrent claims of a name and against removal by another
 * process. */
static int lock_folder(void)
{
    mkdir("/run/weft", 0755);
    mkdir(WEFT_LAB_REGISTRY, 0755);
    int fd = open(WEFT_LAB_REGISTRY, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    return fd;
}

/* The facts of a live lab; the leftover of a dead one is removed. The folder is locked. */
static cJSON *get_locked(const char *name)
{
    cJSON *facts = read_entry(name);
    enum life life = facts != NULL ? life_of(facts) : LIFE_ELSEWHERE;
    if (life == LIFE_UP) {
        return facts;
    }
    cJSON_Delete(facts);
    if (life == LIFE_ENDED) {
        remove_files(name);
    }
    return NULL;
}

weft_status weft_lab_registry_claim(cJSON *facts, pid_t holder, struct weft_error *error)
{
    const char *name = weft_lab_fact_text(facts, "name");
    int lock = lock_folder();
    if (lock < 0) {
        return weft_fail(error, WEFT_IO, "cannot use %s: %s", WEFT_LAB_REGISTRY, strerror(errno));
    }
    cJSON *other = get_locked(name);
    char path[PATH_BYTES];
    char here[64];
    entry_path(name, "", path);
    pid_namespace(here, sizeof(here));
    weft_status status;
    if (other == NULL && access(path, F_OK) == 0) {
        /* `weft lab down` cannot end a lab that it does not see. */
        status = weft_fail(error, WEFT_EXISTS,
                           "the name %s is taken by a lab of another PID namespace (a "
                           "container?): use another name, or remove %s if no process holds it",
                           name, path);
    } else if (other != NULL) {
        status =
            weft_fail(error, WEFT_EXISTS,
                      "a lab named %s exists: `weft lab down %s`, or use another name", name, name);
    } else {
        cJSON_AddNumberToObject(facts, "holder", holder);
        cJSON_AddNumberToObject(facts, "holder_start", (double)start_time(holder));
        cJSON_AddStringToObject(facts, "pid_namespace", here);
        cJSON_AddStringToObject(facts, "state", "starting");
        status = weft_lab_registry_write(facts, error);
    }
    cJSON_Delete(other);
    close(lock);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of the entries, sorted; freed by the caller. NULL = none. */
static char **entry_names(size_t *count_p)
{
    DIR *folder = opendir(WEFT_LAB_REGISTRY);
    char **names = NULL;
    *count_p = 0;
    struct dirent *item;
    while (folder != NULL && (item = readdir(folder)) != NULL) {
        char **more =
            weft_lab_name_ok(item->d_name) ? realloc(names, (*count_p + 1) * sizeof(*names)) : NULL;
        if (more != NULL) {
            names = more;
            names[*count_p] = strdup(item->d_name);
            *count_p += names[*count_p] != NULL;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    if (names != NULL) {
        qsort(names, *count_p, sizeof(*names), by_name);
    }
    return names;
}

cJSON *weft_lab_registry_list(void)
{
    size_t count = 0;
    cJSON *list = cJSON_CreateArray();
    int lock = access(WEFT_LAB_REGISTRY, F_OK) == 0 ? lock_folder() : -1;
    char **names = entry_names(&count);
    for (size_t i = 0; i < count; i++) {
        cJSON *facts = get_locked(names[i]);
        if (facts != NULL) {
            cJSON_AddItemToArray(list, facts);
        }
        free(names[i]);
    }
    free(names);
    if (lock >= 0) {
        close(lock);
    }
    return list;
}

cJSON *weft_lab_registry_get(const char *name)
{
    if (!weft_lab_name_ok(name) || access(WEFT_LAB_REGISTRY, F_OK) != 0) {
        return NULL;
    }
    int lock = lock_folder();
    cJSON *facts = get_locked(name);
    if (lock >= 0) {
        close(lock);
    }
    return facts;
}
