/* The headers against the Rust crate over one table, and maps against std::map. Prints the failed line. */
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <strings.h>
#include <thread>
#include <vector>

#include "lookaside.hpp"
#ifdef HAVE_ABSL
#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>
#endif
#ifdef HAVE_SPARSEHASH
#include <sparsehash/dense_hash_map>
#endif

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                      \
            std::exit(1);                                                                             \
        }                                                                                             \
    } while (0)

using Record = std::pair<uint64_t, uint64_t>;

static int verify(void *context, void *at) { return static_cast<Record *>(at)->first == *static_cast<uint64_t *>(context); }

/* Each side finds what the other one inserts, and loses what the other one invalidates. */
static void shared_with_rust() {
    lookaside::table<Record> table(256);
    std::vector<Record> records(200);
    std::mt19937_64 random(1);
    std::vector<bool> present(records.size());
    for (size_t i = 0; i < records.size(); i++)
        records[i].first = i;
    for (int step = 0; step < 100000; step++) {
        uint64_t key = random() % records.size(), hash = lookaside_mix(key);
        switch (random() % 6) {
        case 0:
            CHECK(table.insert(hash, &records[key]));
            CHECK(lookaside_find_call(table.get(), hash, verify, &key) == &records[key]);
            break;
        case 1:
            CHECK(lookaside_insert_call(table.get(), hash, &records[key]));
            CHECK(table.find(hash, [&](Record *at) { return at->first == key; }) == &records[key]);
            break;
        case 2:
            table.invalidate(hash);
            CHECK(lookaside_find_call(table.get(), hash, verify, &key) == nullptr);
            break;
        case 3:
            CHECK(lookaside_invalidate_call(table.get(), hash) == LOOKASIDE_OK);
            CHECK(table.find(hash, [&](Record *) { return true; }) == nullptr);
            break;
        case 4:
            CHECK(lookaside_find_call(table.get(), hash, verify, &key) == lookaside_find(table.get(), hash, verify, &key));
            break;
        default:
            table.admit(static_cast<uint32_t>(random() % 40));
        }
    }
    auto counts = table.statistics();
    CHECK(counts.admitted > 0 && counts.misses > 0);
    table.flush();
    for (uint64_t key = 0; key < records.size(); key++)
        CHECK(lookaside_find_call(table.get(), lookaside_mix(key), verify, &key) == nullptr);
}

static void bad_input() {
    lookaside_table *table = nullptr;
    lookaside_counts counts;
    uint64_t key = 1;
    CHECK(lookaside_new(0, &table) == LOOKASIDE_NO_ROWS && table == nullptr);
    CHECK(lookaside_new(SIZE_MAX, &table) == LOOKASIDE_NO_MEMORY && table == nullptr);
    CHECK(lookaside_new(8, nullptr) == LOOKASIDE_NULL);
    CHECK(lookaside_flush(nullptr) == LOOKASIDE_NULL);
    CHECK(lookaside_resize(nullptr, 8) == LOOKASIDE_NULL);
    CHECK(lookaside_statistics(nullptr, &counts) == LOOKASIDE_NULL);
    CHECK(lookaside_set_automatic(nullptr, 1) == LOOKASIDE_NULL);
    CHECK(lookaside_free(nullptr) == LOOKASIDE_OK);
    CHECK(lookaside_find_call(nullptr, 1, verify, &key) == nullptr);
    CHECK(lookaside_insert_call(nullptr, 1, &key) == 0);
    CHECK(lookaside_invalidate_call(nullptr, 1) == LOOKASIDE_NULL);
    auto *misaligned = reinterpret_cast<lookaside_table *>(uintptr_t{12345});
    CHECK(lookaside_flush(misaligned) == LOOKASIDE_MISALIGNED);
    CHECK(lookaside_free(misaligned) == LOOKASIDE_MISALIGNED);
    CHECK(lookaside_find_call(misaligned, 1, verify, &key) == nullptr);
    CHECK(lookaside_new(8, &table) == LOOKASIDE_OK);
    CHECK(lookaside_resize(table, 0) == LOOKASIDE_NO_ROWS);
    CHECK(lookaside_statistics(table, nullptr) == LOOKASIDE_NULL);
    CHECK(lookaside_insert(table, 1, nullptr) == 0);
    CHECK(lookaside_insert(table, 1, reinterpret_cast<void *>(UINT64_C(1) << 48)) == 0);
    CHECK(lookaside_find_call(table, 1, nullptr, nullptr) == nullptr);
    CHECK(lookaside_free(table) == LOOKASIDE_OK);
    try {
        lookaside::table<Record> none(0);
        CHECK(false);
    } catch (const std::invalid_argument &) {
    }
}

