/* After a fork the child's provider and key are unusable, the parent's are unchanged. Three ways of
 * forking: fork(), a bare clone system call, which runs no handler of the C library (detected by
 * pages that the kernel wipes), and fork() on a kernel that does not wipe (detected by the
 * handler). Linked with --wrap=madvise to emulate that kernel and to locate key schedules. */
#include "crypto/job_key.h"
#include "crypto/provider.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int __real_madvise(void *start, size_t bytes, int advice);
int __wrap_madvise(void *start, size_t bytes, int advice);

static bool kernel_wipes;
static const uint8_t *wiped; /* the largest mapping that is wiped on fork: ipsec-mb's keys */
static size_t wiped_bytes;

int __wrap_madvise(void *start, size_t bytes, int advice)
{
    if (advice == MADV_WIPEONFORK && !kernel_wipes) {
        errno = EINVAL;
        return -1;
    }
    if (advice == MADV_WIPEONFORK && bytes > wiped_bytes) {
        wiped = start;
        wiped_bytes = bytes;
    }
    return __real_madvise(start, bytes, advice);
}

static struct weft_provider *provider;
static struct weft_crypto crypto;
static struct weft_job_key *key;

static const uint8_t zeros[32];

static void set_up(bool wipes)
{
    kernel_wipes = wipes;
    struct weft_error error;
    assert_int_equal(weft_provider_new(2, &provider), WEFT_OK);
    crypto = weft_provider_crypto(provider);
    assert_int_equal(crypto.ops->aead_set(crypto.self, 0, zeros, 16), WEFT_OK);
    assert_int_equal(weft_job_key_random(&key, &error), WEFT_OK);
}

static int tear_down(void **state)
{
    (void)state;
    weft_provider_free(provider);
    weft_job_key_free(key);
    return 0;
}

/* One bit for each operation that still returns WEFT_OK, and another bit for any status except
 * WEFT_STATE. */
static int operations_that_work(void)
{
    uint8_t a[32] = {0};
    uint8_t b[32] = {0};
    uint8_t tag[16] = {0};
    char text[WEFT_JOB_KEY_FINGERPRINT_BYTES];
    const weft_status statuses[] = {
        crypto.ops->random(crypto.self, a, sizeof(a)),
        crypto.ops->dh_keypair(crypto.self, a, b),
        crypto.ops->dh(crypto.self, (const uint8_t[32]){1}, (const uint8_t[32]){9}, a),
        crypto.ops->aead_set(crypto.self, 1, zeros, 32),
        crypto.ops->aead_seal(crypto.self, 0, 1, NULL, 0, NULL, 0, NULL, tag),
        weft_job_key_copy(key, a) == WEFT_STATE ? weft_job_key_fingerprint(key, text) : WEFT_OK,
        crypto.ops->aead_open(crypto.self, 0, 1, NULL, 0, NULL, 0, tag),
    };
    int mask = 0;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        mask |= statuses[i] == WEFT_OK ? 1 << i : 0;
        mask |= statuses[i] != WEFT_OK && statuses[i] != WEFT_STATE ? 1 << 7 : 0;
    }
    return mask;
}

static int child_says(bool bare)
{
    /* After a bare clone the C library's state still describes the parent; the code below does not
     * depend on it. */
    pid_t pid = bare ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
    if (pid == 0) {
        int mask = operations_that_work();
        weft_job_key_free(key); /* must not fail either */
        weft_provider_free(provider);
        _exit(mask);
    }
    assert_true(pid > 0);
    int status;
    while (waitpid(pid, &status, 0) != pid) {
        assert_int_equal(errno, EINTR);
    }
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void child_of_fork(void **state)
{
    (void)state;
    set_up(true);
    assert_int_equal(child_says(false), 0);
    assert_int_equal(operations_that_work(), 0x7f);
}

static void child_of_a_bare_clone(void **state)
{
    (void)state;
    set_up(true);
    void *page = mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool can = __real_madvise(page, 1, MADV_WIPEONFORK) == 0;
    (void)munmap(page, 1);
    if (!can) {
        print_message("this kernel does not know MADV_WIPEONFORK\n");
        skip();
    }
    assert_int_equal(child_says(true), 0);
    assert_int_equal(operations_that_work(), 0x7f);
}

static void child_where_the_kernel_does_not_wipe(void **state)
{
    (void)state;
    set_up(false);
    assert_int_equal(child_says(false), 0);
    assert_int_equal(operations_that_work(), 0x7f);
}

static bool all_zero(const uint8_t *bytes, size_t count)
{
    uint8_t any = 0;
    for (size_t i = 0; i < count; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

/* ipsec-mb's key schedules: erased when cleared, and absent in a child. */
static void key_schedules_are_erased(void **state)
{
    (void)state;
    wiped_bytes = 0;
    set_up(true);
    if (strncmp(weft_provider_aead(provider).text, "ipsec-mb", 8) != 0 || wiped_bytes < 1024) {
        print_message("AES-GCM here: %s\n", weft_provider_aead(provider).text);
        skip();
    }
    assert_int_equal(crypto.ops->aead_set(crypto.self, 1, zeros, 32), WEFT_OK);
    assert_false(all_zero(wiped, wiped_bytes / 2));
    assert_false(all_zero(wiped + wiped_bytes / 2, wiped_bytes / 2));
    pid_t pid = fork();
    if (pid == 0) {
        _exit(all_zero(wiped, wiped_bytes) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    crypto.ops->aead_clear(crypto.self, 0);
    assert_true(all_zero(wiped, wiped_bytes / 2));
    assert_false(all_zero(wiped + wiped_bytes / 2, wiped_bytes / 2));
    crypto.ops->aead_clear(crypto.self, 1);
    assert_true(all_zero(wiped, wiped_bytes));
}

/* Objects created by the child work in the child. */
static void child_may_begin_anew(void **state)
{
    (void)state;
    set_up(true);
    pid_t pid = fork();
    if (pid == 0) {
        struct weft_error error;
        bool good = weft_provider_new(2, &provider) == WEFT_OK &&
                    weft_job_key_random(&key, &error) == WEFT_OK;
        crypto = weft_provider_crypto(provider);
        good = good && crypto.ops->aead_set(crypto.self, 0, zeros, 16) == WEFT_OK;
        _exit(good ? operations_that_work() : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 0x7f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(child_of_fork, tear_down),
        cmocka_unit_test_teardown(child_of_a_bare_clone, tear_down),
        cmocka_unit_test_teardown(child_where_the_kernel_does_not_wipe, tear_down),
        cmocka_unit_test_teardown(key_schedules_are_erased, tear_down),
        cmocka_unit_test_teardown(child_may_begin_anew, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
