/* Loading of ipsec-mb: as installed, absent, without one of its functions, of another version, out
 * of memory, with a failing self-test, without AES, and disabled. In each case the provider reports
 * the library that does AES-GCM, and a sealed packet has the same bytes.
 *
 * Linked with --wrap for dlopen and dlsym, which emulate these cases; an absent library is
 * requested by a name that does not exist. A process decides once, so each case runs in its own
 * process, which writes its results into memory shared with the test. */
#include "crypto/provider.h"

#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <intel-ipsec-mb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, FIT = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ };

/* The simulated environment. */
struct world {
    enum { AS_IT_IS, ABSENT, PRETENDED } found;
    const char *lacks; /* a missing function; NULL = none */
    unsigned version;
    bool without_memory;
    uint64_t features;
    int error;
    const char *wish; /* WEFT_IPSEC_MB; NULL = not set */
    bool threads;
};

/* Its results. */
struct seen {
    char text[sizeof(((struct weft_provider_aead *)0)->text)];
    char advice[256];
    char soname[64];
    uint32_t loads;
    uint32_t made;
    uint32_t freed;
    bool freed_another; /* a manager other than the created one was freed */
    bool same_bytes;    /* sealed to the same bytes as libcrypto */
};

static struct world world;
static struct seen *seen;
static IMB_MGR pretended;

/* ---- a fake library -------------------------------------------------------------------------- */

static unsigned pretend_version(void)
{
    return world.version;
}

static const char *pretend_version_str(void)
{
    return world.version == IMB_VERSION_NUM ? IMB_VERSION_STR : "7.8.9";
}

static int pretend_errno(IMB_MGR *manager)
{
    (void)manager;
    return world.error;
}

static IMB_MGR *pretend_alloc(uint64_t flags)
{
    (void)flags;
    seen->made += !world.without_memory;
    return world.without_memory ? NULL : &pretended;
}

static void pretend_free(IMB_MGR *manager)
{
    seen->freed++;
    seen->freed_another = seen->freed_another || manager != &pretended;
}

static void pretend_init(IMB_MGR *manager, IMB_ARCH *arch)
{
    manager->features = world.features;
    *arch = IMB_ARCH_SSE;
}

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);

void *__wrap_dlopen(const char *name, int flags)
{
    seen->loads++;
    snprintf(seen->soname, sizeof(seen->soname), "%s", name);
    switch (world.found) {
    case ABSENT:
        return __real_dlopen("libIPSec_MB_that_nobody_has.so.1", flags);
    case PRETENDED:
        return __real_dlopen(NULL, flags); /* this program: any handle will do */
    default:
        return __real_dlopen(name, flags);
    }
}

