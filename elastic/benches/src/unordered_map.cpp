// std::unordered_map from 64-bit keys to 64-bit values, behind C functions.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <malloc.h>
#include <new>
#include <unordered_map>

// Counts bytes in the benchmark's allocator.
extern "C" void bench_count(std::ptrdiff_t bytes);

namespace {

// The size of a block with the header that malloc keeps for it.
std::ptrdiff_t block(void *at) { return static_cast<std::ptrdiff_t>(malloc_usable_size(at) + sizeof(std::size_t)); }

template <class T> struct Counting {
    using value_type = T;
    Counting() = default;
    template <class U> Counting(const Counting<U> &) {}
    T *allocate(std::size_t n) {
        void *at = std::malloc(n * sizeof(T));
        if (!at) throw std::bad_alloc();
        bench_count(block(at));
        return static_cast<T *>(at);
    }
    void deallocate(T *at, std::size_t) {
        bench_count(-block(at));
        std::free(at);
    }
    template <class U> bool operator==(const Counting<U> &) const { return true; }
    template <class U> bool operator!=(const Counting<U> &) const { return false; }
};

using Map = std::unordered_map<std::uint64_t, std::uint64_t, std::hash<std::uint64_t>, std::equal_to<std::uint64_t>,
                               Counting<std::pair<const std::uint64_t, std::uint64_t>>>;

} // namespace

extern "C" {
void *umap_new() { return new Map; }
void umap_free(void *map) { delete static_cast<Map *>(map); }
void umap_insert(void *map, std::uint64_t key, std::uint64_t value) { static_cast<Map *>(map)->insert_or_assign(key, value); }
bool umap_get(const void *map, std::uint64_t key, std::uint64_t *value) {
    const auto *typed = static_cast<const Map *>(map);
    auto found = typed->find(key);
    if (found == typed->end()) return false;
    *value = found->second;
    return true;
}
bool umap_remove(void *map, std::uint64_t key) { return static_cast<Map *>(map)->erase(key) != 0; }
std::uint64_t umap_sum(const void *map) {
    std::uint64_t sum = 0;
    for (const auto &pair : *static_cast<const Map *>(map)) sum += pair.second;
    return sum;
}
}
