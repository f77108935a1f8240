/* Write access to a checkpoint directory, and validity of checkpoints: servers that are replaced at
 * any moment, servers that must agree, a file system that fails at any call, and a network file
 * system. */
#include "ckpt_rig.h"
#include "fault_fs.h"

#include "ckpt/sealed.h"

#include <errno.h>
#include <fcntl.h>

static int clean_up(void **state)
{
    fault_fs_disarm();
    return dir_remove(state);
}

static void write_part(struct server *server, uint64_t number)
{
    struct weft_error error = {.text = ""};
    must(server_write(server, number, 0, &error), &error);
}

static weft_status write_refused(struct server *server, uint64_t number)
{
    struct weft_error error = {.text = ""};
    weft_status status = server_write(server, number, 0, &error);
    assert_true(status == WEFT_OK || error.text[0] != '\0');
    return status;
}

/* ---- write access ---------------------------------------------------------------------------- */

/* A replaced server resumes: its writes are invalid, and it changes no file of its successor,
 * whatever numbers both use. */
static void replaced_writer(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server old, new;
    server_start(&old, 1, 0, 1);
    write_part(&old, 5);
    must(server_look(&old, 5, 2, &error), &error);
    server_start(&new, 1, 0, 1);
    assert_int_equal(new.set.number, 5);
    write_part(&new, 6);
    must(server_look(&new, 6, 2, &error), &error);
    assert_int_equal(write_refused(&old, 6), WEFT_STATE);
    assert_int_equal(write_refused(&old, 99), WEFT_STATE);
    assert_int_equal(server_look(&old, 5, 1, &error), WEFT_STATE);
    assert_non_null(strstr(error.text, dir));
    assert_int_equal(found(), 6);
    assert_int_equal(complaints, 0);
    assert_int_equal(files_in(".", "000000000099"), 0);
    server_end(&old);
    server_end(&new);
}

struct overtaken {
    struct server *by;
    bool done;
};

static void overtake(void *arg)
{
    struct overtaken *overtaken = arg;
    if (!overtaken->done) {
        overtaken->done = true;
        server_start(overtaken->by, 1, 0, 1);
    }
}

/* Stopped directly before link(2), after all checks. */
static void replaced_before_the_link(void **state)
{
    (void)state;
    struct server old, new;
    struct overtaken overtaken = {.by = &new};
    server_start(&old, 1, 0, 1);
    write_part(&old, 5);
    fault_fs_before_link(overtake, &overtaken);
    assert_int_equal(write_refused(&old, 6), WEFT_STATE);
    fault_fs_disarm();
    assert_true(overtaken.done);
    assert_int_equal(new.set.number, 5);
    assert_int_equal(found(), 5);
    assert_int_equal(files_in("log", ".tmp"), 0);
    assert_int_equal(files_in(".", "000000000006"), 0);
    server_end(&old);
    server_end(&new);
}

/* A server is stopped while it starts, and is replaced: it does not reclaim the shards. */
static void start_and_write(void *arg)
{
    struct overtaken *overtaken = arg;
    if (!overtaken->done) {
        overtaken->done = true;
        server_start(overtaken->by, 1, 0, 1);
        write_part(overtaken->by, 5);
    }
}

static void overtaken_while_it_starts(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server late, other;
    struct overtaken overtaken = {.by = &other};
    fault_fs_before_link(start_and_write, &overtaken);
    assert_int_equal(server_try(&late, 1, 0, 1, &error), WEFT_STATE);
    fault_fs_disarm();
    assert_non_null(strstr(error.text, "while this server was starting"));
    assert_int_equal(found(), 5);
    write_part(&other, 6);
    assert_int_equal(found(), 6);
    server_end(&late);
    server_end(&other);
}

/* The directory of a new job was empty at the check, and another server writes to it afterwards. */
static void a_new_job_begins_in_an_empty_directory(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    const struct weft_ckpt_claim claim = {.shards = 2, .first = 0, .count = 1, .process = 99};
    struct weft_ckpt_log *log;
    struct server b;
    must(weft_ckpt_log_open(dir, complain, NULL, &log, &error), &error);
    server_start(&b, 2, 1, 1);
    write_part(&b, 5);
    assert_int_equal(weft_ckpt_log_claim(log, &claim, true, &error), WEFT_STATE);
    assert_non_null(strstr(error.text, dir));
    weft_ckpt_log_close(log);
    server_end(&b);
}

