/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The counterpart of kv-hash with a table of addresses in front of the map, one of the
 * classes Slb and Rows, and one of the hash functions of kv_shortcut.h:
 *
 *     make -B kv_shortcut TABLE=Rows HASH=Xxh64
 *     kv_requests ... | kv_shortcut KEYS BYTES
 *     kv_shortcut hashes        prints each hash of two keys
 */
#ifndef TABLE
#define TABLE Slb
#endif
#ifndef HASH
#define HASH Xxh3
#endif

#include <unordered_map>

#include "kv_requests.h"
#include "kv_shortcut.h"

typedef std::unordered_map<std::string, std::string> Map;
typedef Map::value_type Pair;

uint64_t SipHash::seed[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};

template <class Hash> __attribute__((noinline)) uint64_t integer_of(const std::string &key) {
    return Hash::hash(key.data(), key.size());
}

/* The map as `serve` uses it, with a table in front of its `find`. */
template <class Table, class Hash> class Shortened {
  public:
    explicit Shortened(size_t bytes) : table_(bytes) {}
    std::string &operator[](const std::string &key) { return map_[key]; }
    inline Pair *find(const std::string &key) {
        uint64_t integer = integer_of<Hash>(key);
        Pair *record = table_.find(integer, key);
        if (!record) {
            auto found = map_.find(key);
            if (found != map_.end()) {
                record = &*found;
                table_.insert(integer, record);
            }
        }
        return record;
    }
    Pair *end() { return nullptr; }
    /* The row goes before the record does: nothing answers with freed memory. */
    inline void erase(const std::string &key) {
        table_.erase(integer_of<Hash>(key));
        map_.erase(key);
    }

  private:
    Map map_;
    Table table_;
};

template <class Hash> static void print(const char *name) {
    std::printf("%s", name);
    for (const char *text : {"user06284781860667377211", "user00000000000000000000"})
        std::printf(" 0x%016llx", (unsigned long long)integer_of<Hash>(text));
    std::printf("\n");
}

/* For their listing. */
template class Asked<Pair>;
template class Slb<Pair>;
template class Rows<Pair>;

int main(int argc, char **argv) {
    if (argc == 2 && !std::strcmp(argv[1], "hashes")) {
        print<Xxh3>("xxh3"), print<Xxh64>("xxh64"), print<Murmur>("murmur");
        print<Djb2>("djb2"), print<SipHash>("siphash");
        return 0;
    }
    if (argc != 3) {
        std::fprintf(stderr, "usage: kv_requests ... | %s KEYS BYTES >/dev/null\n", argv[0]);
        return 2;
    }
    auto map = new Shortened<TABLE<Pair>, HASH>(std::strtoull(argv[2], nullptr, 0));
    return serve(*map, 2, argv);
}
