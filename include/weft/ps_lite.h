/* A ps-lite compatible interface to weft's parameter server, with push, pull and wait: to port a
 * program, change an include. C++11, header only, on top of <weft/ps.h>. It was written from
 * ps-lite's published interface, without its code.
 *
 *     #include <weft/ps_lite.h>          in place of "ps/ps.h"
 *     ps::Start(0);
 *     ps::KVWorker<float> kv(0, 0);
 *     kv.Wait(kv.Push(keys, vals));      keys: std::vector<ps::Key>
 *     kv.Wait(kv.Pull(keys, &vals));
 *     ps::Finalize(0);
 *
 * A push adds to the stored values, like ps-lite's default handler, which is store[key] += value.
 * Table number app_id is opened with SGD of learning rate -W in "asp" (W = number of workers), so
 * that the server's w -= rate x value / W adds the value. If W is not a power of two, (x / W) x W
 * may differ from x in the last bit. A key that was never pushed reads as 0.
 *
 * Differences from ps-lite:
 *   - The program contains no server: start `weft server --workers W`. In a process that was
 *     started with DMLC_ROLE=server or scheduler, ps::Start throws an Error. KVServer with
 *     KVServerDefaultHandle compiles, but does nothing; another handler does not compile.
 *     Optimizers, bounded loss, BSP and SSP are in <weft/ps.h>.
 *   - Addresses and ranks: WEFT_COORDINATOR or WEFT_SERVERS, WEFT_RANK, WEFT_WORKERS and
 *     WEFT_JOB_KEY (man weft_ps). If one is not set, the DMLC variables are used: DMLC_PS_ROOT_URI
 *     and DMLC_PS_ROOT_PORT, the address of a `weft coordinator`; DMLC_WORKER_ID or DMLC_RANK;
 *     DMLC_NUM_WORKER.
 *   - Values are floats, and all keys of a table have the same number of values. The first push or
 *     pull of the table sets that number: values / keys of its vectors, or 1 for a pull into an
 *     empty vector.
 *     `lens` of a push, if given, must match; a pull writes its `lens`.
 *   - Keys may have any order and may repeat. cmd and priority are ignored.
 *   - Callbacks run in the thread that calls Wait (or Push, Pull, Finalize).
 *   - Start waits for the servers, not for other workers; Finalize waits until this worker's pushes
 *     are acknowledged, not for other workers. There is no Barrier.
 *   - Errors for which ps-lite aborts the process are thrown as ps::Error.
 *   - ps-lite does not limit operations in progress; here Push and Pull wait for older ones while
 *     16 are in progress.
 *
 * Thread:  any; calls are serialised, including Wait. Only NumWorkers, NumServers and MyRank are
 *          not: do not call them while another thread is in Start or Finalize. A library thread
 *          sends and receives, so a program may compute for any length of time.
 */
#ifndef WEFT_PS_LITE_H
#define WEFT_PS_LITE_H

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#include <weft/ps.h>

namespace ps
{

using Key = uint64_t;
static const Key kMaxKey = std::numeric_limits<Key>::max();

/* what() returns the cause and the remedy. */
class Error : public std::runtime_error
{
  public:
    Error(weft_status status, const std::string &text) : std::runtime_error(text), status_(status)
    {
    }
    weft_status status() const
    {
        return status_;
    }

  private:
    weft_status status_;
};

namespace weft_detail
{

enum { OPS_MAX = 16, ROWS_MAX = 65536 };

/* A push or a pull of the caller: it has one timestamp, and one or more operations of
 * <weft/ps.h>. */
struct Request {
    std::vector<Key> keys; /* of a pull; borrowed by the library */
    size_t parts = 0;      /* operations that are not complete */
    bool begun = false;    /* all operations were begun */
    std::function<void()> callback;
    weft_status status = WEFT_OK;
    std::string text;
};

struct Table {
    weft_ps_table *table = nullptr;
    size_t dim = 0;
};

/* One instance for the process, as in ps-lite. */
struct Node {
    std::recursive_mutex mutex; /* a callback may push */
    weft_ps *ps = nullptr;
    int timestamp = 0;
    std::map<int, Table> tables;
    std::map<int, Request> requests;                /* by timestamp; not complete, or failed */
    std::deque<std::pair<uint64_t, int>> under_way; /* (operation, timestamp) pairs, oldest first */
    std::vector<std::function<void()>> exit_callbacks;

