/* YCSB's workloads over one index, with and without lookaside, in one process.
 *
 *   bench INDEX RECORDS ROWS OPERATIONS CASE...
 *
 * INDEX is map, btree, umap, flat or dense; VALUE_BYTES is a macro. A CASE is WORKLOAD:DISTRIBUTION:MODE,
 * such as C:zipf:single. MODE is single, batch (16 keys) or threads (two, read-only workloads).
 *
 * WORKLOAD:DISTRIBUTION:MODE:SIDE runs one side alone: index, or table, which is always on. Each slice is then
 * a region of interest for Pagewalk (bench/simulate.py), and the first ones warm the caches.
 *
 * After the load, the program prints "ready" and waits for a line. Each case prints one JSON object.
 * A pair is a timed slice without the table and one with it, each with requests of its own from the same
 * distribution. Every other pair begins with the table, because the second slice is a little faster. Speedups are
 * medians of the pairs' ratios of CPU time, with a confidence interval: hosts are noisy. */
#include <sys/resource.h>
#include <time.h>
#include <x86intrin.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>
#include <sparsehash/dense_hash_map>

#include "lookaside.hpp"
#include "pagewalk.h"

struct Key {
    char bytes[24];
    operator std::string_view() const { return {bytes, sizeof bytes}; }
    friend bool operator==(const Key &a, const Key &b) { return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0; }
    friend bool operator<(const Key &a, const Key &b) { return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) < 0; }
    template <class H> friend H AbslHashValue(H h, const Key &key) { return H::combine(std::move(h), std::string_view(key)); }
};
struct KeyHash {
    size_t operator()(const Key &key) const { return std::hash<std::string_view>()(key); }
};
struct Value {
    char bytes[VALUE_BYTES];
};
using Record = lookaside::record<Key, Value>;

using Map = std::map<Key, Value>;
using UnorderedMap = std::unordered_map<Key, Value, KeyHash>;
using Btree = absl::btree_map<Key, Record *>;
using Flat = absl::flat_hash_map<Key, Record *>;
using Dense = google::dense_hash_map<Key, Record *, KeyHash>;

/* YCSB's keys: "user" and a hashed number, so that neighbours in popularity lie apart. */
static Key key_of(uint64_t number) {
    Key key = {{'u', 's', 'e', 'r'}};
    uint64_t left = lookaside_mix(number);
    // Not by printf: a simulator executes this too.
    for (size_t digit = sizeof key.bytes; digit-- > 4; left /= 10)
        key.bytes[digit] = static_cast<char>('0' + left % 10);
    return key;
}

/* YCSB's generator of Zipf's distribution with exponent 0.99 (Gray et al., 1994). */
class Zipf {
  public:
    explicit Zipf(uint64_t items) : items_(items) {
        for (uint64_t rank = 1; rank <= items; rank++)
            zeta_ += 1 / std::pow(rank, THETA);
        alpha_ = 1 / (1 - THETA);
        eta_ = (1 - std::pow(2.0 / items, 1 - THETA)) / (1 - (1 + std::pow(0.5, THETA)) / zeta_);
    }
    template <class Random> uint64_t operator()(Random &random) const {
        double u = std::uniform_real_distribution<>()(random), uz = u * zeta_;
        if (uz < 1)
            return 0;
        if (uz < 1 + std::pow(0.5, THETA))
            return 1;
        return std::min(items_ - 1, static_cast<uint64_t>(items_ * std::pow(eta_ * u - eta_ + 1, alpha_)));
    }

  private:
    static constexpr double THETA = 0.99;
    uint64_t items_;
    double zeta_ = 0, alpha_, eta_;
};

enum Operation : uint8_t { READ, UPDATE, INSERT, SCAN, MODIFY };
struct Request {
    Key key;
    Operation operation;
    uint8_t length; /* of a scan */
};

struct Case {
    char workload;
    std::string distribution, mode, side;
};

/* Shares of the second operation in percent; the first is the rest. */
static Operation choose(char workload, unsigned percent) {
    switch (workload) {
    case 'A': return percent < 50 ? READ : UPDATE;
    case 'B': return percent < 95 ? READ : UPDATE;
    case 'D': return percent < 95 ? READ : INSERT;
    case 'E': return percent < 95 ? SCAN : INSERT;
    case 'F': return percent < 50 ? READ : MODIFY;
    default: return READ;
    }
}

struct Cost {
    double cycles = 0, cpu_ns = 0;
};

static double cpu_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