/* Another server's record, not a successor's, uses the serial number first: the server continues
 * with the next one. */
static void write_seven(void *arg)
{
    struct overtaken *overtaken = arg;
    if (!overtaken->done) {
        overtaken->done = true;
        write_part(overtaken->by, 7);
    }
}

static void two_servers_at_once(void **state)
{
    (void)state;
    struct server a, b;
    struct overtaken overtaken = {.by = &b};
    server_start(&a, 2, 0, 1);
    server_start(&b, 2, 1, 1);
    fault_fs_before_link(write_seven, &overtaken);
    write_part(&a, 7);
    fault_fs_disarm();
    assert_true(overtaken.done);
    assert_int_equal(found(), 7);
    server_end(&a);
    server_end(&b);
}

/* A part that the successor did not restore cannot become part of a complete checkpoint later. */
static void no_mixed_set(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a, b, b2;
    server_start(&a, 2, 0, 1);
    server_start(&b, 2, 1, 1);
    write_part(&a, 4);
    write_part(&b, 4);
    write_part(&b, 5);
    server_start(&b2, 2, 1, 1);
    assert_int_equal(b2.set.number, 4);
    assert_int_equal(files_in("quarantine", "000000000005-0001"), 2); /* data and manifest */
    write_part(&a, 5);
    must(server_look(&a, 5, 1, &error), &error);
    assert_int_equal(a.durable, 0);
    assert_int_equal(found(), 4);
    write_part(&b2, 5);
    must(server_look(&a, 5, 1, &error), &error);
    assert_int_equal(a.durable, 5);
    assert_int_equal(found(), 5);
    server_end(&a);
    server_end(&b);
    server_end(&b2);
}

/* All servers of a job restore the same number, even if one of them finds the newest one
 * damaged. */
static void servers_agree(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a, b;
    char path[256];
    server_start(&a, 2, 0, 1);
    server_start(&b, 2, 1, 1);
    for (uint64_t number = 4; number <= 5; number++) {
        write_part(&a, number);
        write_part(&b, number);
    }
    server_end(&a);
    server_end(&b);
    /* Both restart. a has read the checkpoint before it was damaged. */
    server_start(&a, 2, 0, 1);
    assert_int_equal(a.set.number, 5);
    snprintf(path, sizeof(path), "%s/000000000005-0001-000000000003.safetensors", dir);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(server_try(&b, 2, 1, 1, &error), WEFT_AGAIN);
    assert_non_null(strstr(error.text, "checkpoint 5"));
    server_end(&b);
    server_end(&a);
    /* Restart all: the first one to serve chooses 4, and the other one follows. */
    assert_int_equal(server_try(&a, 2, 0, 1, &error), WEFT_OK);
    assert_int_equal(a.set.number, 4);
    server_start(&b, 2, 1, 1);
    assert_int_equal(b.set.number, 4);
    assert_int_equal(files_in("quarantine", "000000000005"), 4);
    server_end(&b);
    server_end(&a);
}

static void damage(uint64_t number, uint32_t shard, uint64_t claim)
{
    char name[WEFT_CKPT_FILE_BYTES], path[256];
    weft_ckpt_data_name(number, shard, claim, name);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(truncate(path, 100), 0);
}

/* A part that another server found damaged at its start completes neither a checkpoint of that
 * number nor one based on it. A later reader of the log reaches the same result as the running
 * servers. */
