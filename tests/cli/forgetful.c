/* For tests: a server that refuses every CLOCK above 3, as a real server does whose clock for the
 * rank differs from the worker's.
 *
 *     forgetful        prints its port, and serves until standard input ends; without security */
#include "../unit/api_ps_server.h"

#include <stdio.h>

int main(void)
{
    static struct test_server server;
    test_server_start(&server,
                      (struct ps_server_options){.shards = 1, .workers = 1, .clocks_max = 3});
    printf("%u\n", (unsigned)server.port);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    test_server_stop(&server);
    return 0;
}
