/* Keys and modes through <weft/transport.h>: sources of a key, the bytes on the wire, and the
 * errors of both ends if their keys or modes differ. */
#include "api_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COUNT = 20000 };

static uint8_t key_a[32] = {1, 2, 3};
static uint8_t key_b[32] = {3, 2, 1};
static const char key_text[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

static struct weft_transport_config keyed(const uint8_t *key, uint32_t security)
{
    struct weft_transport_config config = api_config();
    config.security = security;
    config.key = key;
    config.accept = 1;
    return config;
}

static void transfer(const struct weft_transport_config *config_b,
                     const struct weft_transport_config *config_a)
{
    struct weft_transport *b = api_open(config_b);
    struct weft_transport *a = api_open(config_a);
    uint32_t peer = api_connect(a, b);
    static float values[COUNT];
    static float memory[COUNT];
    memset(memory, 0, sizeof(memory));
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = (float)i;
    }
    api_receive(b, memory, COUNT, WEFT_TRANSPORT_ADD, 0);
    api_send(a, peer, values, COUNT, 0, 0);
    (void)api_await(b, a, WEFT_TRANSPORT_RECEIVED);
    assert_memory_equal(memory, values, sizeof(values));
    struct weft_transport_event event = api_await(a, b, WEFT_TRANSPORT_SENT);
    assert_int_equal(event.mask.chunks_received, event.mask.chunks);
    weft_transport_close(a);
    weft_transport_close(b);
}

static void auth_and_seal_carry_vectors(void **state)
{
    (void)state;
    for (uint32_t security = WEFT_TRANSPORT_AUTH; security <= WEFT_TRANSPORT_SEAL; security++) {
        struct weft_transport_config config = keyed(key_a, security);
        transfer(&config, &config);
        config.thread = 1;
        transfer(&config, &config);
    }
}

static void auth_is_the_default(void **state)
{
    (void)state;
    struct weft_transport_config config;
    weft_transport_config_init(&config, sizeof(config));
    assert_int_equal(config.security, WEFT_TRANSPORT_AUTH);
    assert_int_equal(WEFT_TRANSPORT_AUTH, 0);
}

/* Create a file with the given permissions. */
static const char *key_file(mode_t permissions)
{
    static char path[] = "/tmp/weft-api-key-XXXXXX";
    memcpy(path + sizeof(path) - 7, "XXXXXX", 6);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, key_text, sizeof(key_text) - 1), sizeof(key_text) - 1);
    assert_int_equal(fchmod(fd, permissions), 0);
    (void)close(fd);
    return path;
}

/* The same key from a file, from the environment (twice in one process), and as bytes. */
static void a_key_from_anywhere(void **state)
{
    (void)state;
    uint8_t bytes[32];
    for (uint8_t i = 0; i < 32; i++) {
        bytes[i] = i;
    }
    struct weft_transport_config from_bytes = keyed(bytes, WEFT_TRANSPORT_AUTH);
    struct weft_transport_config from_file = keyed(NULL, WEFT_TRANSPORT_AUTH);
    from_file.key_file = key_file(0600);
    transfer(&from_bytes, &from_file);
    (void)unlink(from_file.key_file);
    assert_int_equal(setenv("WEFT_JOB_KEY", key_text, 1), 0);
    struct weft_transport_config from_environment = keyed(NULL, WEFT_TRANSPORT_AUTH);
    transfer(&from_bytes, &from_environment);
    assert_null(getenv("WEFT_JOB_KEY"));
    transfer(&from_environment, &from_environment);
}

static void open_says(const struct weft_transport_config *config, weft_status status,
                      const char *word, const char *action)
{
    struct weft_transport *t = NULL;
    assert_int_equal(weft_transport_open(config, &t), status);
    assert_null(t);
    assert_non_null(strstr(weft_transport_error(NULL), word));
    assert_non_null(strstr(weft_transport_error(NULL), action));
}