template <class M> static void same_as_a_map(M index = M()) {
    lookaside::map<M> map(64, std::move(index));
    std::map<std::string, uint64_t> model;
    std::mt19937_64 random(2);
    auto key_of = [&] { return "key" + std::to_string(random() % 300); };
    for (int step = 0; step < 20000; step++) {
        std::string key = key_of();
        switch (random() % 4) {
        case 0: {
            bool is_new = model.count(key) == 0;
            model[key] = step;
            CHECK(map.insert_or_assign(key, step) == is_new);
            break;
        }
        case 1:
            CHECK(map.erase(key) == (model.erase(key) == 1));
            break;
        case 2: {
            uint64_t *found = map.find(key);
            auto expected = model.find(key);
            CHECK((found != nullptr) == (expected != model.end()) && (found == nullptr || *found == expected->second));
            break;
        }
        default: {
            std::vector<std::string> keys(random() % 70);
            std::vector<uint64_t *> found(keys.size());
            for (auto &one : keys)
                one = key_of();
            map.find_batch(keys.data(), found.data(), keys.size());
            for (size_t i = 0; i < keys.size(); i++) {
                auto expected = model.find(keys[i]);
                CHECK((found[i] != nullptr) == (expected != model.end()));
                CHECK(found[i] == nullptr || *found[i] == expected->second);
            }
        }
        }
        CHECK(map.size() == model.size());
    }
}

/* Readers share a lock, removals hold it alone. For thread and address sanitizers, too. */
static void threads() {
    using Map = lookaside::map<std::unordered_map<std::string, uint64_t>>;
    Map map(32);
    std::shared_mutex mutex;
    std::vector<std::thread> readers;
    for (int reader = 0; reader < 3; reader++)
        readers.emplace_back([&, reader] {
            std::mt19937_64 random(reader);
            for (int i = 0; i < 20000; i++) {
                uint64_t number = random() % 100;
                std::shared_lock lock(mutex);
                uint64_t *found = map.find(std::to_string(number));
                CHECK(found == nullptr || *found % 100 == number);
            }
        });
    std::mt19937_64 random(9);
    for (int i = 0; i < 5000; i++) {
        uint64_t number = random() % 100;
        std::unique_lock lock(mutex);
        if (!map.erase(std::to_string(number)))
            map.insert_or_assign(std::to_string(number), i * 100 + number);
    }
    for (auto &reader : readers)
        reader.join();
}

/* An index of one's own behind lookup(): asked at the first lookup only, while the table is on. */
static void own_index() {
    lookaside::table<Record> table(256);
    table.set_automatic(false);
    Record record{7, 1};
    int asked = 0;
    auto lookup = [&](uint64_t key) {
        return table.lookup([&] { return lookaside_mix(key); }, [&](Record *at) { return at->first == key; },
                            [&] { asked++; return key == record.first ? &record : nullptr; });
    };
    CHECK(lookup(7) == &record && lookup(7) == &record && asked == 1);
    CHECK(lookup(8) == nullptr && lookup(8) == nullptr && asked == 3);
}

/* A record that the container finds by several keys. */
static void other_spellings() {
    struct without_case {
        bool operator()(const std::string &a, const std::string &b) const { return strcasecmp(a.c_str(), b.c_str()) < 0; }
    };
    const std::string mixed = "A-Name-With-Memory-Of-Its-Own", lower = "a-name-with-memory-of-its-own";
    lookaside::map<std::map<std::string, int, without_case>> map(1024);
    for (const std::string &erased : {mixed, lower}) {
        map.insert_or_assign(mixed, 1);
        CHECK(map.find(lower) != nullptr && map.find(mixed) == map.find(lower));
        CHECK(map.erase(erased));
        CHECK(map.find(lower) == nullptr && map.find(mixed) == nullptr);
    }
}

int main() {
    bad_input();
    own_index();
    other_spellings();
    shared_with_rust();
    same_as_a_map<std::map<std::string, uint64_t>>();
    same_as_a_map<std::unordered_map<std::string, uint64_t>>();
#ifdef HAVE_ABSL
    same_as_a_map<absl::btree_map<std::string, lookaside::record<std::string, uint64_t> *>>();
    same_as_a_map<absl::flat_hash_map<std::string, lookaside::record<std::string, uint64_t> *>>();
#endif
#ifdef HAVE_SPARSEHASH
    google::dense_hash_map<std::string, lookaside::record<std::string, uint64_t> *, std::hash<std::string>> dense;
    dense.set_empty_key("");
    dense.set_deleted_key("-");
    same_as_a_map(std::move(dense));
#endif
    threads();
    return 0;
}
