/* The progress of `weft train`: a stream to standard output, or error, that does not wait for its
 * reader while the processes of the job run. A pipe that nobody reads, or a stopped terminal, must
 * stop neither the job nor the answer to a signal. At the end the program waits for the reader. */
#define _GNU_SOURCE
#include "cli/train/internal.h"

#include <unistd.h>

/* The reader of a job that was interrupted may be gone, too: as `weft run`. */
static const uint64_t last_output_ns = WEFT_NS_PER_S;

static ssize_t write_progress(void *cookie, const char *bytes, size_t count)
{
    struct train *train = cookie;
    if (train->output != NULL) {
        weft_supervisor_write(train->output, train->progress_fd, bytes, count);
        return (ssize_t)count;
    }
    FILE *out = train->progress_fd == STDOUT_FILENO ? stdout : stderr;
    size_t written = fwrite(bytes, 1, count, out);
    return fflush(out) == 0 ? (ssize_t)written : 0;
}

bool weft_train_progress_open(struct train *train)
{
    const cookie_io_functions_t functions = {.write = write_progress};
    train->progress_fd = train->json ? STDERR_FILENO : STDOUT_FILENO;
    train->progress =
        train->quiet ? fopen("/dev/null", "we") : fopencookie(train, "w", functions);
    if (train->progress != NULL) {
        (void)setvbuf(train->progress, NULL, _IOLBF, BUFSIZ);
    }
    return train->progress != NULL;
}

bool weft_train_progress_finish(struct train *train)
{
    (void)fflush(train->progress);
    if (train->output == NULL) {
        return true;
    }
    const int signal = weft_supervisor_finish_output(
        train->output, train->interrupted != 0 ? last_output_ns : WEFT_NEVER);
    if (signal != 0) {
        weft_train_take_signal(train, signal);
    }
    return signal == 0;
}
