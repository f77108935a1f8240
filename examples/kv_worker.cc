// A program written for ps-lite: every worker adds to the same keys, then reads the sums.
//
//     weft keygen job.key; export WEFT_JOB_KEY="$(cat job.key)" WEFT_SERVERS=127.0.0.1:7700
//     weft server --workers 2 & export DMLC_NUM_WORKER=2
//     DMLC_RANK=0 ./kv_worker & DMLC_RANK=1 ./kv_worker
//
//     c++ -std=c++11 kv_worker.cc $(pkg-config --cflags --libs weft) -o kv_worker
#include <iostream>
#include <vector>
#include <weft/ps_lite.h> // was: "ps/ps.h"

int main()
{
    const int num = 1000, repeat = 50;
    try {
        ps::Start(0);
        ps::KVWorker<float> kv(0, 0);
        std::vector<ps::Key> keys(num);
        std::vector<float> vals(num);
        for (int i = 0; i < num; i++) {
            keys[i] = ps::kMaxKey / num * i;
            vals[i] = static_cast<float>(i % 10 + ps::MyRank());
        }
        std::vector<int> timestamps;
        for (int i = 0; i < repeat; i++) {
            timestamps.push_back(kv.Push(keys, vals));
        }
        for (int timestamp : timestamps) {
            kv.Wait(timestamp);
        }
        std::vector<float> sums;
        kv.Wait(kv.Pull(keys, &sums));
        int at_least_own = 0; // the other workers may have added theirs, or may do so later
        for (int i = 0; i < num; i++) {
            at_least_own += sums[i] >= repeat * vals[i];
        }
        std::cout << at_least_own << " of " << num << " sums hold what this worker pushed\n";
        ps::Finalize(0);
        return at_least_own == num ? 0 : 1;
    } catch (const ps::Error &error) {
        std::cerr << "kv_worker: " << error.what() << "\n";
        return 1;
    }
}
