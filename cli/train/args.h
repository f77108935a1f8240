/* A training job as arguments of its processes: what is the same whether `weft train`
 * runs them or `weft run` does.
 */
#ifndef WEFT_CLI_TRAIN_ARGS_H
#define WEFT_CLI_TRAIN_ARGS_H

#include "cli/train/job.h"
#include "job/args.h"
#include "node/checkpoint.h"

/* Of servers and workers: what is done to packets on purpose, and how long a socket is looked at. */
void weft_train_args_path(const struct weft_job *job, struct weft_args *args);

/* Of all processes: the transport, and how it is secured, but for the key. */
void weft_train_args_transport(const struct weft_transport_options *transport,
                              const struct weft_security *security,
                              struct weft_args *args);

/* Of servers: rows, checkpoints. */
void weft_train_args_server(const struct weft_job *job,
                             const struct weft_checkpoint_options *checkpoints,
                             struct weft_args *args);

/* Of workers: the model, the data, and how it is trained. After weft_job_settle. */
void weft_train_args_worker(const struct weft_job *job, const char *data_path,
                             struct weft_args *args);

#endif