static void damaged_parts_stay_out(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a, b, a2;
    server_start(&a, 2, 0, 1);
    server_start(&b, 2, 1, 1);
    for (uint64_t number = 100; number <= 110; number += 10) {
        write_part(&a, number);
        write_part(&b, number);
    }
    must(server_look(&a, 110, 2, &error), &error);
    damage(110, 1, 3); /* a part of b */
    server_start(&a2, 2, 0, 1);
    assert_int_equal(a2.set.number, 100);
    write_part(&a2, 110);
    must(server_look(&a2, 110, 1, &error), &error);
    assert_int_equal(a2.durable, 100);
    assert_int_equal(found(), 100);
    write_part(&a2, 120);
    must(server_write(&b, 120, 110, &error), &error); /* b does not know that it is damaged */
    must(server_look(&a2, 120, 1, &error), &error);
    assert_int_equal(a2.durable, 100);
    assert_int_equal(found(), 100);
    assert_false(weft_ckpt_history_has(weft_ckpt_log_history(b.log), 3, 110));
    write_part(&a2, 130);
    write_part(&b, 130);
    must(server_look(&a2, 130, 1, &error), &error);
    assert_int_equal(a2.durable, 130);
    assert_int_equal(found(), 130);
    server_end(&a);
    server_end(&b);
    server_end(&a2);
}

/* The record of a quarantined file stays: without it the result of an earlier claim would
 * change. */
static void later_readers_agree(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a, b, b2, a2;
    server_start(&a, 2, 0, 1);
    server_start(&b, 2, 1, 1);
    for (uint64_t number = 100; number <= 110; number += 10) {
        write_part(&a, number);
        write_part(&b, number);
    }
    server_start(&b2, 2, 1, 1);
    assert_int_equal(b2.set.number, 110);
    write_part(&b2, 120);
    damage(110, 0, 1); /* a part of a */
    server_start(&a2, 2, 0, 1);
    assert_int_equal(a2.set.number, 100);
    write_part(&a2, 110);
    must(server_look(&a2, 110, 1, &error), &error);
    assert_int_equal(found(), a2.durable);
    write_part(&a2, 130);
    write_part(&b2, 130);
    must(server_look(&a2, 130, 1, &error), &error);
    assert_int_equal(found(), a2.durable);
    assert_int_equal(a2.durable, 130);
    server_end(&a);
    server_end(&b);
    server_end(&b2);
    server_end(&a2);
}

/* A manifest of which only the first bytes are left: the files that it named are not mistaken for
 * those of a killed writer. */
static void truncated_manifest_keeps_its_files(off_t left)
{
    struct server a;
    char path[256];
    server_start(&a, 1, 0, 1); /* records 1, 2 */
    write_part(&a, 3);
    write_part(&a, 4);
    server_end(&a);
    snprintf(path, sizeof(path), "%s/log/000000000004", dir);
    assert_int_equal(truncate(path, left), 0);
    server_start(&a, 1, 0, 1);
    assert_int_equal(a.set.number, 3);
    assert_int_equal(weft_ckpt_log_damaged(a.log), 4);
    assert_int_equal(files_in("quarantine", "000000000004-0000"), 1);
    assert_int_equal(files_in(".", "safetensors"), 1);
    server_end(&a);
}

static void damaged_manifest_keeps_its_files(void **state)
{
    (void)state;
    truncated_manifest_keeps_its_files(20);
}

/* It is not mistaken for a record that was removed. */
static void empty_manifest_keeps_its_files(void **state)
{
    (void)state;
    truncated_manifest_keeps_its_files(0);
}

/* Another number of shards: existing checkpoints stay restorable until they are pruned, and their
 * writers are replaced. */
static void other_shape(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a, b, one;
    server_start(&a, 2, 0, 1);
    server_start(&b, 2, 1, 1);
    write_part(&a, 3);
    write_part(&b, 3);
    server_start(&one, 1, 0, 1);
    assert_int_equal(one.set.number, 3);
    assert_int_equal(one.set.shards, 2);
    assert_int_equal(write_refused(&a, 4), WEFT_STATE);
    assert_int_equal(write_refused(&b, 4), WEFT_STATE);
    write_part(&one, 4);
    must(server_look(&one, 4, 1, &error), &error);
    assert_int_equal(found(), 4);
    assert_int_equal(files_in(".", "safetensors"), 1);
    server_end(&a);
    server_end(&b);
    server_end(&one);
}

/* A damaged claim invalidates nothing that its process wrote. */
static void damaged_claim(void **state)
{
    (void)state;
    struct server a;
    char path[256];
    server_start(&a, 1, 0, 1);
    write_part(&a, 3);
    server_end(&a);
    snprintf(path, sizeof(path), "%s/log/000000000001", dir);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(found(), 3);
    assert_int_equal(complaints, 2); /* the claim, and its restore record */
    server_start(&a, 1, 0, 1);
    assert_int_equal(a.set.number, 3);
    server_end(&a);
}

