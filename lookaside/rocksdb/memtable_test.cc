/* The memtable against a model, with snapshots, merges and threads, and its speed.
 *
 *   memtable_test                          checks
 *   memtable_test KEYS ROWS LOOKUPS        nanoseconds of CPU time of a Get, in pairs, as JSON */
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include <rocksdb/db.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/options.h>

#include "lookaside_memtable.hpp"

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                      \
            std::exit(1);                                                                             \
        }                                                                                             \
    } while (0)

class Append : public rocksdb::AssociativeMergeOperator {
    bool Merge(const rocksdb::Slice &, const rocksdb::Slice *old, const rocksdb::Slice &value, std::string *out,
               rocksdb::Logger *) const override {
        *out = (old ? old->ToString() : "") + value.ToString();
        return true;
    }
    const char *Name() const override { return "Append"; }
};

static std::unique_ptr<rocksdb::DB> open(const std::string &path, size_t rows, size_t buffer) {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.write_buffer_size = buffer;
    options.merge_operator = std::make_shared<Append>();
    if (rows != 0)
        options.memtable_factory = std::make_shared<lookaside::MemTableFactory>(rows);
    CHECK(rocksdb::DestroyDB(path, options).ok());
    rocksdb::DB *db;
    CHECK(rocksdb::DB::Open(options, path, &db).ok());
    return std::unique_ptr<rocksdb::DB>(db);
}

static const rocksdb::WriteOptions write_options = [] {
    rocksdb::WriteOptions options;
    options.disableWAL = true;
    return options;
}();

static void same_as_a_map(const std::string &path) {
    // A small buffer: memtables are flushed and replaced meanwhile.
    auto db = open(path, 1024, 256 << 10);
    using Model = std::map<std::string, std::string>;
    Model model;
    struct View {
        const rocksdb::Snapshot *snapshot;
        Model model;
    };
    std::vector<View> views;
    std::mt19937_64 random(1);
    auto compare = [&](const Model &expected, const rocksdb::Snapshot *snapshot, const std::string &key) {
        rocksdb::ReadOptions options;
        options.snapshot = snapshot;
        std::string value;
        rocksdb::Status status = db->Get(options, key, &value);
        auto found = expected.find(key);
        CHECK(found == expected.end() ? status.IsNotFound() : status.ok() && value == found->second);
    };
    for (int step = 0; step < 60000; step++) {
        std::string key = "key" + std::to_string(random() % 500), value = std::to_string(random());
        switch (random() % 12) {
        case 0: case 1:
            CHECK(db->Put(write_options, key, value).ok());
            model[key] = value;
            break;
        case 2:
            CHECK(db->Delete(write_options, key).ok());
            model.erase(key);
            break;
        case 3:
            value = value.substr(0, 3);
            if (model[key].size() > 200) {
                CHECK(db->Put(write_options, key, value).ok());
                model[key] = value;
                break;
            }
            CHECK(db->Merge(write_options, key, value).ok());
            model[key] += value;
            break;
        case 4:
            if (random() % 50 == 0) {
                if (views.size() == 4) {
                    db->ReleaseSnapshot(views.front().snapshot);
                    views.erase(views.begin());
                }
                views.push_back({db->GetSnapshot(), model});
            }
            break;
        case 5:
            if (!views.empty()) {
                auto &view = views[random() % views.size()];
                compare(view.model, view.snapshot, key);
            }
            break;
        default:
            compare(model, nullptr, key);
        }
    }
    for (auto &view : views)
        db->ReleaseSnapshot(view.snapshot);
}

/* Values of a key only grow. No reader may see one that is older than what was written before it began. */
static void readers_see_the_newest(const std::string &path) {
    auto db = open(path, 64, 64 << 20);
    constexpr int KEYS = 32;
    std::atomic<uint64_t> written[KEYS] = {};
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    for (int reader = 0; reader < 2; reader++)
        threads.emplace_back([&, reader] {
            std::mt19937_64 random(reader);
            std::string value;
            while (!done) {
                int key = random() % KEYS;
                uint64_t least = written[key];
                rocksdb::Status status = db->Get({}, "key" + std::to_string(key), &value);
                CHECK(least == 0 || (status.ok() && std::stoull(value) >= least));
            }
        });
    std::vector<std::thread> writers;
    for (int writer = 0; writer < 2; writer++)
        writers.emplace_back([&, writer] {
            for (uint64_t i = 1; i <= 100000; i++) {
                int key = static_cast<int>(i % (KEYS / 2)) * 2 + writer;
                CHECK(db->Put(write_options, "key" + std::to_string(key), std::to_string(i)).ok());
                written[key] = i;
            }
        });
    for (auto &writer : writers)
        writer.join();
    done = true;
    for (auto &thread : threads)
        thread.join();
}

static double cpu_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static std::string key_of(uint64_t number) {
    char key[32];
    std::snprintf(key, sizeof key, "user%020llu", static_cast<unsigned long long>(lookaside_mix(number)));
    return key;
}

static void bench(const std::string &path, uint64_t keys, size_t rows, size_t lookups) {
    std::unique_ptr<rocksdb::DB> sides[] = {open(path + "0", 0, size_t{8} << 30), open(path + "1", rows, size_t{8} << 30)};
    for (auto &db : sides)
        for (uint64_t key = 0; key < keys; key++)
            CHECK(db->Put(write_options, key_of(key), std::string(64, 'v')).ok());
    std::mt19937_64 random(1);
    // Zipf's distribution with exponent 0.99 by inversion of its continuous form.
    auto number = [&] {
        double u = std::uniform_real_distribution<>()(random), e = 0.01;
        return static_cast<uint64_t>(std::pow(u * (std::pow(keys, e) - 1) + 1, 1 / e)) % keys;
    };
    std::printf("ready\n");
    std::fflush(stdout);
    if (std::getchar() == EOF)
        std::exit(1);
    std::string value;
    auto slice = [&](rocksdb::DB &db, const std::vector<std::string> &list) {
        double start = cpu_ns();
        for (auto &key : list)
            CHECK(db.Get({}, key, &value).ok());
        return (cpu_ns() - start) / list.size();
    };
    for (size_t done = 0; done < 2 * rows + (1 << 16); done += lookups) {
        std::vector<std::string> list(lookups);
        for (auto &key : list)
            key = key_of(number());
        slice(*sides[1], list);
    }
    for (int pair = 0; pair < 5; pair++) {
        std::vector<std::string> list(lookups);
        for (auto &key : list)
            key = key_of(number());
        double base = slice(*sides[0], list), with = slice(*sides[1], list);
        std::printf("{\"base\": %.1f, \"lookaside\": %.1f}\n", base, with);
    }
}

int main(int argc, char **argv) {
    const char *folder = std::getenv("TMPDIR");
    std::string path = std::string(folder ? folder : "/tmp") + "/lookaside-memtable-" + std::to_string(getpid());
    if (argc == 4) {
        bench(path, std::strtoull(argv[1], nullptr, 0), std::strtoull(argv[2], nullptr, 0),
              std::strtoull(argv[3], nullptr, 0));
        return 0;
    }
    same_as_a_map(path);
    readers_see_the_newest(path);
    return 0;
}