    static Node &get()
    {
        static Node node;
        return node;
    }
};

using Lock = std::lock_guard<std::recursive_mutex>;

inline std::string role()
{
    const char *text = std::getenv("DMLC_ROLE");
    return text != nullptr ? text : "worker";
}

inline void need_start(const Node &node)
{
    if (node.ps == nullptr) {
        throw Error(WEFT_STATE, "not connected: call ps::Start first, and ps::Finalize "
                                "last");
    }
}

inline void must(const Node &node, weft_status status)
{
    if (status != WEFT_OK) {
        throw Error(status, weft_ps_error(node.ps));
    }
}

/* One part of a request is complete. */
inline void part_done(Node &node, int timestamp, weft_status status, const std::string &text)
{
    auto found = node.requests.find(timestamp);
    Request &request = found->second;
    request.parts--;
    if (status != WEFT_OK && request.status == WEFT_OK) {
        request.status = status;
        request.text = text;
    }
    if (request.parts > 0 || !request.begun || request.status != WEFT_OK) {
        return; /* a failed request stays until Wait is called for it */
    }
    std::function<void()> callback = std::move(request.callback);
    node.requests.erase(found);
    if (callback) {
        callback();
    }
}

inline void finish_oldest(Node &node)
{
    std::pair<uint64_t, int> oldest = node.under_way.front();
    node.under_way.pop_front();
    weft_status status = weft_wait(node.ps, oldest.first, WEFT_NEVER, nullptr);
    part_done(node, oldest.second, status, status == WEFT_OK ? "" : weft_ps_error(node.ps));
}

/* Begin one operation; while all slots are in use, wait for an older one first. */
template <typename Begin> void begin_part(Node &node, int timestamp, Begin begin)
{
    uint64_t op = 0;
    weft_status status = begin(&op);
    while (status == WEFT_AGAIN && !node.under_way.empty()) {
        finish_oldest(node);
        status = begin(&op);
    }
    if (status != WEFT_OK) {
        part_done(node, timestamp, status, weft_ps_error(node.ps));
        return;
    }
    node.under_way.emplace_back(op, timestamp);
}

/* The table of an app, with `dim` values for each key. dim = 0: the table's dim, or 1 for a new
 * table. */
inline Table &table_of(Node &node, int app_id, size_t dim)
{
    Table &table = node.tables[app_id];
    if (table.table == nullptr) {
        weft_table_options options;
        weft_table_options_init(&options, sizeof(options), "sgd");
        table.dim = dim > 0 ? dim : 1;
        options.number = static_cast<uint32_t>(app_id);
        options.dim = static_cast<uint32_t>(table.dim);
        options.consistency = "asp";
        options.learning_rate = -static_cast<float>(weft_ps_workers(node.ps));
        must(node, weft_table_open(node.ps, &options, &table.table));
    }
    if (dim != 0 && dim != table.dim) {
        throw Error(WEFT_INVALID, "this KVWorker has " + std::to_string(table.dim) +
                                      " values for each key, but this call has " +
                                      std::to_string(dim) + "; use another app_id for them");
    }
    return table;
}

/* Number of values per key, computed from both counts; lens must match. */
inline size_t dim_of(size_t keys, size_t values, const std::vector<int> *lens)
{
    if (keys == 0 || values % keys != 0) {
        if (keys == 0 && values == 0) {
            return 0;
        }
        throw Error(WEFT_INVALID, std::to_string(values) + " values do not divide among " +
                                      std::to_string(keys) + " keys");
    }
    if (lens != nullptr && !lens->empty()) {
        if (lens->size() != keys) {
            throw Error(WEFT_INVALID, "lens has another length than keys");
        }
        for (int length : *lens) {
            if (length < 0 || static_cast<size_t>(length) != values / keys) {
                throw Error(WEFT_UNSUPPORTED, "lens differ from key to key; keep keys of each "
                                              "length in a KVWorker (an app_id) of their own");
            }
        }
    }
    return values / keys;
}

} // namespace weft_detail

/* ---- the process ----------------------------------------------------------------------------- */

inline bool IsWorker()
{
    return weft_detail::role() == "worker";
}
inline bool IsServer()
{
    return weft_detail::role() == "server";
}
inline bool IsScheduler()
{
    return weft_detail::role() == "scheduler";
}

/* Connect to the servers; waits for them up to 60 s. */
inline void Start(int customer_id, const char *argv0 = nullptr)
{
    (void)customer_id;
    (void)argv0;
    weft_detail::Node &node = weft_detail::Node::get();
    weft_detail::Lock lock(node.mutex);
    if (!IsWorker()) {
        throw Error(WEFT_UNSUPPORTED, "DMLC_ROLE is " + weft_detail::role() +
                                          ", and this program is a worker only: start `weft "
                                          "server` in place of servers, and `weft coordinator` "
                                          "(not needed with WEFT_SERVERS) in place of the "
                                          "scheduler");
    }
    if (node.ps != nullptr) {
        return;
    }
    weft_ps_config config;
    weft_ps_config_init(&config, sizeof(config));
    config.thread = 1;
    config.ops_max = weft_detail::OPS_MAX;
    config.rows_max = weft_detail::ROWS_MAX;
    weft_status status = weft_ps_connect(&config, &node.ps);
    if (status != WEFT_OK) {
        throw Error(status, weft_ps_error(nullptr));
    }
}
inline void Start(const char *argv0 = nullptr)
{
    Start(0, argv0);
}

/* Wait for all operations, then disconnect. Callbacks of RegisterExitCallback run last. */
inline void Finalize(int customer_id = 0, bool do_barrier = true)
{
    (void)customer_id;
    (void)do_barrier;
    weft_detail::Node &node = weft_detail::Node::get();
    weft_detail::Lock lock(node.mutex);
    if (node.ps != nullptr) {
        while (!node.under_way.empty()) {
            weft_detail::finish_oldest(node);
        }
        weft_ps_close(node.ps);
        node.ps = nullptr;
        node.tables.clear();
        node.requests.clear();
    }
    std::vector<std::function<void()>> callbacks;
    callbacks.swap(node.exit_callbacks);
    for (const auto &callback : callbacks) {
        callback();
    }
}

inline void RegisterExitCallback(const std::function<void()> &callback)
{
    weft_detail::Node &node = weft_detail::Node::get();
    weft_detail::Lock lock(node.mutex);
    node.exit_callbacks.push_back(callback);
}

inline int NumWorkers()
{
    weft_detail::need_start(weft_detail::Node::get());
    return static_cast<int>(weft_ps_workers(weft_detail::Node::get().ps));
}
/* Number of shards, the counterpart of ps-lite's server processes. */
inline int NumServers()
{
    weft_detail::need_start(weft_detail::Node::get());
    return static_cast<int>(weft_ps_shards(weft_detail::Node::get().ps));
}
inline int MyRank()
{
    weft_detail::need_start(weft_detail::Node::get());
    return static_cast<int>(weft_ps_worker(weft_detail::Node::get().ps));
}

/* ---- a worker -------------------------------------------------------------------------------- */

template <typename Val> class KVWorker
{
    static_assert(std::is_same<Val, float>::value, "values are floats");

  public:
    using Callback = std::function<void()>;

    /* app_id: the number of the table, below the server's --tables. */
    explicit KVWorker(int app_id, int customer_id = 0) : app_id_(app_id)
    {
        (void)customer_id;
    }

    /* Add vals to keys. Both may be changed or freed when Push returns. Returns a timestamp for
     * Wait. */
    int Push(const std::vector<Key> &keys, const std::vector<Val> &vals,
             const std::vector<int> &lens = {}, int cmd = 0, const Callback &callback = nullptr,
             int priority = 0)
    {
        (void)cmd;
        (void)priority;
        using namespace weft_detail;
        Node &node = Node::get();
        Lock lock(node.mutex);
        need_start(node);
        size_t dim = dim_of(keys.size(), vals.size(), &lens);
        Table &table = table_of(node, app_id_, dim);
        int timestamp = begin_request(node, callback, nullptr);
        push_parts(node, table, timestamp, keys, vals);
        return all_begun(node, timestamp);
    }

    /* Fetch the values of keys. An empty vals is resized. vals must stay valid until Wait returns
     * or the callback runs. lens may be NULL; it is written before Pull returns. keys may be
     * changed or freed when Pull returns. */
    int Pull(const std::vector<Key> &keys, std::vector<Val> *vals, std::vector<int> *lens = nullptr,
             int cmd = 0, const Callback &callback = nullptr, int priority = 0)
    {
        (void)cmd;
        (void)priority;
        using namespace weft_detail;
        Node &node = Node::get();
        Lock lock(node.mutex);
        need_start(node);
        Table &table = prepare_pull(node, keys, vals, lens);
        int timestamp = begin_request(node, callback, &keys);
        pull_parts(node, table, timestamp, vals->data());
        return all_begun(node, timestamp);
    }

    /* Push, then pull: outs gets the values after this push and after earlier pushes of other
     * workers. */
    int PushPull(const std::vector<Key> &keys, const std::vector<Val> &vals, std::vector<Val> *outs,
                 std::vector<int> *lens = nullptr, int cmd = 0, const Callback &callback = nullptr,
                 int priority = 0)
    {
        (void)cmd;
        (void)priority;
        using namespace weft_detail;
        Node &node = Node::get();
        Lock lock(node.mutex);
        need_start(node);
        (void)table_of(node, app_id_, dim_of(keys.size(), vals.size(), lens));
        Table &table = prepare_pull(node, keys, outs, lens);
        int timestamp = begin_request(node, callback, &keys);
        push_parts(node, table, timestamp, keys, vals);
        pull_parts(node, table, timestamp, outs->data());
        return all_begun(node, timestamp);
    }

    /* Wait until the push or the pull is complete. Returns immediately if it is. Throws
     * Error if it failed. WEFT_DATA: the server rejected a part of it. */
    void Wait(int timestamp)
    {
        using namespace weft_detail;
        Node &node = Node::get();
        Lock lock(node.mutex);
        for (;;) {
            auto found = node.requests.find(timestamp);
            if (found == node.requests.end()) {
                return;
            }
            if (found->second.parts == 0) { /* failed */
                Error error(found->second.status, found->second.text);
                node.requests.erase(found);
                throw error;
            }
            need_start(node);
            finish_oldest(node);
        }
    }

  private:
    static int begin_request(weft_detail::Node &node, const Callback &callback,
                             const std::vector<Key> *keys)
    {
        int timestamp = node.timestamp++;
        weft_detail::Request &request = node.requests[timestamp];
        request.callback = callback;
        request.parts = 1; /* one more than the operations, so that the request is not complete
                            * before all have begun */
        if (keys != nullptr) {
            request.keys = *keys;
        }
        return timestamp;
    }

    static int all_begun(weft_detail::Node &node, int timestamp)
    {
        node.requests[timestamp].begun = true;
        weft_detail::part_done(node, timestamp, WEFT_OK, "");
        return timestamp;
    }

    /* Open the table and resize vals. */
    weft_detail::Table &prepare_pull(weft_detail::Node &node, const std::vector<Key> &keys,
                                     std::vector<Val> *vals, std::vector<int> *lens)
    {
        if (vals == nullptr) {
            throw Error(WEFT_INVALID, "there is no vector to pull into");
        }
        size_t dim = vals->empty() ? 0 : weft_detail::dim_of(keys.size(), vals->size(), nullptr);
        weft_detail::Table &table = weft_detail::table_of(node, app_id_, dim);
        vals->resize(keys.size() * table.dim);
        if (lens != nullptr) {
            lens->assign(keys.size(), static_cast<int>(table.dim));
        }
        return table;
    }

    static void push_parts(weft_detail::Node &node, weft_detail::Table &table, int timestamp,
                           const std::vector<Key> &keys, const std::vector<Val> &vals)
    {
        for (size_t at = 0; at < keys.size(); at += weft_detail::ROWS_MAX) {
            size_t n = part(keys.size() - at);
            node.requests[timestamp].parts++;
            weft_detail::begin_part(node, timestamp, [&](uint64_t *op_p) {
                return weft_push(table.table, keys.data() + at, vals.data() + at * table.dim, n, 0,
                                 op_p);
            });
        }
    }

    static void pull_parts(weft_detail::Node &node, weft_detail::Table &table, int timestamp,
                           Val *out)
    {
        const std::vector<Key> &keys = node.requests[timestamp].keys; /* in a std::map, so the
                                                                       * reference stays valid */
        for (size_t at = 0; at < keys.size(); at += weft_detail::ROWS_MAX) {
            size_t n = part(keys.size() - at);
            node.requests[timestamp].parts++;
            weft_detail::begin_part(node, timestamp, [&](uint64_t *op_p) {
                return weft_pull(table.table, keys.data() + at, out + at * table.dim, n, 0, op_p);
            });
        }
    }

    static size_t part(size_t left)
    {
        return left < weft_detail::ROWS_MAX ? left : static_cast<size_t>(weft_detail::ROWS_MAX);
    }

    int app_id_;
};

/* ---- servers (run `weft server`) ------------------------------------------------------------- */

template <typename Val> struct KVServerDefaultHandle {
};

template <typename Val> class KVServer
{
  public:
    explicit KVServer(int app_id)
    {
        (void)app_id;
    }
    void set_request_handle(const KVServerDefaultHandle<Val> &)
    {
    }
    template <typename Other> void set_request_handle(const Other &)
    {
        static_assert(std::is_same<Other, KVServerDefaultHandle<Val>>::value,
                      "`weft server` adds pushed values to the stored ones; for optimizers see "
                      "<weft/ps.h>, for server functions <weft/fabric.h>");
    }
};

} // namespace ps

#endif
