/* Shards whose journals are files, in a directory of the test. */
#ifndef WEFT_TESTS_NODE_JOURNAL_RIG_H
#define WEFT_TESTS_NODE_JOURNAL_RIG_H

#include "node/journal_file.h"
#include "ps_journal_churn.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static struct churn churn;

static struct {
    char directory[64];
    struct weft_journal_options options;
    uint64_t claim, former; /* claims of the next process and of its predecessor */
    uint64_t damaged;       /* the last damaged record after `former` */
    bool fresh;
    bool release;                                 /* release the predecessor's journal */
    struct weft_journal_file files[CHURN_SHARDS]; /* files of the last process of each shard */
    struct weft_journal_news news;
    struct weft_error error;
    struct weft_shard_journal_report report;
    weft_status opened, replayed, released; /* results of the steps */
} rig;

static inline void rig_supply(struct weft_shard *shard)
{
    (void)shard;
    cluster_slabs(&churn.c, 0);
}

/* A process starts shard s of the cluster. */
static inline void rig_attach(void *arg, uint32_t s)
{
    (void)arg;
    const struct weft_journal_names names = {.shard = s,
                                             .claim = rig.claim,
                                             .former = rig.former,
                                             .fresh = rig.fresh,
                                             .damaged = rig.damaged};
    struct weft_shard *shard = churn.c.shard[s];
    rig.replayed = rig.released = WEFT_STATE;
    rig.error.text[0] = '\0';
    rig.opened = weft_journal_file_open(&rig.files[s], &rig.options, &names, &rig.news, &rig.error);
    if (rig.opened == WEFT_OK) {
        rig.replayed = weft_journal_replay(&rig.files[s], shard, churn.saved[s].number, 0,
                                           rig_supply, &rig.news, &rig.error);
    }
    if (rig.replayed == WEFT_OK) {
        rig.report = *weft_shard_journal_report(shard);
    }
    if (rig.replayed == WEFT_OK && rig.release) {
        rig.released = weft_journal_release_former(&rig.files[s], &rig.error);
    }
}

static inline const char *rig_path(uint64_t claim)
{
    static char path[256];
    (void)snprintf(path, sizeof(path), "%s/journal-0000-%012" PRIu64, rig.directory, claim);
    return path;
}

/* Number of files of shard 0 in the directory, or in its quarantine. */
static inline uint32_t rig_files(bool aside)
{
    char path[128];
    uint32_t count = 0;
    (void)snprintf(path, sizeof(path), "%s%s", rig.directory, aside ? "/quarantine" : "");
    DIR *list = opendir(path);
    for (const struct dirent *item; list != NULL && (item = readdir(list)) != NULL;) {
        count += strncmp(item->d_name, "journal-0000", 12) == 0;
    }
    if (list != NULL) {
        (void)closedir(list);
    }
    return count;
}

static inline void rig_clear(const char *below)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s%s", rig.directory, below);
    DIR *list = opendir(path);
    for (const struct dirent *item; list != NULL && (item = readdir(list)) != NULL;) {
        if (item->d_name[0] != '.') {
            (void)unlinkat(dirfd(list), item->d_name, 0);
        }
    }
    if (list != NULL) {
        (void)closedir(list);
    }
    (void)rmdir(path);
}

/* Two shards with journals of claim 1, and workers. */
static inline void rig_start(uint64_t seed, bool sync)
{
    memset(&rig, 0, sizeof(rig));
    /* In a memory file system if available: thousands of files are synced. */
    (void)snprintf(rig.directory, sizeof(rig.directory), "%s/weft-journal-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    WEFT_ASSERT(mkdtemp(rig.directory) != NULL);
    rig.options = (struct weft_journal_options){
        .directory = rig.directory, .mib = 1, .sync = sync, .job = 5};
    rig.claim = 1;
    rig.fresh = rig.release = true;
    journal_churn_start(&churn, seed, rig_attach, NULL);
    WEFT_ASSERT(rig.released == WEFT_OK);
    rig.fresh = false;
}

static inline void rig_stop(void)
{
    churn_stop(&churn);
    for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
        weft_journal_file_close(&rig.files[s]);
    }
    rig_clear("/quarantine");
    rig_clear("");
}

/* Start another process with shard 0. The previous process is not ended: it may be frozen. */
static inline struct weft_shard *rig_twin(uint64_t claim, uint64_t former)
{
    rig.claim = claim;
    rig.former = former;
    return journal_churn_twin(&churn, 0, rig_attach, NULL);
}

static inline void rig_twin_end(struct weft_shard *twin, struct weft_journal_file *file)
{
    churn_shard_free(&churn, 0, twin);
    weft_journal_file_close(file);
}

/* Change byte `at` of a file. */
static inline void rig_flip(const char *path, off_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    WEFT_ASSERT(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    WEFT_ASSERT(pwrite(fd, &byte, 1, at) == 1);
    (void)close(fd);
}

#endif