void *__wrap_dlsym(void *handle, const char *name)
{
    void *address = NULL;
    if (world.found != PRETENDED) {
        return __real_dlsym(handle, name);
    }
    if (world.lacks != NULL && strcmp(name, world.lacks) == 0) {
        return NULL;
    }
#define PRETEND(function, ours)                                                                    \
    if (strcmp(name, #function) == 0) {                                                            \
        typeof(function) *const at = ours;                                                         \
        memcpy(&address, &at, sizeof(address));                                                    \
    }
    PRETEND(imb_get_version, pretend_version)
    PRETEND(imb_get_version_str, pretend_version_str)
    PRETEND(imb_get_errno, pretend_errno)
    PRETEND(alloc_mb_mgr, pretend_alloc)
    PRETEND(free_mb_mgr, pretend_free)
    PRETEND(init_mb_mgr_auto, pretend_init)
#undef PRETEND
    return address;
}

/* ---- the process ----------------------------------------------------------------------------- */

static bool seals(struct weft_provider *provider, uint8_t out_p[4], uint8_t tag_p[16])
{
    static const uint8_t key[32] = {7};
    const struct weft_crypto_span aad = {"header", 6};
    const struct weft_crypto_span text = {"text", 4};
    struct weft_crypto crypto = weft_provider_crypto(provider);
    return crypto.ops->aead_set(crypto.self, 0, key, sizeof(key)) == WEFT_OK &&
           crypto.ops->aead_seal(crypto.self, 0, 1, &aad, 1, &text, 1, out_p, tag_p) == WEFT_OK;
}

static bool look(void)
{
    struct weft_provider *ours;
    struct weft_provider *plain;
    uint8_t out[2][4];
    uint8_t tags[2][16];
    if (weft_provider_new(1, &ours) != WEFT_OK ||
        weft_provider_new_libcrypto(1, &plain) != WEFT_OK || !seals(ours, out[0], tags[0]) ||
        !seals(plain, out[1], tags[1])) {
        return false;
    }
    const struct weft_provider_aead about = weft_provider_aead(ours);
    snprintf(seen->text, sizeof(seen->text), "%s", about.text);
    snprintf(seen->advice, sizeof(seen->advice), "%s", about.advice);
    seen->same_bytes = memcmp(out[0], out[1], sizeof(out[0])) == 0 &&
                       memcmp(tags[0], tags[1], sizeof(tags[0])) == 0;
    weft_provider_free(ours);
    weft_provider_free(plain);
    return true;
}

static void *make_one(void *provider_p)
{
    return weft_provider_new(1, provider_p) == WEFT_OK ? provider_p : NULL;
}

/* The first providers of a process, created concurrently: each reports the same. */
static bool look_from_threads(void)
{
    pthread_t threads[THREADS];
    struct weft_provider *providers[THREADS] = {NULL};
    bool good = true;
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, make_one, &providers[i]) != 0) {
            return false;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        void *made = NULL;
        good = pthread_join(threads[i], &made) == 0 && made != NULL && good;
    }
    good = good && look();
    for (int i = 0; i < THREADS && good; i++) {
        good = strcmp(weft_provider_aead(providers[i]).text, seen->text) == 0;
        weft_provider_free(providers[i]);
    }
    return good;
}