/* A second thread that lives as long as the program: threads decide for themselves whether the table pays. */
class Worker {
  public:
    Worker() : thread_([this] { loop(); }) { thread_.detach(); }
    void run(std::function<void()> work) {
        work_ = std::move(work);
        busy_.store(true, std::memory_order_release);
        busy_.notify_one();
    }
    void wait() { busy_.wait(true); }

  private:
    std::atomic<bool> busy_{false};
    std::function<void()> work_;
    std::thread thread_;
    void loop() {
        for (;;) {
            busy_.wait(false);
            work_();
            busy_.store(false, std::memory_order_release);
            busy_.notify_one();
        }
    }
};

template <class M> class Bench {
  public:
    Bench(uint64_t records, size_t rows, size_t operations, M index)
        : map_(rows, std::move(index)), records_(records), operations_(operations), zipf_(records) {
        // Not in order of keys: nodes of a tree would lie in order too.
        for (uint64_t number = 0; number < records; number++)
            map_.insert_or_assign(key_of(number), Value{});
    }

    void run(const Case &one) {
        random_.seed(one.workload * 131 + one.distribution.size() * 17 + one.mode.size());
        std::vector<double> ratios[2], plain, cycles[2], cpu[2];
        for (int side = 0; side < 2; side++) {
            // The automatic switch first: it has filled the table and decided when it is timed.
            map_.rows().set_automatic(side == 0);
            size_t warm = side == 0 ? std::min<size_t>(map_.rows().rows(), 1 << 20) + (1 << 17) : 1 << 16;
            for (size_t done = 0; done < warm; done += operations_)
                slice(one, requests(one, std::min(operations_, warm - done)), true);
            auto start = map_.rows().statistics();
            double spent = 0;
            for (int pair = 0; pair < MOST_PAIRS && (pair < LEAST_PAIRS || spent < SPENT_NS); pair++) {
                // Requests of their own: equal ones would leave the second side its records in the caches.
                Requests first = requests(one, operations_), second = requests(one, operations_);
                bool table_first = pair % 2;
                Cost costs[2];
                costs[table_first] = slice(one, first, table_first);
                costs[!table_first] = slice(one, second, !table_first);
                auto [without, with] = costs;
                plain.push_back(without.cycles);
                cycles[side].push_back(with.cycles);
                cpu[side].push_back(with.cpu_ns);
                ratios[side].push_back(without.cpu_ns / with.cpu_ns);
                base_cpu_.push_back(without.cpu_ns);
                spent += (without.cpu_ns + with.cpu_ns) * static_cast<double>(operations_);
            }
            auto end = map_.rows().statistics();
            uint64_t admitted = end.admitted - start.admitted, bypassed = end.bypassed - start.bypassed;
            shares_[side] = admitted + bypassed ? double(admitted) / double(admitted + bypassed) : 0;
            hits_[side] = admitted ? 1 - double(end.misses - start.misses) / double(admitted) : 0;
        }
        std::printf("{\"workload\": \"%c\", \"distribution\": \"%s\", \"mode\": \"%s\", \"base_cycles\": %.1f, "
                    "\"base_cpu_ns\": %.1f, \"auto_cycles\": %.1f, \"auto_cpu_ns\": %.1f, \"on_cycles\": %.1f, "
                    "\"on_cpu_ns\": %.1f, \"auto_speedup\": %.4f, \"on_speedup\": %.4f, \"auto_admitted\": %.4f, "
                    "\"on_hits\": %.4f",
                    one.workload, one.distribution.c_str(), one.mode.c_str(), median(plain), median(base_cpu_),
                    median(cycles[0]), median(cpu[0]), median(cycles[1]), median(cpu[1]), median(ratios[0]),
                    median(ratios[1]), shares_[0], hits_[1]);
        for (int side = 0; side < 2; side++) {
            auto [low, high] = interval_of_median(ratios[side]);
            std::printf(", \"%s_interval\": [%.4f, %.4f], \"%s_pairs\": %zu", side ? "on" : "auto", low, high,
                        side ? "on" : "auto", ratios[side].size());
        }
        base_cpu_.clear();
        if (one.mode == "single" && one.workload == 'C')
            for (bool table : {false, true}) {
                auto times = latencies(requests(one, 200000)[0], table);
                auto at = [&](double share) { return times[static_cast<size_t>(share * (times.size() - 1))]; };
                std::printf(", \"%s_percentiles_cycles\": {\"50\": %u, \"90\": %u, \"99\": %u, \"99.9\": %u}",
                            table ? "on" : "base", at(.5), at(.9), at(.99), at(.999));
            }
        std::printf("}\n");
        std::fflush(stdout);
    }

    /* One side alone, in slices that are regions of interest. The table is filled before the first one. */
    void run_side(const Case &one) {
        bool table = one.side == "table";
        random_.seed(one.workload);
        map_.rows().set_automatic(false);
        if (table)
            for (size_t done = 0; done < FILLS * map_.rows().rows(); done += operations_)
                slice(one, requests(one, operations_), true);
        std::printf("{\"cpu_ns\": [");
        for (int i = 0; i < WARM_SLICES + SLICES; i++) {
            Requests lists = requests(one, operations_);
            auto start = map_.rows().statistics();
            pagewalk_roi_begin();
            Cost cost = slice(one, lists, table);
            pagewalk_roi_end();
            auto end = map_.rows().statistics();
            if (uint64_t admitted = end.admitted - start.admitted)
                hits_[1] = 1 - double(end.misses - start.misses) / double(admitted);
            if (i >= WARM_SLICES)
                std::printf("%s%.2f", i > WARM_SLICES ? ", " : "", cost.cpu_ns);
        }
        std::printf("], \"hits\": %.4f}\n", table ? hits_[1] : 0);
        std::fflush(stdout);
    }

  private:
    using Requests = std::vector<std::vector<Request>>; /* a list a thread */
    static constexpr int BATCH = 16;
    /* Pairs end once they have cost so much CPU time. */
    static constexpr int LEAST_PAIRS = 16, MOST_PAIRS = 256;
    static constexpr double SPENT_NS = 3e9;
    /* One side alone: lookups that fill the table, in its rows, and slices before and in the measurement. */
    static constexpr int FILLS = 1, WARM_SLICES = 5, SLICES = 8;
    lookaside::map<M> map_;
    uint64_t records_, inserted_ = 0;
    size_t operations_;
    Zipf zipf_;
    std::mt19937_64 random_;
    std::vector<double> base_cpu_;
    Worker other_;
    double shares_[2], hits_[2];
    char out_[2][VALUE_BYTES];

    static double median(std::vector<double> of) {
        std::sort(of.begin(), of.end());
        return (of[(of.size() - 1) / 2] + of[of.size() / 2]) / 2;
    }

    /* 95 % confidence interval of the median: two order statistics (the binomial distribution, as a normal one). */
    static std::pair<double, double> interval_of_median(std::vector<double> of) {
        std::sort(of.begin(), of.end());
        double half = static_cast<double>(of.size()) / 2, reach = 1.96 * std::sqrt(static_cast<double>(of.size())) / 2;
        auto low = static_cast<size_t>(std::max(0.0, std::floor(half - reach)));
        return {of[low], of[of.size() - 1 - low]};
    }

    Requests requests(const Case &one, size_t count) {
        Requests lists(one.mode == "threads" ? 2 : 1);
        for (auto &list : lists) {
            list.resize(count);
            for (auto &request : list) {
                uint64_t all = records_ + inserted_, number;
                if (one.distribution == "uniform")
                    number = random_() % all;
                else if (one.distribution == "latest")
                    number = all - 1 - zipf_(random_);
                else
                    number = zipf_(random_);
                request.operation = choose(one.workload, random_() % 100);
                if (request.operation == INSERT)
                    number = records_ + inserted_++;
                request.key = key_of(number);
                request.length = static_cast<uint8_t>(1 + random_() % 100);
            }
        }
        return lists;
    }

    M &index() { return const_cast<M &>(map_.index()); }
    template <class Element> static auto *value_in(Element &element) {
        if constexpr (std::is_pointer_v<decltype(element.second)>)
            return &element.second->second;
        else
            return &element.second;
    }
    Value *base_find(const Key &key) {
        auto found = index().find(key);
        return found == index().end() ? nullptr : value_in(*found);
    }

    void serve(const Request &request, bool table, int thread) {
        char *out = out_[thread];
        if (request.operation == INSERT) {
            if (table)
                map_.insert_or_assign(request.key, Value{});
            else if constexpr (std::is_pointer_v<typename M::mapped_type>)
                index().insert(typename M::value_type(request.key, new Record{request.key, Value{}}));
            else
                index().emplace(request.key, Value{});
            return;
        }
        if constexpr (std::is_same_v<M, Map> || std::is_same_v<M, Btree>)
            if (request.operation == SCAN) {
                auto at = index().lower_bound(request.key);
                for (int left = request.length; left && at != index().end(); left--, ++at)
                    std::memcpy(out, value_in(*at)->bytes, VALUE_BYTES);
                return;
            }
        Value *value = table ? map_.find(request.key) : base_find(request.key);
        if (value == nullptr)
            std::abort();
        if (request.operation != UPDATE)
            std::memcpy(out, value->bytes, VALUE_BYTES);
        if (request.operation != READ)
            std::memcpy(value->bytes, out, VALUE_BYTES);
        __asm__ volatile("" : : "r"(out) : "memory");
    }

    void serve_all(const Case &one, const std::vector<Request> &list, bool table, int thread) {
        if (one.mode != "batch") {
            for (auto &request : list)
                serve(request, table, thread);
            return;
        }
        Key keys[BATCH];
        Value *values[BATCH];
        for (size_t start = 0; start + BATCH <= list.size(); start += BATCH) {
            for (int i = 0; i < BATCH; i++)
                keys[i] = list[start + i].key;
            if (table)
                map_.find_batch(keys, values, BATCH);
            else
                for (int i = 0; i < BATCH; i++)
                    values[i] = base_find(keys[i]);
            for (int i = 0; i < BATCH; i++) {
                std::memcpy(out_[thread], values[i]->bytes, VALUE_BYTES);
                __asm__ volatile("" : : "r"(out_[thread]) : "memory");
            }
        }
    }

    Cost slice(const Case &one, const Requests &lists, bool table) {
        std::vector<Cost> costs(lists.size());
        std::atomic<int> ready{0};
        auto work = [&](size_t thread) {
            ready++;
            while (ready < static_cast<int>(lists.size()))
                ;
            double cpu = cpu_ns();
            uint64_t start = __rdtsc();
            serve_all(one, lists[thread], table, static_cast<int>(thread));
            costs[thread] = {double(__rdtsc() - start) / double(lists[thread].size()),
                             (cpu_ns() - cpu) / double(lists[thread].size())};
        };
        if (lists.size() > 1)
            other_.run([&] { work(1); });
        work(0);
        if (lists.size() > 1)
            other_.wait();
        Cost mean;
        for (auto &cost : costs)
            mean.cycles += cost.cycles / costs.size(), mean.cpu_ns += cost.cpu_ns / costs.size();
        return mean;
    }

    std::vector<uint32_t> latencies(const std::vector<Request> &list, bool table) {
        std::vector<uint32_t> times;
        times.reserve(list.size());
        unsigned unused;
        for (auto &request : list) {
            uint64_t start = __rdtscp(&unused);
            serve(request, table, 0);
            times.push_back(static_cast<uint32_t>(std::min<uint64_t>(__rdtscp(&unused) - start, UINT32_MAX)));
        }
        std::sort(times.begin(), times.end());
        return times;
    }
};

