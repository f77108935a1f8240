/* Command-line arguments for the processes of a training job, shared by `weft train` and `weft
 * run`. */
#ifndef WEFT_CLI_TRAIN_ARGS_H
#define WEFT_CLI_TRAIN_ARGS_H

#include "cli/train/job.h"
#include "job/args.h"
#include "node/checkpoint.h"

/* For servers and workers: fault injection and the busy-poll time. */
void weft_train_args_path(const struct weft_job *job, struct weft_args *args);

/* For all processes: the transport and its security, without the key. */
void weft_train_args_transport(const struct weft_transport_options *transport,
                               const struct weft_security *security, struct weft_args *args);

/* For servers: rows and checkpoints. */
void weft_train_args_server(const struct weft_job *job,
                            const struct weft_checkpoint_options *checkpoints,
                            struct weft_args *args);

/* For workers: the model, the data, and the training options. Call after weft_job_settle. */
void weft_train_args_worker(const struct weft_job *job, const char *data_path,
                            struct weft_args *args);

#endif
