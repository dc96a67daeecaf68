// A hash map whose inserts never stop to rehash and whose memory never doubles, for C++17 and newer.
//
// Link libelastic_capi.a, which `cargo build --release -p elastic-capi` makes. The functions at the top are the C
// interface. Their documentation is in elastic/capi/src/lib.rs.
#ifndef ELASTIC_HPP
#define ELASTIC_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

extern "C" {
struct elastic_map;
struct elastic_cursor {
    std::uintptr_t words[4];
};
elastic_map *elastic_new(std::size_t size, std::size_t align, std::uint64_t (*hash)(const void *, const void *),
                         bool (*equal)(const void *, const void *, const void *), const void *context);
void elastic_free(elastic_map *map);
void *elastic_find(const elastic_map *map, const void *key);
void *elastic_insert(elastic_map *map, const void *key, bool *inserted);
bool elastic_erase(elastic_map *map, const void *key);
bool elastic_reserve(elastic_map *map, std::size_t additional);
void elastic_shrink_to_fit(elastic_map *map);
void elastic_clear(elastic_map *map);
std::size_t elastic_len(const elastic_map *map);
std::size_t elastic_allocated_bytes(const elastic_map *map);
void elastic_start(elastic_cursor *cursor);
void *elastic_next(const elastic_map *map, elastic_cursor *cursor);
}

namespace elastic {

// A map from Key to Value. Entries move in memory: a pointer or iterator is valid until the next insert or erase.
// Hash and Equal must not throw. std::hash of an integer is the integer itself in common libraries: an attacker who
// selects keys needs a Hash with a secret key.
template <class Key, class Value, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>> class map {
    static_assert(std::is_trivially_copyable_v<Key> && std::is_trivially_copyable_v<Value>,
                  "entries are moved as bytes");

  public:
    struct value_type {
        const Key key;
        Value value;
    };

    // Visits all entries, in no particular order.
    template <bool Const> class basic_iterator {
      public:
        using iterator_category = std::forward_iterator_tag;
        using value_type = map::value_type;
        using difference_type = std::ptrdiff_t;
        using reference = std::conditional_t<Const, const value_type &, value_type &>;
        using pointer = std::conditional_t<Const, const value_type *, value_type *>;

        basic_iterator() = default;
        reference operator*() const { return *static_cast<pointer>(entry_); }
        pointer operator->() const { return static_cast<pointer>(entry_); }
        basic_iterator &operator++() {
            entry_ = elastic_next(map_, &cursor_);
            return *this;
        }
        basic_iterator operator++(int) {
            basic_iterator before = *this;
            ++*this;
            return before;
        }
        bool operator==(const basic_iterator &other) const { return entry_ == other.entry_; }
        bool operator!=(const basic_iterator &other) const { return entry_ != other.entry_; }

      private:
        friend class map;
        explicit basic_iterator(const elastic_map *map) : map_(map) {
            elastic_start(&cursor_);
            ++*this;
        }
        const elastic_map *map_ = nullptr;
        elastic_cursor cursor_ = {};
        void *entry_ = nullptr;
    };
    using iterator = basic_iterator<false>;
    using const_iterator = basic_iterator<true>;

    // Throws std::bad_alloc without memory, as all functions that insert.
    explicit map(Hash hash = Hash(), Equal equal = Equal())
        : functions_(new functions{std::move(hash), std::move(equal)}),
          map_(elastic_new(sizeof(value_type), alignof(value_type), &hash_of, &equal_keys, functions_.get())) {
        if (!map_) throw std::bad_alloc();
    }
    map(const map &other) : map(other.functions_->hash, other.functions_->equal) {
        for (const value_type &entry : other) insert(entry.key, entry.value);
    }
    // A map that was moved from can be destroyed and assigned to.
    map(map &&other) noexcept = default;
    map &operator=(map other) noexcept {
        std::swap(functions_, other.functions_);
        std::swap(map_, other.map_);
        return *this;
    }

    std::size_t size() const { return elastic_len(map_.get()); }
    bool empty() const { return size() == 0; }
    std::size_t allocated_bytes() const { return elastic_allocated_bytes(map_.get()); }

    // The value of a key, or null.
    Value *find(const Key &key) {
        auto *entry = static_cast<value_type *>(elastic_find(map_.get(), &key));
        return entry ? &entry->value : nullptr;
    }
    const Value *find(const Key &key) const { return const_cast<map *>(this)->find(key); }
    bool contains(const Key &key) const { return find(key) != nullptr; }

    // The value of a key. Throws std::out_of_range if there is none.
    Value &at(const Key &key) {
        if (Value *value = find(key)) return *value;
        throw std::out_of_range("elastic::map::at");
    }
    const Value &at(const Key &key) const { return const_cast<map *>(this)->at(key); }

    // The value of a key, Value() if there was none.
    Value &operator[](const Key &key) { return *insert(key, Value()).first; }

    // Inserts unless the map has the key. The value in the map, and true if it is new.
    std::pair<Value *, bool> insert(const Key &key, const Value &value) {
        // Copies: the arguments may be parts of an entry that moves.
        const value_type made{key, value};
        bool inserted = false;
        void *entry = elastic_insert(map_.get(), &made.key, &inserted);
        if (!entry) throw std::bad_alloc();
        if (inserted) new (entry) value_type(made);
        return {&static_cast<value_type *>(entry)->value, inserted};
    }

    // Sets the value of a key. True if the key is new.
    bool insert_or_assign(const Key &key, const Value &value) {
        const Value copy = value;
        auto [at, inserted] = insert(key, copy);
        if (!inserted) *at = copy;
        return inserted;
    }

    // Removes a key. True if there was one.
    bool erase(const Key &key) {
        const Key copy = key;
        return elastic_erase(map_.get(), &copy);
    }

    void reserve(std::size_t additional) {
        if (!elastic_reserve(map_.get(), additional)) throw std::bad_alloc();
    }
    void shrink_to_fit() { elastic_shrink_to_fit(map_.get()); }
    void clear() { elastic_clear(map_.get()); }

    iterator begin() { return iterator(map_.get()); }
    iterator end() { return {}; }
    const_iterator begin() const { return const_iterator(map_.get()); }
    const_iterator end() const { return {}; }

  private:
    struct functions {
        Hash hash;
        Equal equal;
    };
    struct free_map {
        void operator()(elastic_map *map) const { elastic_free(map); }
    };

    static std::uint64_t hash_of(const void *context, const void *key) noexcept {
        return static_cast<const functions *>(context)->hash(*static_cast<const Key *>(key));
    }
    static bool equal_keys(const void *context, const void *left, const void *right) noexcept {
        return static_cast<const functions *>(context)->equal(*static_cast<const Key *>(left),
                                                              *static_cast<const Key *>(right));
    }

    std::unique_ptr<functions> functions_;
    std::unique_ptr<elastic_map, free_map> map_;
};

} // namespace elastic

#endif
