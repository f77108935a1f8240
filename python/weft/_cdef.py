"""What libweft.so offers, as cffi reads it. Written by make_cdef.py from the headers: do not edit."""

VERSION = "0.2.0"

SOURCE = """
typedef enum {
    WEFT_OK,
    WEFT_AGAIN,
    WEFT_INVALID,
    WEFT_STATE,
    WEFT_NOMEM,
    WEFT_PROTO,
    WEFT_NOTFOUND,
    WEFT_EXISTS,
    WEFT_IO,
    WEFT_DATA,
    WEFT_PEER,
    WEFT_TIMEOUT,
    WEFT_UNSUPPORTED,
    WEFT_DROPPED,
} weft_status;
const char *weft_status_name(weft_status status);
const char *weft_status_text(weft_status status);
const char *weft_version(void);
enum weft_transport_security {
    WEFT_TRANSPORT_AUTH,
    WEFT_TRANSPORT_SEAL,
    WEFT_TRANSPORT_NONE,
};
struct weft_ps;
struct weft_ps_config {
    size_t size;
    const char *servers;
    const char *key_file;
    const uint8_t *key;
    uint32_t security;
    uint32_t worker;
    uint32_t workers;
    uint32_t thread;
    const char *transport;
    const char *host;
    uint32_t tables_max;
    uint32_t dim_max;
    uint32_t ops_max;
    uint32_t rows_max;
    uint32_t missed_max;
    uint32_t busy_poll_us;
    uint64_t connect_timeout_ns;
    uint64_t peer_timeout_ns;
    uint64_t keepalive_ns;
    uint32_t inject_loss_ppm;
    uint32_t inject_seed;
    uint32_t lists_max;
    const char *coordinator;
    uint64_t reconnect_timeout_ns;
    const char *records;
    uint64_t replay_bytes;
    uint64_t call_timeout_ns;
    const char *metrics;
    const char *via;
    const char *scheduler;
    const char *consistency;
    uint64_t tau_max;
    uint64_t update_bytes_min;
    const char *rack;
    uint64_t hot_rows;
    const char *replicas;
    uint64_t link_mbps;
};
void weft_ps_config_init(struct weft_ps_config *config_p, size_t size);
weft_status weft_ps_connect(const struct weft_ps_config *config, struct weft_ps **ps_p);
void weft_ps_close(struct weft_ps *ps);
void weft_ps_abort(struct weft_ps *ps);
const char *weft_ps_error(const struct weft_ps *ps);
uint32_t weft_ps_worker(const struct weft_ps *ps);
uint32_t weft_ps_workers(const struct weft_ps *ps);
uint32_t weft_ps_shards(const struct weft_ps *ps);
const char *weft_ps_metrics(const struct weft_ps *ps);
struct weft_ps_table;
struct weft_table_options {
    size_t size;
    const char *name;
    const char *optimizer;
    const char *consistency;
    const char *admission;
    const char *eviction;
    const char *not_finite;
    uint64_t init_seed;
    uint64_t bytes_max;
    uint64_t length;
    uint32_t number;
    uint32_t dim;
    uint32_t workers;
    uint32_t init_skip;
    uint32_t admission_count;
    uint32_t admission_cells;
    uint32_t ttl;
    uint32_t rows_max;
    float learning_rate;
    float epsilon;
    float accumulator;
    float beta1;
    float beta2;
    float l1;
    float l2;
    float init_scale;
    float clip;
    uint32_t reserved;
    const char *average;
    uint32_t last_values_max;
    uint32_t feedback_rows;
    uint64_t deadline_ns;
    const char *value_type;
    const char *pull_value_type;
};
void weft_table_options_init(struct weft_table_options *options_p, size_t size,
                                      const char *optimizer);
weft_status weft_table_open(struct weft_ps *ps, const struct weft_table_options *options,
                                     struct weft_ps_table **table_p);
struct weft_ps_latency {
    uint64_t w_proc_ns;
    uint64_t w_queue_ns;
    uint64_t ps_proc_ns;
    uint64_t ps_queue_ns;
    uint64_t n_tx_ns;
    uint64_t ps_overlap_ns;
    uint64_t ps_wait_ns;
};
struct weft_result {
    size_t size;
    uint64_t elements_sent;
    uint64_t elements_delivered;
    uint64_t rows_missed;
    uint32_t chunks_refused;
    uint32_t requests;
    uint32_t requests_short;
    uint32_t clock;
    uint32_t shard;
    uint32_t reserved;
    struct weft_ps_latency latency;
    uint64_t requests_dropped;
};
weft_status weft_push(struct weft_ps_table *table, const uint64_t *ids, const float *rows,
                               size_t n, uint32_t bound_ppm, uint64_t *op_p);
weft_status weft_pull(struct weft_ps_table *table, const uint64_t *ids, float *rows_p,
                               size_t n, uint32_t bound_ppm, uint64_t *op_p);
weft_status weft_wait(struct weft_ps *ps, uint64_t op, uint64_t timeout_ns,
                               struct weft_result *result_p);
weft_status weft_test(struct weft_ps *ps, uint64_t op, struct weft_result *result_p);
bool weft_result_gap(const struct weft_ps *ps, size_t from, size_t *first_p,
                              size_t *count_p);
size_t weft_result_missed(const struct weft_ps *ps, uint64_t *bits_p, size_t words);
weft_status weft_push_wait(struct weft_ps_table *table, const uint64_t *ids,
                                    const float *rows, size_t n, uint32_t bound_ppm,
                                    struct weft_result *result_p);
weft_status weft_pull_wait(struct weft_ps_table *table, const uint64_t *ids, float *rows_p,
                                    size_t n, uint32_t bound_ppm, struct weft_result *result_p);
weft_status weft_push_range(struct weft_ps_table *table, uint64_t first,
                                     const float *values, size_t n, uint32_t bound_ppm,
                                     uint64_t *op_p);
weft_status weft_pull_range(struct weft_ps_table *table, uint64_t first, float *values_p,
                                     size_t n, uint32_t bound_ppm, uint64_t *op_p);
weft_status weft_push_range_wait(struct weft_ps_table *table, uint64_t first,
                                          const float *values, size_t n, uint32_t bound_ppm,
                                          struct weft_result *result_p);
weft_status weft_pull_range_wait(struct weft_ps_table *table, uint64_t first,
                                          float *values_p, size_t n, uint32_t bound_ppm,
                                          struct weft_result *result_p);
struct weft_push_list {
    struct weft_ps_table *table;
    const uint64_t *ids;
    uint64_t first;
    const float *rows;
    size_t n;
};
struct weft_pull_list {
    struct weft_ps_table *table;
    const uint64_t *ids;
    uint64_t first;
    float *rows_p;
    size_t n;
};
weft_status weft_push_lists(struct weft_ps *ps, const struct weft_push_list *lists,
                                     uint32_t count, uint32_t bound_ppm, uint64_t *op_p);
weft_status weft_pull_lists(struct weft_ps *ps, const struct weft_pull_list *lists,
                                     uint32_t count, uint32_t bound_ppm, uint64_t *op_p);
weft_status weft_push_lists_wait(struct weft_ps *ps, const struct weft_push_list *lists,
                                          uint32_t count, uint32_t bound_ppm,
                                          struct weft_result *result_p);
weft_status weft_pull_lists_wait(struct weft_ps *ps, const struct weft_pull_list *lists,
                                          uint32_t count, uint32_t bound_ppm,
                                          struct weft_result *result_p);
size_t weft_table_residuals(const struct weft_ps_table *table, uint64_t *ids_p,
                                     float *rows_p, size_t max);
struct weft_op_options {
    size_t size;
    uint32_t bound_ppm;
    uint32_t reserved;
    uint64_t fill;
    uint64_t deadline_ns;
    double norm;
};
void weft_op_options_init(struct weft_op_options *options_p, size_t size);
weft_status weft_push_with(struct weft_ps *ps, const struct weft_push_list *lists,
                                    uint32_t count, const struct weft_op_options *options,
                                    uint64_t *op_p);
weft_status weft_pull_with(struct weft_ps *ps, const struct weft_pull_list *lists,
                                    uint32_t count, const struct weft_op_options *options,
                                    uint64_t *op_p);
weft_status weft_clock(struct weft_ps_table *table);
uint32_t weft_clock_ended(const struct weft_ps_table *table);
weft_status weft_ps_checkpoint(struct weft_ps *ps, uint64_t *op_p);
void weft_ps_progress(struct weft_ps *ps, uint64_t timeout_ns);
weft_status weft_ps_flush(struct weft_ps *ps, uint64_t timeout_ns);
void weft_ps_idle(struct weft_ps *ps);
struct weft_ps_counters {
    size_t size;
    uint64_t push_messages;
    uint64_t push_messages_short;
    uint64_t push_elements_sent;
    uint64_t push_elements_delivered;
    uint64_t push_chunks_refused;
    uint64_t pull_messages;
    uint64_t pull_messages_short;
    uint64_t pull_elements_sent;
    uint64_t pull_elements_delivered;
    uint64_t missed_ids;
    uint64_t missed_ids_dropped;
    uint64_t clocks;
    uint64_t requests_refused;
    uint64_t requests_failed;
    uint64_t replies_malformed;
    uint64_t datagrams_sent;
    uint64_t datagrams_received;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t retransmitted_packets;
    uint64_t lost_packets;
    uint64_t injected_drops;
    uint64_t server_disconnects;
    uint64_t pushes_resent;
    uint64_t pushes_lost;
    uint64_t pushes_durable;
    uint64_t replay_bytes_now;
    uint64_t pushes_skipped;
    uint64_t last_values_evicted;
    uint64_t feedback_rows_now;
    uint64_t feedback_stored;
    uint64_t feedback_added;
    uint64_t feedback_dropped;
    uint64_t deadlines_expired;
    uint64_t residual_dropped;
    uint64_t value_bytes_saved;
    uint64_t updates;
    uint64_t updates_asked;
    uint64_t updates_direct;
    uint64_t updates_dropped;
    uint64_t pushes_late;
};
void weft_ps_counters_get(struct weft_ps *ps, struct weft_ps_counters *counters_p);
struct weft_comm;
struct weft_comm_config {
    size_t size;
    const char *host;
    const char *key_file;
    const uint8_t *key;
    uint32_t security;
    uint16_t port;
    uint16_t packet_bytes;
    uint32_t rank;
    uint32_t ranks;
    uint64_t epoch;
    uint32_t groups_max;
    uint32_t ops_max;
    uint64_t pool_bytes;
    uint64_t peer_timeout_ns;
    uint64_t op_timeout_ns;
    const char *congestion;
    const char *transport;
    uint32_t socket_buffer_bytes;
    uint32_t busy_poll_us;
    uint32_t inject_loss_ppm;
    uint32_t inject_seed;
    const char *box;
    uint64_t box_bytes_min;
    uint64_t box_timeout_ns;
    uint64_t box_retry_ns;
    uint32_t box_insecure;
    uint32_t box_job;
    uint32_t box_slots;
    uint32_t box_float32;
    int32_t box_exponent;
    uint32_t box_block_float;
    uint64_t link_bps;
    uint32_t plan;
    uint32_t reserved;
};
void weft_comm_config_init(struct weft_comm_config *config_p, size_t size);
weft_status weft_comm_open(const struct weft_comm_config *config,
                                    struct weft_comm **comm_p);
const char *weft_comm_address(const struct weft_comm *comm);
weft_status weft_comm_join(struct weft_comm *comm, const char *const *addresses,
                                    uint64_t timeout_ns);
void weft_comm_close(struct weft_comm *comm);
const char *weft_comm_error(const struct weft_comm *comm);
weft_status weft_comm_group(struct weft_comm *comm, const uint32_t *ranks, uint32_t n,
                                     uint32_t *group_p);
enum weft_comm_plan_form {
    WEFT_COMM_PLAN_NONE,
    WEFT_COMM_PLAN_AUTO,
    WEFT_COMM_PLAN_SLICES,
    WEFT_COMM_PLAN_TREES,
};
struct weft_comm_plan {
    size_t size;
    uint32_t form;
    uint32_t group;
    uint64_t up_bps;
    uint64_t down_bps;
    uint64_t late_ns;
    uint64_t host;
    uint64_t bytes;
    uint64_t timeout_ns;
};
void weft_comm_plan_init(struct weft_comm_plan *plan_p, size_t size);
struct weft_comm_planned {
    size_t size;
    uint32_t form;
    uint32_t hosts;
    uint32_t owners;
    uint32_t own_ppm;
    uint32_t parts;
    uint32_t depth;
    uint64_t equal_ns;
    uint64_t slices_ns;
    uint64_t trees_ns;
};
weft_status weft_comm_plan_set(struct weft_comm *comm, const struct weft_comm_plan *plan,
                                        struct weft_comm_planned *planned_p);
enum weft_comm_kind {
    WEFT_COMM_ALL_REDUCE,
    WEFT_COMM_REDUCE,
    WEFT_COMM_REDUCE_SCATTER,
    WEFT_COMM_ALL_GATHER,
    WEFT_COMM_BROADCAST,
    WEFT_COMM_GATHER,
    WEFT_COMM_SCATTER,
    WEFT_COMM_ALL_TO_ALL,
    WEFT_COMM_BARRIER,
    WEFT_COMM_SEND,
    WEFT_COMM_RECV,
};
enum weft_comm_type {
    WEFT_COMM_F32,
    WEFT_COMM_F64,
    WEFT_COMM_F16,
    WEFT_COMM_BF16,
    WEFT_COMM_I8,
    WEFT_COMM_U8,
    WEFT_COMM_I32,
    WEFT_COMM_I64,
};
enum weft_comm_reduction {
    WEFT_COMM_SUM,
    WEFT_COMM_MEAN,
    WEFT_COMM_MIN,
    WEFT_COMM_MAX,
    WEFT_COMM_PRODUCT,
    WEFT_COMM_AND,
    WEFT_COMM_OR,
    WEFT_COMM_XOR,
};
struct weft_comm_op {
    size_t size;
    uint32_t kind;
    uint32_t type;
    uint32_t reduction;
    uint32_t group;
    uint32_t root;
    uint32_t peer;
    uint32_t tag;
    uint32_t bound_ppm;
    uint64_t count;
    const void *in;
    void *out;
    float *residual;
    uint8_t *missed;
    uint32_t stream;
    uint32_t reserved;
    uint64_t timeout_ns;
    void *user;
};
void weft_comm_op_init(struct weft_comm_op *op_p, size_t size);
weft_status weft_comm_begin(struct weft_comm *comm, const struct weft_comm_op *op,
                                     uint64_t *id_p);
enum weft_comm_boxed {
    WEFT_COMM_WITHOUT_BOX,
    WEFT_COMM_BOXED,
    WEFT_COMM_FALLBACK,
};
struct weft_comm_done {
    size_t size;
    uint64_t id;
    void *user;
    uint32_t status;
    uint32_t contributors_min;
    uint64_t own_missing;
    uint64_t nonfinite;
    uint64_t contributions_ns;
    uint64_t total_ns;
    uint32_t boxed;
    uint32_t reserved;
};
weft_status weft_comm_wait(struct weft_comm *comm, uint64_t id, uint64_t timeout_ns,
                                    struct weft_comm_done *done_p);
weft_status weft_comm_wait_any(struct weft_comm *comm, uint64_t timeout_ns,
                                        struct weft_comm_done *done_p);
weft_status weft_comm_run(struct weft_comm *comm, const struct weft_comm_op *op,
                                   struct weft_comm_done *done_p);
weft_status weft_comm_fd(struct weft_comm *comm, int *fd_p);
void weft_comm_abort(struct weft_comm *comm, const char *text);
const char *weft_comm_failure(struct weft_comm *comm);
struct weft_comm_counters {
    size_t size;
    uint64_t operations;
    uint64_t operations_done;
    uint64_t messages_sent;
    uint64_t message_bytes_sent;
    uint64_t elements_missing;
    uint64_t own_elements_missing;
    uint64_t nonfinite;
    uint64_t early_messages;
    uint64_t connections_refused;
    uint64_t datagrams_sent;
    uint64_t datagrams_received;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t retransmitted_packets;
    uint64_t box_operations;
    uint64_t box_fallbacks;
    uint64_t box_direct_elements;
    uint64_t box_packets_resent;
    uint64_t box_state;
    uint64_t box_retries;
    uint64_t box_recoveries;
    uint64_t plan_operations;
    uint64_t plan_trees;
};
enum weft_comm_box_state {
    WEFT_COMM_BOX_NONE,
    WEFT_COMM_BOX_UNTRIED,
    WEFT_COMM_BOX_TRIAL,
    WEFT_COMM_BOX_USED,
    WEFT_COMM_BOX_FAILED,
};
const char *weft_comm_box_failure(struct weft_comm *comm);
void weft_comm_counters_get(struct weft_comm *comm, struct weft_comm_counters *counters_p);
"""
