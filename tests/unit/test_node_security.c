/* Sources of a job key, and removal of its environment variable. The environment's key is kept for
 * the life of the process, so each case runs in its own process. */
#include "node/security.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define TEXT_B "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static const uint8_t bytes_c[WEFT_PSK_BYTES] = {7, 7, 7};

/* Run a case in a child; its exit status is the result. */
static void in_child(bool (*body)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(body() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The first byte of the loaded key, or -1 - status. */
static int first_byte(struct weft_security *security, bool fresh)
{
    struct weft_error error = {.text = ""};
    uint8_t bytes[WEFT_PSK_BYTES];
    weft_status status = weft_security_load(security, fresh, &error);
    if (status == WEFT_OK) {
        status = weft_job_key_copy(security->key, bytes);
    }
    weft_security_fini(security);
    return status == WEFT_OK ? bytes[0] : -1 - (int)status;
}

static bool has_variable(void)
{
    return getenv("WEFT_JOB_KEY") != NULL;
}

static int pipe_with(const char *text)
{
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], text, strlen(text)) != (ssize_t)strlen(text)) {
        return -1;
    }
    (void)close(ends[1]);
    return ends[0];
}

static bool the_variable_is_read_once(void)
{
    struct weft_security security = WEFT_SECURITY_DEFAULTS;
    setenv("WEFT_JOB_KEY", TEXT_B, 1);
    bool good = first_byte(&security, true) == 0xff && !has_variable();
    /* The key is kept for endpoints that the process opens later; the variable is not read
     * again. */
    return good && first_byte(&security, false) == 0xff;
}

static bool the_environments_key_does_not_outlive_a_fork(void)
{
    struct weft_security security = WEFT_SECURITY_DEFAULTS;
    setenv("WEFT_JOB_KEY", TEXT_B, 1);
    bool good = first_byte(&security, false) == 0xff;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(first_byte(&security, true) == -1 - (int)WEFT_STATE ? 0 : 1);
    }
    int status;
    return good && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool what_is_given_comes_first(void)
{
    char path[] = "/tmp/weft-node-key-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || fchmod(fd, 0600) != 0 ||
        write(fd, TEXT_A "\n", sizeof(TEXT_A)) != (ssize_t)sizeof(TEXT_A)) {
        return false;
    }
    (void)close(fd);
    setenv("WEFT_JOB_KEY", TEXT_B, 1);
    struct weft_security security = {
        .mode = WEFT_MODE_SEAL, .key_file = path, .keep_variable = true};
    bool good = first_byte(&security, false) == 0 && has_variable();
    security.key_fd = (uint32_t)pipe_with("55" TEXT_A);
    /* the variable is too long: DATA shows that it is read */
    good = good && first_byte(&security, false) == -1 - (int)WEFT_DATA;
    security.key_bytes = bytes_c;
    good = good && first_byte(&security, false) == 7 && has_variable();
    /* A command removes the variable, whichever key it uses, so that no child inherits it. */
    security.keep_variable = false;
    good = good && first_byte(&security, false) == 7 && !has_variable();
    (void)unlink(path);
    return good;
}

static bool mode_none_needs_no_key(void)
{
    struct weft_security security = {.mode = WEFT_MODE_NONE};
    struct weft_error error = {.text = ""};
    setenv("WEFT_JOB_KEY", "no key at all", 1);
    return weft_security_load(&security, false, &error) == WEFT_OK && security.key == NULL &&
           !has_variable();
}

static bool a_key_that_is_none_is_refused(void)
{
    struct weft_security security = WEFT_SECURITY_DEFAULTS;
    setenv("WEFT_JOB_KEY", "no key at all", 1);
    return first_byte(&security, true) == -1 - (int)WEFT_DATA && !has_variable();
}

static bool without_one_there_is_a_fresh_one_or_a_sentence(void)
{
    struct weft_security security = WEFT_SECURITY_DEFAULTS;
    struct weft_error error = {.text = ""};
    unsetenv("WEFT_JOB_KEY");
    bool good = first_byte(&security, true) >= 0;
    return good && weft_security_load(&security, false, &error) == WEFT_NOTFOUND &&
           security.key == NULL && strstr(error.text, "weft keygen") != NULL;
}

static void each_source(void **state)
{
    (void)state;
    in_child(the_variable_is_read_once);
    in_child(the_environments_key_does_not_outlive_a_fork);
    in_child(what_is_given_comes_first);
    in_child(mode_none_needs_no_key);
    in_child(a_key_that_is_none_is_refused);
    in_child(without_one_there_is_a_fresh_one_or_a_sentence);
}

static void a_configuration_is_equipped_and_wiped(void **state)
{
    (void)state;
    static const uint8_t zeros[WEFT_PSK_BYTES];
    struct weft_security security = {.mode = WEFT_MODE_AUTH, .key_bytes = bytes_c,
                                     .keep_variable = true};
    struct weft_error key_error;
    struct weft_error error;
    struct weft_udp_config config;
    struct weft_provider *provider = NULL;
    assert_int_equal(weft_security_load(&security, false, &key_error), WEFT_OK);
    weft_udp_config_default(&config);
    assert_int_equal(weft_security_arm(&security, &config, &provider, &error), WEFT_OK);
    assert_int_equal(config.ep.mode, WEFT_MODE_AUTH);
    assert_memory_equal(config.ep.psk, bytes_c, WEFT_PSK_BYTES);
    weft_security_disarm(&config);
    assert_memory_equal(config.ep.psk, zeros, WEFT_PSK_BYTES);
    weft_provider_free(provider);

    char text[WEFT_SECURITY_HINT_BYTES];
    weft_security_hint(&security, WEFT_HINT_TOLD_KEY, text, sizeof(text));
    assert_non_null(strstr(text, "weft keygen --check")); /* with this end's fingerprint */
    weft_security_hint(&security, WEFT_HINT_NONE, text, sizeof(text));
    assert_string_equal(text, "");
    weft_security_fini(&security);

    security = (struct weft_security){.mode = WEFT_MODE_NONE, .insecure_network = true};
    assert_int_equal(weft_security_arm(&security, &config, &provider, &error), WEFT_OK);
    assert_null(provider);
    assert_int_equal(config.insecure_network, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_source),
        cmocka_unit_test(a_configuration_is_equipped_and_wiped),
    };
    return cmocka_run_group_tests_name("node_security", tests, NULL, NULL);
}