static void run(struct world wanted)
{
    world = wanted;
    memset(seen, 0, sizeof(*seen));
    pid_t pid = fork();
    if (pid == 0) {
        int set =
            world.wish != NULL ? setenv("WEFT_IPSEC_MB", world.wish, 1) : unsetenv("WEFT_IPSEC_MB");
        bool good = set == 0 && (world.threads ? look_from_threads() : look());
        _exit(good ? 0 : 1);
    }
    assert_true(pid > 0);
    int status;
    while (waitpid(pid, &status, 0) != pid) {
        assert_int_equal(errno, EINTR);
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(seen->same_bytes);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* The version in the name is that of the header. */
static void assert_loaded_once(void)
{
    char soname[64];
    snprintf(soname, sizeof(soname), "libIPSec_MB.so.%d", IMB_VERSION_NUM >> 16);
    assert_int_equal(seen->loads, 1);
    assert_string_equal(seen->soname, soname);
}

static void assert_says(const char *text, const char *advice)
{
    assert_string_equal(seen->text, text);
    if (strstr(seen->advice, advice) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", advice, seen->advice);
    }
}

static void as_it_is_here(void **state)
{
    (void)state;
    run((struct world){.found = AS_IT_IS});
    assert_loaded_once();
    print_message("# AES-GCM here: %s\n", seen->text);
    assert_true(strncmp(seen->text, "libcrypto; ", 11) == 0 ||
                strncmp(seen->text, "ipsec-mb " IMB_VERSION_STR " for ",
                        sizeof("ipsec-mb " IMB_VERSION_STR " for ") - 1) == 0);
}

static void loaded_once_by_many_threads(void **state)
{
    (void)state;
    run((struct world){.found = AS_IT_IS, .threads = true});
    assert_loaded_once();
}

static void absent(void **state)
{
    (void)state;
    char text[sizeof(seen->text)];
    snprintf(text, sizeof(text), "libcrypto; libIPSec_MB.so.%d cannot be loaded",
             IMB_VERSION_NUM >> 16);
    run((struct world){.found = ABSENT});
    assert_loaded_once();
    assert_says(text, "install ipsec-mb " IMB_VERSION_STR " (Debian: libipsec-mb");
    /* The error text of the loader is included. */
    assert_non_null(strstr(seen->advice, "libIPSec_MB_that_nobody_has.so.1"));
}

static void without_a_function(void **state)
{
    (void)state;
    static const char *const names[] = {"imb_get_version", "imb_get_version_str",
                                        "imb_get_errno",   "alloc_mb_mgr",
                                        "free_mb_mgr",     "init_mb_mgr_auto"};
    char text[sizeof(seen->text)];
    snprintf(text, sizeof(text), "libcrypto; libIPSec_MB.so.%d lacks a function",
             IMB_VERSION_NUM >> 16);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(names); i++) {
        run((struct world){.found = PRETENDED, .version = IMB_VERSION_NUM, .lacks = names[i]});
        assert_loaded_once();
        assert_says(text, "install ipsec-mb " IMB_VERSION_STR);
        assert_int_equal(seen->made, 0);
    }
}

/* Each of the version's three numbers, higher or lower. */
static void of_another_version(void **state)
{
    (void)state;
    static const unsigned versions[] = {
        IMB_VERSION_NUM + 1,     IMB_VERSION_NUM - 1,       IMB_VERSION_NUM + 0x100,
        IMB_VERSION_NUM - 0x100, IMB_VERSION_NUM + 0x10000, IMB_VERSION_NUM - 0x10000,
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(versions); i++) {
        run((struct world){.found = PRETENDED, .version = versions[i], .features = FIT});
        assert_loaded_once();
        assert_says("libcrypto; ipsec-mb is 7.8.9, weft was built with " IMB_VERSION_STR,
                    "install ipsec-mb " IMB_VERSION_STR ", or build weft");
        assert_int_equal(seen->made, 0); /* no manager was created */
    }
}

static void without_memory(void **state)
{
    (void)state;
    run((struct world){
        .found = PRETENDED, .version = IMB_VERSION_NUM, .without_memory = true, .features = FIT});
    assert_says("libcrypto; no memory for ipsec-mb", "");
    assert_int_equal(seen->freed, 0); /* nothing to free */
}

static void unfit(void **state)
{
    (void)state;
    static const struct {
        uint64_t features;
        int error;
        const char *text;
    } rows[] = {
        {FIT, 1, "libcrypto; ipsec-mb fails its self-test here"},
        {FIT | IMB_FEATURE_SELF_TEST, 0, "libcrypto; ipsec-mb fails its self-test here"},
        {IMB_FEATURE_AESNI, 0, "libcrypto; the processor lacks AES or carry-less multiplication"},
        {IMB_FEATURE_PCLMULQDQ, 0,
         "libcrypto; the processor lacks AES or carry-less multiplication"},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        run((struct world){.found = PRETENDED,
                           .version = IMB_VERSION_NUM,
                           .features = rows[i].features,
                           .error = rows[i].error});
        assert_says(rows[i].text, "");
        assert_int_equal(seen->made, 1);
        assert_int_equal(seen->freed, 1);
        assert_false(seen->freed_another);
    }
}

static void not_wanted(void **state)
{
    (void)state;
    run((struct world){.found = AS_IT_IS, .wish = "no"});
    assert_says("libcrypto; WEFT_IPSEC_MB=no", "unset WEFT_IPSEC_MB");
    assert_int_equal(seen->loads, 0);
}

static int set_up(void **state)
{
    (void)state;
    void *shared =
        mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seen = shared;
    return shared == MAP_FAILED ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_it_is_here),
        cmocka_unit_test(loaded_once_by_many_threads),
        cmocka_unit_test(absent),
        cmocka_unit_test(without_a_function),
        cmocka_unit_test(of_another_version),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(unfit),
        cmocka_unit_test(not_wanted),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