static void later_version_stops(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct weft_ckpt_set set;
    struct server a;
    server_start(&a, 1, 0, 1);
    write_part(&a, 3);
    server_end(&a);
    static const char later[] = "{\n  \"format\": \"weft-checkpoint-log\",\n  \"version\": 7,\n"
                                "  \"xxh3_64\": \"0f7d6f3b1c1c1c1c\"\n}\n";
    char path[256], text[sizeof(later)];
    snprintf(path, sizeof(path), "%s/log/000000000004", dir);
    memcpy(text, later, sizeof(later));
    weft_ckpt_sealed_fill(text, sizeof(later) - 1);
    must(weft_ckpt_write_new(path, text, sizeof(later) - 1, &error), &error);
    assert_int_equal(find_try(&set, &error), WEFT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "version 7"));
    assert_int_equal(server_try(&a, 1, 0, 1, &error), WEFT_UNSUPPORTED);
    server_end(&a);
    unlink(path);
    assert_int_equal(found(), 3);
}

/* Leftovers of killed writers are removed when their shards have another owner; files of a live one
 * stay. */
static void leftovers(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a, b;
    struct weft_ckpt_file file;
    char path[256];
    server_start(&a, 2, 0, 1); /* records 1, 2 */
    server_start(&b, 2, 1, 1); /* 3, 4 */
    must(write_data(9, 0, 1, &file, &error), &error);
    static const char *const temporary[] = {"000000000008-0000-000000000001.safetensors.tmp",
                                            "000000000008-0001-000000000003.safetensors.tmp",
                                            "000000000008-0000.safetensors.tmp", "log/1-1.tmp"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, temporary[i]);
        must(weft_ckpt_write_new(path, "x", 1, &error), &error);
    }
    server_end(&a);
    server_start(&a, 2, 0, 1);
    assert_int_equal(files_in(".", "-000000000001."), 0);
    assert_int_equal(files_in(".", "0000.safetensors.tmp"), 0);
    assert_int_equal(files_in("log", ".tmp"), 0);
    assert_int_equal(files_in(".", "000000000008-0001-000000000003"), 1);
    server_end(&a);
    server_end(&b);
}

/* Serial numbers are not reused: a log with removed records has no holes. */
static void numbers_stay_taken(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a;
    server_start(&a, 1, 0, 1);
    for (uint64_t number = 1; number <= 20; number++) {
        write_part(&a, number);
        must(server_look(&a, number, 2, &error), &error);
    }
    server_end(&a);
    assert_int_equal(files_in(".", "safetensors"), 2);
    for (uint32_t serial = 1; serial <= 22; serial++) {
        char name[WEFT_CKPT_FILE_BYTES], path[256];
        weft_ckpt_log_name(serial, name);
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        assert_int_equal(access(path, F_OK), 0);
    }
    assert_int_equal(files_in("log", "0000"), 4); /* claim, restored, and two manifests */
    assert_int_equal(found(), 20);
}

/* ---- failing file systems -------------------------------------------------------------------- */

struct outcome {
    bool started;
    uint64_t durable;
};

/* The second server of two is restarted, and participates in two more checkpoints. */
static struct outcome scenario(struct server *a)
{
    struct weft_error error = {.text = ""};
    struct outcome outcome = {.durable = 4};
    struct server b;
    weft_status status = server_try(&b, 2, 1, 1, &error);
    outcome.started = status == WEFT_OK;
    assert_true(!outcome.started || b.set.number == 4); /* nothing is damaged */
    assert_true(outcome.started || error.text[0] != '\0');
    for (uint64_t number = 5; status == WEFT_OK && number <= 6; number++) {
        bool wrote_a = server_write(a, number, 0, &error) == WEFT_OK;
        bool wrote_b =
            server_write(&b, number, number == 6 && b.durable == 5 ? 5 : 0, &error) == WEFT_OK;
        if (wrote_a && server_look(a, number, 1, &error) == WEFT_OK) {
            outcome.durable = a->durable > outcome.durable ? a->durable : outcome.durable;
        }
        if (wrote_b && server_look(&b, number, 0, &error) == WEFT_OK) {
            outcome.durable = b.durable > outcome.durable ? b.durable : outcome.durable;
        }
    }
    server_end(&b);
    return outcome;
}

