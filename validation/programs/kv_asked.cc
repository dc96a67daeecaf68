/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The counterparts of the built-in key-value programs with shortcut=stlt: the libraries'
 * containers, whose find asks the machine's table first (pagewalk.h). One container each:
 *
 *     make kv_asked_map kv_asked_hash kv_asked_dense kv_asked_btree
 *     pagewalk compare --designs radix,stlt --roi -- sh -c 'exec kv_asked_map KEYS < requests'
 *
 * kv_asked_two_* have two containers with the same keys in front of one table. The low four bits
 * of an integer say which of them it is about (STLT, figure 10); kv_asked_owner_* have no such
 * bits and ask the record, whose value begins with that number.
 *
 * Where no machine answers they do without, or with PAGEWALK_STLT_ROWS have a table of so many
 * rows in software. */
#include "kv_requests.h"
#include "kv_shortcut.h"

struct Told;

#ifdef INDEX_MAP
#include <map>
typedef std::map<std::string, Told> Index;
#elif defined INDEX_HASH
#include <unordered_map>
typedef std::unordered_map<std::string, Told> Index;
#elif defined INDEX_DENSE
#include <sparsehash/dense_hash_map>
typedef google::dense_hash_map<std::string, Told, std::hash<std::string>> Index;
#elif defined INDEX_BTREE
#include <absl/container/btree_map.h>
typedef absl::btree_map<std::string, Told> Index;
#endif

typedef std::pair<const std::string, Told> Pair;

#if defined(TWO) && !defined(OWNER)
static constexpr uint64_t ID_BITS = 15;
#else
static constexpr uint64_t ID_BITS = 0;
#endif

static uint64_t integer_of(const std::string &key, unsigned id) {
    return (Xxh3::hash(key.data(), key.size()) & ~ID_BITS) | (id & ID_BITS);
}

/* Requests are served, and there is a table. */
static bool asking;

/* A value that enters its record at the new address when the container moves it. One that is
 * new is empty yet. */
struct Told : std::string {
    Told() = default;
    Told(const Told &from) : std::string(from) { moved(); }
    Told(Told &&from) noexcept : std::string(std::move(from)) { moved(); }
    Told &operator=(const Told &) = default;
    Told &operator=(Told &&) = default;

  private:
    inline void moved() {
        if (__builtin_expect(asking && !empty(), 0))
            enter();
    }
    __attribute__((noinline)) void enter();
};
static_assert(sizeof(Told) == sizeof(std::string), "records are what they are without");

void Told::enter() {
    // The key lies before the value, and is there first.
    const std::string *key = reinterpret_cast<const std::string *>(this) - 1;
    static_assert(sizeof(Pair) == 2 * sizeof(std::string), "nothing lies between");
    pagewalk_insert_va(integer_of(*key, front()), key);
}

/* The container as `serve` uses it. */
class Asking {
  public:
    Asking() {
#ifdef INDEX_DENSE
        index.set_empty_key(std::string());
#endif
    }
    Told &operator[](const std::string &key) { return index[key]; }

    Pair *find(const std::string &key) {
        if (__builtin_expect(!asking, 0) && (known_ || !begin()))
            return search(key);
        uint64_t integer = integer_of(key, id_);
        Pair *record = static_cast<Pair *>(pagewalk_load_va(integer));
        if (record && is_of(record, key) && owns(record))
            return record;
        record = search(key);
        if (record)
            pagewalk_insert_va(integer, record);
        return record;
    }
    Pair *end() { return nullptr; }

    Index index;

  private:
    static inline unsigned made = 0;

    /* Which of the containers it is: the first character of its values. */
    unsigned id_ = '0' + made++;
    bool known_ = false;

    bool owns([[maybe_unused]] const Pair *record) const {
#ifdef OWNER
        return static_cast<unsigned char>(record->second.front()) == id_;
#else
        return true;
#endif
    }

    /* The first request: whether there is a table. */
    __attribute__((noinline)) bool begin() {
        known_ = true;
        const char *rows = std::getenv("PAGEWALK_STLT_ROWS");
        // Any question tells.
        if (!rows)
            pagewalk_load_va(0);
        asking = rows ? pagewalk_stlt_alloc(std::strtoull(rows, nullptr, 0)) : pagewalk_answers();
        return asking;
    }

    Pair *search(const std::string &key) {
        auto found = index.find(key);
        return found != index.end() ? reinterpret_cast<Pair *>(&*found) : nullptr;
    }
};

int main(int argc, char **argv) {
    static Asking map MAPS;
    return serve(map, argc, argv);
}
