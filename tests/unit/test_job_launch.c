/* The launch environment: every source, their precedence, and refusals. Environments are given as
 * lists "NAME=value"; the result is compared as one line. */
#include "job/launch.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARIABLES_MAX = 12 };

static const char *lookup(void *arg, const char *name)
{
    const char *const *variables = arg;
    size_t bytes = strlen(name);
    for (; *variables != NULL; variables++) {
        if (strncmp(*variables, name, bytes) == 0 && (*variables)[bytes] == '=') {
            return *variables + bytes + 1;
        }
    }
    return NULL;
}

struct row {
    enum weft_launch_role role;
    uint32_t shards_per_server;
    const char *variables[VARIABLES_MAX];
    const char *text;  /* expected weft_launch_text */
    const char *error; /* a part of the error text; NULL = none */
};

static const struct row rows[] = {
    {WEFT_LAUNCH_WORKER, 1, {0}, "worker, rank open", NULL},
    /* weft's own */
    {WEFT_LAUNCH_ANY,
     1,
     {"WEFT_ROLE=worker", "WEFT_RANK=3", "WEFT_WORKERS=48", "WEFT_COORDINATOR=ps-0.job:7690"},
     "worker 3 (WEFT_RANK), 48 workers (WEFT_WORKERS), coordinator ps-0.job:7690 "
     "(WEFT_COORDINATOR)",
     NULL},
    /* WEFT_SCHEDULER does not name a coordinator. */
    {WEFT_LAUNCH_COORDINATOR,
     1,
     {"WEFT_ROLE=scheduler", "WEFT_COORDINATOR=a:7690"},
     "coordinator, coordinator a:7690 (WEFT_COORDINATOR)",
     NULL},
    {WEFT_LAUNCH_WORKER,
     1,
     {"WEFT_RANK=0", "WEFT_WORKERS=2", "WEFT_SCHEDULER=a:1", "WEFT_COORDINATOR=b:2"},
     "worker 0 (WEFT_RANK), 2 workers (WEFT_WORKERS), coordinator b:2 (WEFT_COORDINATOR)",
     NULL},
    {WEFT_LAUNCH_SERVER,
     2,
     {"WEFT_RANK=1", "WEFT_SHARDS=4", "WEFT_COORDINATOR=[fe80::1]:7690", "WEFT_RESTART=2"},
     "server 1 (WEFT_RANK), 4 shards (WEFT_SHARDS), coordinator fe80::1:7690 (WEFT_COORDINATOR), "
     "restart 2",
     NULL},
    {WEFT_LAUNCH_WORKER,
     1,
     {"WEFT_RANK=0", "WEFT_WORKERS=1", "WEFT_SERVERS=10.0.0.1:7700,10.0.0.2:7700"},
     "worker 0 (WEFT_RANK), 1 workers (WEFT_WORKERS), servers from WEFT_SERVERS",
     NULL},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_RANK=", "WEFT_WORKERS="}, "worker, rank open", NULL},
    {WEFT_LAUNCH_WORKER,
     1,
     {"WEFT_RANK=three"},
     NULL,
     "WEFT_RANK is \"three\"; it must be a whole number from 0"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_RANK=-1"}, NULL, "WEFT_RANK is \"-1\""},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_RANK= 1"}, NULL, "WEFT_RANK is \" 1\""},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_WORKERS=0"}, NULL, "WEFT_WORKERS is \"0\""},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_WORKERS=65536"}, NULL, "from 1 to 65535"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_WORKERS=99999999999999999999"}, NULL, "WEFT_WORKERS is"},
    {WEFT_LAUNCH_WORKER,
     1,
     {"WEFT_RANK=4", "WEFT_WORKERS=4"},
     NULL,
     "rank 4 (from WEFT_RANK) does not exist in a job of 4 workers (from WEFT_WORKERS)"},
    {WEFT_LAUNCH_ANY,
     1,
     {"WEFT_ROLE=boss"},
     NULL,
     "must be worker, server, aggregator or coordinator"},
    {WEFT_LAUNCH_SERVER, 1, {"WEFT_ROLE=worker"}, NULL, "WEFT_ROLE says that this process is a"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_COORDINATOR=host"}, NULL, "it must be HOST:PORT"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_COORDINATOR=host:0"}, NULL, "it must be HOST:PORT"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_COORDINATOR=host:65536"}, NULL, "it must be HOST:PORT"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_COORDINATOR=::1:7690"}, NULL, "it must be HOST:PORT"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_COORDINATOR=a b:1"}, NULL, "it must be HOST:PORT"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_JOB=a/b"}, NULL, "WEFT_JOB is \"a/b\""},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_JOB=0123456789012345678901234567890x"}, NULL, "1 to 31"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_MEMBER=12"}, NULL, "WEFT_MEMBER is \"12\"; it must be 16"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_MEMBER=0000000000000000"}, NULL, "not all zero"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_LOCAL_RANK=x"}, NULL, "WEFT_LOCAL_RANK"},
    {WEFT_LAUNCH_WORKER, 1, {"WEFT_RESTART=x"}, NULL, "WEFT_RESTART"},
    /* ps-lite's */
    {WEFT_LAUNCH_ANY,
     1,
     {"DMLC_ROLE=worker", "DMLC_NUM_WORKER=2", "DMLC_NUM_SERVER=3", "DMLC_PS_ROOT_URI=10.1.1.1",
      "DMLC_PS_ROOT_PORT=9000"},
     "worker, rank open, 2 workers (DMLC_NUM_WORKER), 3 shards (DMLC_NUM_SERVER), coordinator "
     "10.1.1.1:9000 (DMLC_PS_ROOT_*)",
     NULL},
    {WEFT_LAUNCH_WORKER,
     1,
     {"DMLC_WORKER_ID=1", "DMLC_SERVER_ID=0", "DMLC_NUM_WORKER=2"},
     "worker 1 (DMLC_WORKER_ID), 2 workers (DMLC_NUM_WORKER)",
     NULL},
    {WEFT_LAUNCH_SERVER,
     2,
     {"DMLC_SERVER_ID=1", "DMLC_NUM_SERVER=2"},
     "server 1 (DMLC_SERVER_ID), 4 shards (DMLC_NUM_SERVER)",
     NULL},
    {WEFT_LAUNCH_WORKER, 1, {"DMLC_RANK=0"}, "worker 0 (DMLC_RANK)", NULL},
    {WEFT_LAUNCH_SERVER, 1, {"DMLC_ROLE=worker"}, NULL, "DMLC_ROLE says"},
    {WEFT_LAUNCH_SERVER, 1, {"DMLC_ROLE=worker", "WEFT_ROLE=server"}, "server, rank open", NULL},
    {WEFT_LAUNCH_WORKER, 1, {"DMLC_PS_ROOT_URI=h"}, NULL, "DMLC_PS_ROOT_URI is set, but"},
    {WEFT_LAUNCH_WORKER, 1, {"DMLC_PS_ROOT_PORT=1"}, NULL, "DMLC_PS_ROOT_PORT is set, but"},
    {WEFT_LAUNCH_WORKER,
     1,
     {"DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=x"},
     NULL,
     "DMLC_PS_ROOT_PORT is \"x\"; it must be a port"},
    {WEFT_LAUNCH_WORKER,
     1,
     {"DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1", "WEFT_COORDINATOR=g:2"},
     "worker, rank open, coordinator g:2 (WEFT_COORDINATOR)",
     NULL},
    /* torchrun */
    {WEFT_LAUNCH_WORKER,
     1,
     {"RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=node0",
      "MASTER_PORT=29500"},
     "worker 5 (torchrun), 8 workers (torchrun), coordinator node0:29500 (MASTER_ADDR)",
     NULL},
    {WEFT_LAUNCH_WORKER,
     1,
     {"RANK=5", "WORLD_SIZE=8", "MASTER_ADDR=node0", "MASTER_PORT=29500",
      "WEFT_SERVERS=10.0.0.1:1"},
     "worker 5 (torchrun), 8 workers (torchrun), servers from WEFT_SERVERS",
     NULL},
    {WEFT_LAUNCH_WORKER, 1, {"RANK=5"}, NULL, "RANK is set, but WORLD_SIZE is not"},
    {WEFT_LAUNCH_WORKER, 1, {"WORLD_SIZE=5"}, NULL, "WORLD_SIZE is set, but RANK is not"},
    {WEFT_LAUNCH_WORKER, 1, {"RANK=8", "WORLD_SIZE=8"}, NULL, "RANK is 8, but WORLD_SIZE is only"},
    {WEFT_LAUNCH_WORKER,
     1,
     {"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=h"},
     NULL,
     "MASTER_ADDR is set, but MASTER_PORT is not"},
    {WEFT_LAUNCH_WORKER, 1, {"MASTER_ADDR=h", "MASTER_PORT=1"}, "worker, rank open", NULL},
    {WEFT_LAUNCH_WORKER,
     1,
     {"RANK=x", "WORLD_SIZE=1", "WEFT_RANK=0", "WEFT_WORKERS=1"},
     "worker 0 (WEFT_RANK), 1 workers (WEFT_WORKERS)",
     NULL}, /* not needed, so not checked */
    /* Open MPI, also with its own PMIX_RANK and within a Slurm job */
    {WEFT_LAUNCH_WORKER,
     1,
     {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0",
      "PMIX_RANK=2", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=2"},
     "worker 2 (OMPI_COMM_WORLD_*), 4 workers (OMPI_COMM_WORLD_*)",
     NULL},
    {WEFT_LAUNCH_WORKER,
     1,
     {"OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=7", "OMPI_FIRST_RANKS=0 0 0",
      "OMPI_APP_CTX_NUM_PROCS=1 2 4"},
     "worker 2 (OMPI_COMM_WORLD_*), 4 workers (OMPI_COMM_WORLD_*)",
     NULL},
    {WEFT_LAUNCH_SERVER,
     2,
     {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=7", "OMPI_FIRST_RANKS=0 0 0",
      "OMPI_APP_CTX_NUM_PROCS=1 2 4"},
     "server 1 (OMPI_COMM_WORLD_*), 4 shards (OMPI_COMM_WORLD_*)",
     NULL},
    {WEFT_LAUNCH_WORKER,
     1,
     {"OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=7", "OMPI_APP_CTX_NUM_PROCS=1 2 5",
      "WEFT_WORKERS=4"},
     "worker, rank open (OMPI_COMM_WORLD_* counts other processes, too), 4 workers (WEFT_WORKERS)",
     NULL},
    {WEFT_LAUNCH_SERVER,
     1,
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=3", "WEFT_SHARDS=2"},
     "server, rank open (OMPI_COMM_WORLD_* counts other processes, too), 2 shards (WEFT_SHARDS)",
     NULL},
    {WEFT_LAUNCH_WORKER,
     1,
     {"RANK=1", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"},
     "worker 1 (torchrun), 2 workers (torchrun)",
     NULL},
    {WEFT_LAUNCH_WORKER, 1, {"OMPI_COMM_WORLD_SIZE=2"}, NULL, "OMPI_COMM_WORLD_RANK is not"},
    /* PMI and PMIx */
    {WEFT_LAUNCH_WORKER,
     1,
     {"PMI_RANK=1", "PMI_SIZE=2", "PMIX_RANK=0"},
     "worker 1 (PMI_*), 2 workers (PMI_*)",
     NULL},
    {WEFT_LAUNCH_WORKER, 1, {"PMI_RANK=1"}, NULL, "PMI_RANK is set, but PMI_SIZE is not"},
    {WEFT_LAUNCH_WORKER,
     1,
     {"PMIX_RANK=3", "WEFT_WORKERS=4"},
     "worker 3 (PMIX_RANK), 4 workers (WEFT_WORKERS)",
     NULL},
    {WEFT_LAUNCH_WORKER, 1, {"PMIX_RANK=4", "WEFT_WORKERS=4"}, NULL, "rank 4 (from PMIX_RANK)"},
    /* Slurm */
    {WEFT_LAUNCH_WORKER,
     1,
     {"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=4", "SLURM_LOCALID=1"},
     "worker 1 (SLURM_*), 4 workers (SLURM_*)",
     NULL},
    {WEFT_LAUNCH_WORKER,
     1,
     {"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=2"},
     "worker 1 (SLURM_*), 2 workers (SLURM_*)",
     NULL},
    {WEFT_LAUNCH_WORKER, 1, {"SLURM_PROCID=0", "SLURM_NTASKS=4"}, "worker, rank open", NULL},
    {WEFT_LAUNCH_WORKER, 1, {"SLURM_STEP_ID=0", "SLURM_PROCID=1"}, NULL, "SLURM_STEP_NUM_TASKS"},
    {WEFT_LAUNCH_WORKER,
     1,
     {"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=4(x2)"},
     NULL,
     "SLURM_NTASKS is \"4(x2)\""},
    {WEFT_LAUNCH_COORDINATOR,
     1,
     {"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=4", "WEFT_WORKERS=3"},
     "coordinator, 3 workers (WEFT_WORKERS)",
     NULL},
};

static void sources(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weft_launch flags = weft_launch_nothing();
        struct weft_launch launch = weft_launch_nothing();
        struct weft_error error = {.text = ""};
        char text[WEFT_LAUNCH_TEXT_BYTES];
        flags.role = rows[i].role;
        weft_status status =
            weft_launch_detect(&flags, rows[i].shards_per_server, lookup,
                               (void *)(uintptr_t)rows[i].variables, &launch, &error);
        if (rows[i].error != NULL) {
            if (status != WEFT_INVALID || strstr(error.text, rows[i].error) == NULL) {
                fail_msg("row %zu: status %d, \"%s\"", i, (int)status, error.text);
            }
            assert_null(launch.rank_from); /* outputs are written only on success */
            continue;
        }
        if (status != WEFT_OK) {
            fail_msg("row %zu: %s", i, error.text);
        }
        weft_launch_text(&launch, text, sizeof(text));
        assert_string_equal(text, rows[i].text);
    }
}

