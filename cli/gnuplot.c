#include "cli/gnuplot.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_NOT_FOUND = 127, EXIT_NOT_RUN = 126 };

enum weft_gnuplot weft_gnuplot_run(const char *verb, const char *folder, const char *script)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(folder) == 0) {
            execlp("gnuplot", "gnuplot", script, (char *)NULL);
        }
        _exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    bool exited = pid > 0 && WIFEXITED(status);
    if (exited && WEXITSTATUS(status) == 0) {
        return WEFT_GNUPLOT_DRAWN;
    }
    if (exited && WEXITSTATUS(status) == EXIT_NOT_FOUND) {
        return WEFT_GNUPLOT_MISSING;
    }
    fprintf(stderr, "weft %s: gnuplot failed on %s/%s\n", verb, folder, script);
    return WEFT_GNUPLOT_FAILED;
}
