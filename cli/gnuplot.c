#include "cli/gnuplot.h"
#include "cli/options.h"
#include "cli/stop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_NOT_FOUND = 127, EXIT_CANNOT_EXECUTE = 126 };

enum weft_gnuplot weft_gnuplot_run(const char *verb, const char *folder, const char *script)
{
    pid_t pid = fork();
    if (pid == 0) {
        weft_stop_restore_pipes();
        if (chdir(folder) == 0) {
            execlp("gnuplot", "gnuplot", script, (char *)NULL);
        }
        _exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE);
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

bool weft_gnuplot_files_of(const char *path, struct weft_gnuplot_files *files_p)
{
    size_t bytes = strlen(path);
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    if (bytes + sizeof(".png") > WEFT_GNUPLOT_PATH_BYTES || name[0] == '\0' ||
        strpbrk(name, "'\n\r") != NULL) {
        return false;
    }
    size_t stem = strlen(name);
    stem -= stem > 4 && strcmp(name + stem - 4, ".png") == 0 ? 4 : 0;
    snprintf(files_p->folder, WEFT_GNUPLOT_PATH_BYTES, "%.*s",
             slash != NULL ? (int)(slash - path) + 1 : 1, slash != NULL ? path : ".");
    snprintf(files_p->png, WEFT_GNUPLOT_PATH_BYTES, "%.*s.png", (int)stem, name);
    snprintf(files_p->gp, WEFT_GNUPLOT_PATH_BYTES, "%.*s.gp", (int)stem, name);
    snprintf(files_p->gp_path, sizeof(files_p->gp_path), "%s/%s", files_p->folder, files_p->gp);
    return true;
}

bool weft_gnuplot_draw(const char *verb, const struct weft_gnuplot_files *files)
{
    enum weft_gnuplot drawn = weft_gnuplot_run(verb, files->folder, files->gp);
    if (drawn == WEFT_GNUPLOT_MISSING) {
        (void)weft_cli_fail(verb, "wrote %s but no plot: drawing it " WEFT_GNUPLOT_ADVICE,
                            files->gp_path);
    }
    return drawn == WEFT_GNUPLOT_DRAWN;
}