static void flags_win(void **state)
{
    (void)state;
    static const char *const variables[] = {
        "WEFT_RANK=3",      "WEFT_WORKERS=x", "WEFT_COORDINATOR=x",
        "WEFT_SERVERS=env", "RANK=1",         "WORLD_SIZE=x",
        "WEFT_SHARDS=x",    "WEFT_JOB=a",     NULL};
    struct weft_launch flags = weft_launch_nothing();
    struct weft_launch launch;
    flags.role = WEFT_LAUNCH_WORKER;
    flags.rank = 1;
    flags.workers = 2;
    flags.shards = 7;
    flags.servers = "flag";
    strcpy(flags.job, "b");
    strcpy(flags.coordinator_host, "h");
    flags.coordinator_port = 1;
    assert_int_equal(
        weft_launch_detect(&flags, 1, lookup, (void *)(uintptr_t)variables, &launch, NULL),
        WEFT_OK);
    assert_int_equal(launch.rank, 1);
    assert_int_equal(launch.workers, 2);
    assert_int_equal(launch.shards, 7);
    assert_string_equal(launch.servers, "flag");
    assert_string_equal(launch.job, "b");
    assert_string_equal(launch.coordinator_host, "h");
    assert_string_equal(launch.rank_from, "--rank");
}

static void numbers(void **state)
{
    (void)state;
    static const char *const variables[] = {"WEFT_MEMBER=00000000000000fa", "WEFT_RESTART=4",
                                            "WEFT_LOCAL_RANK=2",
                                            "WEFT_JOB=0123456789012345678901234567890", NULL};
    struct weft_launch flags = weft_launch_nothing();
    struct weft_launch launch;
    assert_int_equal(
        weft_launch_detect(&flags, 1, lookup, (void *)(uintptr_t)variables, &launch, NULL),
        WEFT_OK);
    assert_int_equal(launch.member, 0xfa);
    assert_int_equal(launch.restart, 4);
    assert_int_equal(launch.local_rank, 2);
    assert_string_equal(launch.job, "0123456789012345678901234567890");
}