/* Two servers with checkpoints 3 and 4, and a part of 5 that was never completed. */
static void set_scenario(struct server *a)
{
    struct weft_error error = {.text = ""};
    struct server b;
    server_start(a, 2, 0, 1);
    server_start(&b, 2, 1, 1);
    for (uint64_t number = 3; number <= 4; number++) {
        write_part(a, number);
        write_part(&b, number);
        must(server_look(a, number, 2, &error), &error);
    }
    write_part(&b, 5);
    server_end(&b);
}

/* Each call in turn fails, in each way. Everything reported as durable is found complete. */
static void every_call_fails(void **state)
{
    (void)state;
    static const struct {
        enum fault_kind kind;
        int why;
    } faults[] = {{FAULT_ERRNO, EIO},    {FAULT_ERRNO, ENOSPC}, {FAULT_ERRNO, EMFILE},
                  {FAULT_ERRNO, ESTALE}, {FAULT_ERRNO, EPERM},  {FAULT_SHORT, 0},
                  {FAULT_UNCLEAR, 0}};
    uint32_t calls = 0, runs = 0, stopped = 0;
    for (uint32_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++) {
        for (uint32_t at = 1;; at++) {
            struct server a;
            assert_int_equal(dir_make(NULL), 0);
            set_scenario(&a);
            fault_fs_arm(at, faults[f].kind, faults[f].why);
            struct outcome outcome = scenario(&a);
            bool met = fault_fs_met();
            const char *name = met ? fault_fs_name() : "";
            calls = fault_fs_calls() > calls ? fault_fs_calls() : calls;
            fault_fs_disarm();
            server_end(&a);
            uint64_t number = found();
            if (number < outcome.durable) {
                fail_msg("call %u (%s) with %s: %" PRIu64 " was durable, %" PRIu64 " is found", at,
                         name,
                         faults[f].kind == FAULT_ERRNO ? strerror(faults[f].why) : "another way",
                         outcome.durable, number);
            }
            assert_true(met || outcome.durable == 6);
            stopped += !outcome.started;
            runs++;
            dir_remove(NULL);
            if (!met) {
                break;
            }
        }
    }
    print_message("# %u calls, %u runs, in %u of them the start was refused\n", calls, runs,
                  stopped);
    assert_true(calls > 200 && stopped > 200);
}

/* A refused start moves no file, and the next start finds all of them. */
static void refused_start_changes_nothing(void **state)
{
    (void)state;
    for (uint32_t at = 1;; at++) {
        struct weft_error error = {.text = ""};
        struct server a, b;
        assert_int_equal(dir_make(NULL), 0);
        set_scenario(&a);
        uint32_t files = files_in(".", "safetensors");
        fault_fs_arm(at, FAULT_ERRNO, EIO);
        weft_status status = server_try(&b, 2, 1, 1, &error);
        bool met = fault_fs_met();
        fault_fs_disarm();
        server_end(&b);
        if (status != WEFT_OK) {
            assert_int_equal(files_in(".", "safetensors"), files);
            assert_int_equal(files_in("quarantine", ""), 0);
        }
        server_start(&b, 2, 1, 1);
        assert_int_equal(b.set.number, 4);
        assert_int_equal(files_in(".", "safetensors") + files_in("quarantine", "safetensors"),
                         files);
        server_end(&b);
        server_end(&a);
        dir_remove(NULL);
        if (!met) {
            break;
        }
    }
}

/* A part is durable after four syncs: its data, their names, the record, the record's name. Nothing
 * is reported as durable earlier. */
static void synchronised_before_promised(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    uint32_t synchronised = 0;
    for (uint32_t at = 1;; at++) {
        struct server a;
        assert_int_equal(dir_make(NULL), 0);
        server_start(&a, 1, 0, 1);
        fault_fs_arm(at, FAULT_ERRNO, EIO);
        weft_status status = server_write(&a, 7, 0, &error);
        bool met = fault_fs_met();
        if (met && strcmp(fault_fs_name(), "fsync") == 0) {
            synchronised++;
            assert_int_equal(status, WEFT_IO);
        }
        fault_fs_disarm();
        server_end(&a);
        dir_remove(NULL);
        if (!met) {
            break;
        }
    }
    assert_int_equal(synchronised, 4);
}