template <class M> static void bench(char **argv, int cases, M index = M()) {
    uint64_t records = std::strtoull(argv[2], nullptr, 0);
    auto *bench = new Bench<M>(records, std::strtoull(argv[3], nullptr, 0), std::strtoull(argv[4], nullptr, 0),
                               std::move(index));
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::printf("ready %ld\n", usage.ru_maxrss);
    std::fflush(stdout);
    char line[16];
    if (std::fgets(line, sizeof line, stdin) == nullptr)
        std::_Exit(1);
    for (int i = 0; i < cases; i++) {
        std::string text = argv[5 + i];
        std::vector<std::string> parts(1);
        for (char c : text)
            if (c == ':')
                parts.emplace_back();
            else
                parts.back() += c;
        parts.resize(4);
        Case one = {parts[0][0], parts[1], parts[2], parts[3]};
        if (one.side.empty())
            bench->run(one);
        else
            bench->run_side(one);
    }
    // Taking the index apart would take as long as the load.
    std::_Exit(0);
}

int main(int argc, char **argv) {
    if (argc < 6) {
        std::fprintf(stderr, "usage: bench map|btree|umap|flat|dense RECORDS ROWS OPERATIONS WORKLOAD:DISTRIBUTION:MODE...\n");
        return 2;
    }
    std::string index = argv[1];
    if (index == "map")
        bench<Map>(argv, argc - 5);
    else if (index == "umap")
        bench<UnorderedMap>(argv, argc - 5);
    else if (index == "btree")
        bench<Btree>(argv, argc - 5);
    else if (index == "flat")
        bench<Flat>(argv, argc - 5);
    else if (index == "dense") {
        Dense dense;
        dense.set_empty_key(Key{});
        bench<Dense>(argv, argc - 5, std::move(dense));
    }
    return 2;
}