static void endpoints(void **state)
{
    (void)state;
    char host[8];
    uint16_t port;
    assert_true(weft_launch_endpoint_parse("h:1,x", 3, host, sizeof(host), &port));
    assert_string_equal(host, "h");
    assert_int_equal(port, 1);
    assert_true(weft_launch_endpoint_parse("[::1]:65535", 11, host, sizeof(host), &port));
    assert_string_equal(host, "::1");
    assert_int_equal(port, 65535);
    static const char *const bad[] = {"",  ":",      ":1",      "h",      "h:",    "h:-1",
                                      "h", "h:1x",   "h:+1",    "[]:1",   "a,b:1", "h:100000",
                                      "12345678:1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(weft_launch_endpoint_parse(bad[i], strlen(bad[i]), host, sizeof(host), &port));
    }
    assert_int_equal(port, 65535);
}

static void lists_of_servers(void **state)
{
    (void)state;
    struct weft_launch_address servers[3];
    uint32_t count;
    assert_null(weft_launch_servers_parse("10.0.0.1:7700,[::1]:7701", servers, 3, &count));
    assert_int_equal(count, 2);
    assert_string_equal(servers[0].host, "10.0.0.1");
    assert_string_equal(servers[1].host, "::1");
    assert_int_equal(servers[1].port, 7701);
    /* Invalid, or too long. */
    static const struct {
        const char *text;
        size_t at;
    } bad[] = {{"", 0},      {"a:1,", 4},   {",a:1", 0},           {"a:1,b,c:3", 4},
               {"::1:7", 0}, {"a:1;b:2", 0}, {"a:1,b:2,c:3,d:4", 12}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_ptr_equal(weft_launch_servers_parse(bad[i].text, servers, 3, &count),
                         bad[i].text + bad[i].at);
    }
    assert_int_equal(count, 3);
}