/* The directory exists after a power failure: its name is synced, even if the directory existed
 * before, because another process may have just made it. */
static void made_directory_is_durable(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    char made[256];
    snprintf(made, sizeof(made), "%s/made", dir);
    for (uint32_t slashes = 0; slashes < 3; slashes++) {
        fault_fs_arm(0, FAULT_ERRNO, 0);
        assert_int_equal(weft_ckpt_make_directory(made, &error), WEFT_OK);
        const uint32_t calls = fault_fs_calls();
        assert_int_equal(weft_ckpt_make_directory(made, &error), WEFT_OK);
        assert_int_equal(fault_fs_calls(), 2 * calls);
        uint32_t synchronised = 0;
        for (uint32_t at = 1; at <= calls; at++) {
            (void)rmdir(made);
            for (uint32_t start = 0; start < 2; start++) { /* the second finds it, unless at = 1 */
                fault_fs_arm(at, FAULT_ERRNO, EIO);
                assert_int_equal(weft_ckpt_make_directory(made, &error), WEFT_IO);
                synchronised += strcmp(fault_fs_name(), "fsync") == 0;
                fault_fs_disarm();
            }
        }
        assert_int_equal(synchronised, 2);
        strcat(made, "/");
    }
    if (geteuid() != 0) { /* a parent that may be used, but not read */
        (void)rmdir(made);
        assert_int_equal(chmod(dir, 0300), 0);
        const weft_status status = weft_ckpt_make_directory(made, &error);
        assert_int_equal(chmod(dir, 0700), 0);
        assert_int_equal(status, WEFT_OK);
        assert_int_equal(access(made, F_OK), 0);
    }
    assert_int_equal(weft_ckpt_make_directory("/nowhere/made", &error), WEFT_IO);
}

/* The same scenario with stale lookups, and with every link reporting that the name exists. */
static void network_file_system(void **state)
{
    (void)state;
    struct server a;
    set_scenario(&a);
    fault_fs_network(3);
    struct outcome outcome = scenario(&a);
    fault_fs_disarm();
    assert_true(outcome.started);
    assert_int_equal(outcome.durable, 6);
    assert_int_equal(found(), 6);
    server_end(&a);
}

/* Permanently stale lookups are reported as an error. */
static void stale_for_good(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a, b;
    server_start(&a, 2, 0, 1);
    fault_fs_network(1000);
    weft_status status = server_try(&b, 2, 1, 1, &error);
    fault_fs_disarm();
    assert_int_equal(status, WEFT_IO);
    assert_non_null(strstr(error.text, "record "));
    server_end(&a);
    server_end(&b);
}

static void no_hard_links(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a;
    uint32_t at = 1;
    weft_status status;
    do {
        fault_fs_arm(at++, FAULT_ERRNO, EPERM);
        status = server_try(&a, 1, 0, 1, &error);
        server_end(&a);
    } while (fault_fs_met() && strcmp(fault_fs_name(), "link") != 0);
    fault_fs_disarm();
    assert_int_equal(status, WEFT_UNSUPPORTED);
    assert_non_null(strstr(error.text, dir));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replaced_writer, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(replaced_before_the_link, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(two_servers_at_once, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(overtaken_while_it_starts, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(a_new_job_begins_in_an_empty_directory, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(damaged_parts_stay_out, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(later_readers_agree, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(damaged_manifest_keeps_its_files, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(empty_manifest_keeps_its_files, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(no_mixed_set, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(servers_agree, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(other_shape, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(damaged_claim, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(later_version_stops, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(leftovers, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(numbers_stay_taken, dir_make, clean_up),
        cmocka_unit_test(every_call_fails),
        cmocka_unit_test(refused_start_changes_nothing),
        cmocka_unit_test(synchronised_before_promised),
        cmocka_unit_test_setup_teardown(made_directory_is_durable, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(network_file_system, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(stale_for_good, dir_make, clean_up),
        cmocka_unit_test_setup_teardown(no_hard_links, dir_make, clean_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