/* Must run before a key is read from the environment. */
static void no_key_is_said(void **state)
{
    (void)state;
    (void)unsetenv("WEFT_JOB_KEY");
    struct weft_transport_config config = keyed(NULL, WEFT_TRANSPORT_AUTH);
    open_says(&config, WEFT_NOTFOUND, "no job key", "weft keygen job.key");
    config.key_file = "/nonexistent/job.key";
    open_says(&config, WEFT_NOTFOUND, "/nonexistent/job.key", "weft keygen");
    config.key_file = key_file(0644);
    open_says(&config, WEFT_DATA, config.key_file, "chmod 600");
    (void)unlink(config.key_file);
    config = keyed(key_a, 3);
    open_says(&config, WEFT_INVALID, "security is 3", "from 0 to 2");
}

static void nothing_unauthenticated_leaves_this_host(void **state)
{
    (void)state;
    struct weft_transport_config config = api_config();
    config.host = "0.0.0.0";
    open_says(&config, WEFT_UNSUPPORTED, "beyond loopback", "name a key file");
    config = api_config();
    struct weft_transport *t = api_open(&config);
    uint32_t peer;
    assert_int_equal(weft_transport_connect(t, "192.0.2.1", 7700, &peer), WEFT_UNSUPPORTED);
    assert_non_null(strstr(weft_transport_error(t), "name a key file"));
    weft_transport_close(t);
    config = keyed(key_a, WEFT_TRANSPORT_AUTH);
    config.accept = 0;
    config.host = "0.0.0.0";
    weft_transport_close(api_open(&config));
}

/* Both ends of a refused connection report the reason. */
static void strangers(const struct weft_transport_config *config_b,
                      const struct weft_transport_config *config_a, const char *word_b,
                      const char *word_a)
{
    struct weft_transport_config config = *config_a;
    config.peer_timeout_ns = 2 * WEFT_NS_PER_S;
    config.thread = 1;
    struct weft_transport *b = api_open(config_b);
    struct weft_transport *a = api_open(&config);
    struct weft_transport_event event = {.size = sizeof(event)};
    uint64_t end_ns = weft_clock_now_ns() + api_limit_ns;
    bool heard = false; /* a thread that was not scheduled may be late with its report */
    while (!heard && weft_clock_now_ns() < end_ns) {
        (void)api_connect(a, b);
        do {
            assert_int_equal(weft_transport_wait(b, 400 * WEFT_NS_PER_MS, &event), WEFT_TIMEOUT);
            heard |= strstr(weft_transport_error(b), word_b) != NULL;
        } while (weft_transport_wait(a, 0, &event) != WEFT_OK);
    }
    if (!heard) {
        fail_msg("text of the accepting end: %s", weft_transport_error(b));
    }
    assert_int_equal(event.type, WEFT_TRANSPORT_DOWN);
    assert_int_equal(event.down, WEFT_TRANSPORT_DOWN_NO_ANSWER);
    if (strstr(weft_transport_error(a), word_a) == NULL) {
        fail_msg("text of the connecting end: %s", weft_transport_error(a));
    }
    weft_transport_close(a);
    weft_transport_close(b);
}

static void another_key_is_told_at_both_ends(void **state)
{
    (void)state;
    struct weft_transport_config b = keyed(key_b, WEFT_TRANSPORT_AUTH);
    struct weft_transport_config a = keyed(key_a, WEFT_TRANSPORT_AUTH);
    strangers(&b, &a, "a peer with another job key", "reports another job key");
}

static void another_mode_is_told_at_both_ends(void **state)
{
    (void)state;
    struct weft_transport_config b = keyed(key_a, WEFT_TRANSPORT_SEAL);
    struct weft_transport_config a = keyed(key_a, WEFT_TRANSPORT_AUTH);
    strangers(&b, &a, "another security mode", "does not accept this security mode");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auth_is_the_default),
        cmocka_unit_test(no_key_is_said),
        cmocka_unit_test(auth_and_seal_carry_vectors),
        cmocka_unit_test(nothing_unauthenticated_leaves_this_host),
        cmocka_unit_test(another_key_is_told_at_both_ends),
        cmocka_unit_test(another_mode_is_told_at_both_ends),
        cmocka_unit_test(a_key_from_anywhere),
    };
    return cmocka_run_group_tests_name("api_security", tests, NULL, NULL);
}