static void numbers_of_the_environment(void **state)
{
    (void)state;
    struct weft_error error;
    uint64_t number = 7;
    unsetenv("WEFT_RECONNECT_S");
    assert_int_equal(weft_launch_number("WEFT_RECONNECT_S", 1, 60, &number, &error), WEFT_OK);
    assert_int_equal(setenv("WEFT_RECONNECT_S", "", 1), 0);
    assert_int_equal(weft_launch_number("WEFT_RECONNECT_S", 1, 60, &number, &error), WEFT_OK);
    assert_int_equal(number, 7);
    static const char *const bad[] = {"0", "61", "5s", "-1", " 5", "18446744073709551616"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(setenv("WEFT_RECONNECT_S", bad[i], 1), 0);
        assert_int_equal(weft_launch_number("WEFT_RECONNECT_S", 1, 60, &number, &error),
                         WEFT_INVALID);
        assert_non_null(strstr(error.text, "WEFT_RECONNECT_S is \""));
    }
    assert_int_equal(setenv("WEFT_RECONNECT_S", "60", 1), 0);
    assert_int_equal(weft_launch_number("WEFT_RECONNECT_S", 1, 60, &number, NULL), WEFT_OK);
    assert_int_equal(number, 60);
    unsetenv("WEFT_RECONNECT_S");

    assert_int_equal(setenv("WEFT_PEER_TIMEOUT_S", "9", 1), 0);
    assert_int_equal(weft_launch_peer_timeout_s(5), 9);
    assert_int_equal(setenv("WEFT_PEER_TIMEOUT_S", "0", 1), 0);
    assert_int_equal(weft_launch_peer_timeout_s(5), 0);
    assert_int_equal(weft_launch_peer_timeout_check(&error), WEFT_INVALID);
    unsetenv("WEFT_PEER_TIMEOUT_S");
    assert_int_equal(weft_launch_peer_timeout_s(5), 5);
    assert_int_equal(weft_launch_peer_timeout_check(&error), WEFT_OK);
}

static void environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("WEFT_RANK", "6", 1), 0);
    assert_string_equal(weft_launch_environment(NULL, "WEFT_RANK"), "6");
    assert_int_equal(unsetenv("WEFT_RANK"), 0);
    assert_null(weft_launch_environment(NULL, "WEFT_RANK"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources),          cmocka_unit_test(flags_win),
        cmocka_unit_test(numbers),          cmocka_unit_test(endpoints),
        cmocka_unit_test(lists_of_servers), cmocka_unit_test(numbers_of_the_environment),
        cmocka_unit_test(environment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
