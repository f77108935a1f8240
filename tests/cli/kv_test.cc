// The semantics that <weft/ps_lite.h> promises, against a server with two workers of which this is
// one. Argument: the sum of what kv_worker's workers pushed to its last key for each repetition.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#include <weft/ps_lite.h>

static int failures = 0;

static void check(bool good, const char *what)
{
    if (!good) {
        std::printf("not so: %s\n", what);
        failures++;
    }
}

template <typename Call> static void check_error(Call call, weft_status status, const char *words)
{
    try {
        call();
        check(false, words);
    } catch (const ps::Error &error) {
        if (error.status() != status ||
            std::string(error.what()).find(words) == std::string::npos) {
            std::printf("%s instead of: %s\n", error.what(), words);
            failures++;
        }
    }
}

static void sums_add_up(double pushed)
{
    ps::KVWorker<float> kv(0, 0);
    const std::vector<ps::Key> key = {ps::kMaxKey / 1000 * 997};
    std::vector<float> sum;
    kv.Wait(kv.Pull(key, &sum));
    check(sum.size() == 1 && sum[0] == static_cast<float>(50 * pushed), "two workers' sums");
    std::vector<int> lens;
    kv.Wait(kv.Push(key, {0.5F}, {1}));
    std::vector<float> again;
    kv.Wait(kv.Pull(key, &again, &lens));
    check(again[0] == sum[0] + 0.5F, "a push adds");
    check(lens.size() == 1 && lens[0] == 1, "lens are filled in");
    std::vector<float> both;
    kv.Wait(kv.PushPull(key, {2.0F}, &both));
    check(both[0] == again[0] + 2.0F, "PushPull reads what it pushed");
    std::vector<float> absent;
    kv.Wait(kv.Pull({12345}, &absent));
    check(absent[0] == 0.0F, "a key that nobody pushed is 0");
    kv.Wait(4711); // over already, or never begun
}

static void rows_and_callbacks()
{
    ps::KVWorker<float> kv(1);
    std::vector<ps::Key> keys;
    std::vector<float> vals, got;
    for (int i = 0; i < 150000; i++) { // longer than one operation
        keys.push_back(static_cast<ps::Key>(i) * 7);
        vals.push_back(static_cast<float>(i % 100));
        vals.push_back(1.0F);
    }
    int order = 0, pushed = 0, pulled = 0;
    kv.Push(keys, vals, {}, 0, [&] { pushed = ++order; });
    kv.Wait(kv.Pull(keys, &got, nullptr, 0, [&] {
        pulled = ++order;
        kv.Push({keys[0]}, {1.0F, 1.0F}); // a callback may push
    }));
    check(got == vals, "long lists of rows of two");
    check(pushed == 1 && pulled == 2, "callbacks run before Wait returns");
    std::vector<int> many;
    for (int i = 0; i < 100; i++) { // more than may be under way
        many.push_back(kv.Push({1, 2}, {1.0F, 1.0F, 1.0F, 1.0F}));
    }
    for (int timestamp : many) {
        kv.Wait(timestamp);
    }
    kv.Wait(kv.Pull({1, 2}, &(got = {})));
    check(got[0] == 100.0F && got[3] == 100.0F, "a hundred pushes under way");
    kv.Wait(kv.Push({}, {}));
    check_error([&] { kv.Push({1, 2}, {1.0F, 2.0F, 3.0F}); }, WEFT_INVALID, "do not divide");
    check_error([&] { kv.Push({1}, {1.0F}); }, WEFT_INVALID, "use another app_id");
    check_error([&] { kv.Push({1, 2}, {1, 2, 3, 4}, {1, 3}); }, WEFT_UNSUPPORTED, "lens differ");
    check_error([&] { kv.Push({1}, {1, 2}, {1, 1}); }, WEFT_INVALID, "lens has another length");
    check_error([&] { kv.Pull({1}, nullptr); }, WEFT_INVALID, "no vector");
    int bad = kv.Push({1}, {std::numeric_limits<float>::infinity(), 0.0F});
    check_error([&] { kv.Wait(bad); }, WEFT_DATA, "not a number");
    kv.Wait(bad); // said once
}

int main(int argc, char **argv)
{
    try {
        ps::KVServer<float> server(0);
        server.set_request_handle(ps::KVServerDefaultHandle<float>());
        ps::KVWorker<float> early(0);
        check_error([&] { early.Push({1}, {1.0F}); }, WEFT_STATE, "ps::Start");
        setenv("DMLC_NUM_WORKER", "2", 1);
        setenv("DMLC_RANK", "1", 1);
        bool left = false;
        ps::Start();
        ps::RegisterExitCallback([&] { left = true; });
        check(ps::IsWorker() && !ps::IsServer() && !ps::IsScheduler(), "a worker");
        check(ps::MyRank() == 1 && ps::NumWorkers() == 2 && ps::NumServers() == 2, "who I am");
        sums_add_up(argc > 1 ? std::atof(argv[1]) : 0);
        rows_and_callbacks();
        check_error([] { ps::KVWorker<float>(99).Push({1}, {1.0F}); }, WEFT_INVALID, "number is 99");
        ps::Finalize();
        check(left, "exit callbacks run");
    } catch (const ps::Error &error) {
        std::printf("%s\n", error.what());
        return 1;
    }
    return failures > 0;
}
