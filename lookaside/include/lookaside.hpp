/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * lookaside for C++17: lookaside::table, and lookaside::map<M> over containers. The rules of
 * lookaside.h hold. */
#ifndef LOOKASIDE_HPP
#define LOOKASIDE_HPP

#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "lookaside.h"

namespace lookaside {

/* Lookups of a batch whose waits for memory overlap. */
inline constexpr size_t BATCH = LOOKASIDE_BATCH;

/* Throws what a status means: std::invalid_argument or std::bad_alloc. */
inline void check(int status) {
    if (status == LOOKASIDE_NO_MEMORY)
        throw std::bad_alloc();
    if (status != LOOKASIDE_OK)
        throw std::invalid_argument("lookaside: no rows, or a null or misaligned table");
}

/* A table of addresses of `T`. */
template <class T> class table {
  public:
    /* An empty table of at least `rows` rows of 8 bytes. Throws std::invalid_argument for 0 rows, and
     * std::bad_alloc. */
    explicit table(size_t rows) {
        lookaside_table *made;
        check(lookaside_new(rows, &made));
        table_.reset(made);
    }

    /* The record that was inserted with this hash and that `verify(T *)` accepts, or null. */
    template <class Verify> T *find(uint64_t hash, Verify &&verify) const {
        T *found = find_row(hash, verify);
        if (found == nullptr)
            lookaside_count_misses(table_.get(), 1);
        return found;
    }

    /* Finds `count` hashes and overlaps their waits for memory. `verify(position, T *)` compares keys.
     * Returns the number of hits. */
    template <class Verify> size_t find_batch(const uint64_t *hashes, T **found, size_t count, Verify &&verify) const {
        size_t hits = 0;
        for (size_t start = 0; start < count; start += BATCH) {
            size_t end = count - start < BATCH ? count : start + BATCH;
            for (size_t i = start; i < end; i++)
                lookaside_prefetch(table_.get(), hashes[i]);
            for (size_t i = start; i < end; i++) {
                found[i] = find_row(hashes[i], [](T *) { return true; });
                __builtin_prefetch(found[i]);
            }
            for (size_t i = start; i < end; i++) {
                // A second row of this tag is rare: it is compared only after the first one's record.
                if (T *first = found[i]; first != nullptr && !verify(i, first))
                    found[i] = find_row(hashes[i], [&](T *at) { return at != first && verify(i, at); });
                hits += found[i] != nullptr;
            }
        }
        lookaside_count_misses(table_.get(), count - hits);
        return hits;
    }

    /* False, and nothing is remembered, if the address is null or above 48 bits. */
    bool insert(uint64_t hash, const T *at) const {
        return lookaside_insert(table_.get(), hash, const_cast<void *>(static_cast<const void *>(at)));
    }
    void invalidate(uint64_t hash) const { lookaside_invalidate(table_.get(), hash); }
    void prefetch(uint64_t hash) const { lookaside_prefetch(table_.get(), hash); }
    __attribute__((always_inline)) bool admit(uint32_t lookups) const { return lookaside_admit(table_.get(), lookups); }

    /* Looks up a record through the table if that pays, else by `index()` alone, which returns T *. */
    template <class Hash, class Verify, class Index> T *lookup(Hash &&hash, Verify &&verify, Index &&index) const {
        if (!admit(1))
            return index();
        uint64_t value = hash();
        T *found = find(value, verify);
        if (found == nullptr && (found = index()) != nullptr)
            insert(value, found);
        return found;
    }

    void resize(size_t rows) { check(lookaside_resize(table_.get(), rows)); }
    void flush() const { check(lookaside_flush(table_.get())); }
    void set_automatic(bool automatic) const { check(lookaside_set_automatic(table_.get(), automatic)); }
    size_t rows() const { return (table_->mask + 1) * LOOKASIDE_WAYS; }
    lookaside_counts statistics() const {
        lookaside_counts counts;
        check(lookaside_statistics(table_.get(), &counts));
        return counts;
    }
    /* The same memory for C and Rust. */
    lookaside_table *get() const { return table_.get(); }

  private:
    struct release {
        void operator()(lookaside_table *table) const { lookaside_free(table); }
    };
    std::unique_ptr<lookaside_table, release> table_;

    template <class Verify> T *find_row(uint64_t hash, Verify &&verify) const {
        const lookaside_set *set = lookaside_set_of(table_.get(), hash);
        uint64_t tag = lookaside_tag(hash);
        for (unsigned matching = lookaside_matching(set, tag); matching; matching &= matching - 1) {
            T *at = static_cast<T *>(lookaside_address(set, matching, tag));
            if (at != nullptr && verify(at))
                return at;
        }
        return nullptr;
    }
};

/* The hash of a key for the table: integers, and what converts to a std::string_view. */
struct hash {
    template <class Key> uint64_t operator()(const Key &key) const {
        if constexpr (std::is_integral_v<Key> || std::is_enum_v<Key>) {
            return lookaside_mix(static_cast<uint64_t>(key));
        } else {
            std::string_view bytes(key);
            return lookaside_hash_bytes(bytes.data(), bytes.size());
        }
    }
};

/* A record with memory of its own, for containers that move their elements. */
template <class Key, class Value> struct record {
    Key first;
    Value second;
};

namespace detail {
template <class> struct is_record : std::false_type {};
template <class Key, class Value> struct is_record<record<Key, Value> *> : std::true_type {
    using mapped = Value;
};
template <class M, bool = is_record<typename M::mapped_type>::value> struct elements {
    using type = typename M::value_type;
    using value = typename M::mapped_type;
};
template <class M> struct elements<M, true> {
    using type = std::remove_pointer_t<typename M::mapped_type>;
    using value = typename is_record<typename M::mapped_type>::mapped;
};
} // namespace detail

/* True if the elements of `M` stay at their addresses while other elements come and go. Specialise it
 * for other containers of which this is true. */
template <class M> struct stable_elements : std::false_type {};
template <class K, class V, class C, class A> struct stable_elements<std::map<K, V, C, A>> : std::true_type {};
template <class K, class V, class H, class E, class A>
struct stable_elements<std::unordered_map<K, V, H, E, A>> : std::true_type {};

/* A map whose lookups go through a table.
 *
 * `M` is a container with stable_elements: std::map or std::unordered_map. Containers that move their elements
 * (absl::btree_map, absl::flat_hash_map, google::dense_hash_map) have lookaside::record<Key, Value> * as mapped
 * type; the map owns the records. Keys that are equal by == are equal to the container.
 *
 * find() may run in many threads at once; changes exclude all others, as for the containers. */
template <class M, class Hash = hash> class map {
    static constexpr bool RECORDS = detail::is_record<typename M::mapped_type>::value;
    static_assert(RECORDS || stable_elements<M>::value,
                  "this container moves its elements: map its keys to lookaside::record<Key, Value> *");

  public:
    using key_type = typename M::key_type;
    using value_type = typename detail::elements<M>::type;
    using mapped_type = typename detail::elements<M>::value;

    /* `index` is empty. Throws as lookaside::table. */
    explicit map(size_t rows, M index = M()) : table_(rows), index_(std::move(index)) {}
    map(const map &) = delete;
    map &operator=(const map &) = delete;
    ~map() {
        if constexpr (RECORDS)
            for (auto &element : index_)
                delete element.second;
    }

    /* The value of this key, or null. */
    mapped_type *find(const key_type &key) const {
        if (table_.admit(1))
            return find_admitted(key);
        value_type *found = find_in_index(key, false);
        return found != nullptr ? &found->second : nullptr;
    }

    /* Writes the value of each key to `values`, or null, and overlaps the waits for memory. */
    void find_batch(const key_type *keys, mapped_type **values, size_t count) const {
        for (size_t start = 0; start < count; start += BATCH) {
            size_t size = count - start < BATCH ? count - start : BATCH;
            if (table_.admit(static_cast<uint32_t>(size))) {
                find_group_admitted(keys + start, values + start, size);
                continue;
            }
            for (size_t i = start; i < start + size; i++) {
                value_type *at = find_in_index(keys[i], false);
                values[i] = at != nullptr ? &at->second : nullptr;
            }
        }
    }

    /* Sets the value of this key. True if the key is new. */
    bool insert_or_assign(const key_type &key, mapped_type value) {
        if (value_type *at = find_in_index(key, false)) {
            at->second = std::move(value);
            return false;
        }
        value_type *at;
        if constexpr (RECORDS) {
            auto made = std::make_unique<value_type>(value_type{key, std::move(value)});
            at = made.get();
            index_.insert(typename M::value_type(key, at));
            made.release();
        } else {
            at = &*index_.emplace(key, std::move(value)).first;
        }
        remember(at);
        return true;
    }

    /* True if there was such a record. */
    bool erase(const key_type &key) {
        auto found = index_.find(key);
        if (found == index_.end())
            return false;
        if constexpr (RECORDS) {
            table_.invalidate(hash_(found->second->first));
            delete found->second;
        } else {
            table_.invalidate(hash_(found->first));
        }
        index_.erase(found);
        return true;
    }

    size_t size() const { return index_.size(); }
    const M &index() const { return index_; }
    const table<value_type> &rows() const { return table_; }
    void resize(size_t rows) { table_.resize(rows); }

  private:
    table<value_type> table_;
    mutable M index_; /* containers have no find() that is const and gives values to change */
    Hash hash_;

    /* A function of its own: compiled into the caller, it makes bypassed lookups much slower (measured with
     * std::unordered_map on a Zen 4). */
    __attribute__((noinline)) mapped_type *find_admitted(const key_type &key) const {
        value_type *found = table_.find(hash_(key), [&](value_type *at) { return at->first == key; });
        if (found == nullptr)
            found = find_in_index(key, true);
        return found != nullptr ? &found->second : nullptr;
    }

    __attribute__((noinline)) void find_group_admitted(const key_type *keys, mapped_type **values, size_t size) const {
        uint64_t hashes[BATCH];
        value_type *found[BATCH];
        for (size_t i = 0; i < size; i++)
            hashes[i] = hash_(keys[i]);
        table_.find_batch(hashes, found, size, [&](size_t i, value_type *at) { return at->first == keys[i]; });
        for (size_t i = 0; i < size; i++) {
            value_type *at = found[i] != nullptr ? found[i] : find_in_index(keys[i], true);
            values[i] = at != nullptr ? &at->second : nullptr;
        }
    }

    /* Rows have the hash of the record's own key: the container may find it by others, such as one in
     * another case. Lookups by those keys miss the table. */
    void remember(value_type *at) const { table_.insert(hash_(at->first), at); }

    value_type *find_in_index(const key_type &key, bool remembers) const {
        auto found = index_.find(key);
        if (found == index_.end())
            return nullptr;
        value_type *at;
        if constexpr (RECORDS)
            at = found->second;
        else
            at = &*found;
        if (remembers)
            remember(at);
        return at;
    }
};

} // namespace lookaside

#endif
