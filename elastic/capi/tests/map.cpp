// Compares elastic::map with std::map, under random changes.
#include "elastic.hpp"

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                              \
            std::exit(1);                                                                                             \
        }                                                                                                             \
    } while (0)

struct Point {
    std::int16_t x, y, z;
    bool operator==(const Point &other) const { return x == other.x && y == other.y && z == other.z; }
    bool operator<(const Point &other) const {
        return x != other.x ? x < other.x : y != other.y ? y < other.y : z < other.z;
    }
};

struct PointHash {
    std::uint64_t secret;
    std::uint64_t operator()(const Point &point) const {
        return (secret ^ static_cast<std::uint64_t>(point.x * 1000003 + point.y * 1009 + point.z)) * 0x9e3779b97f4a7c15;
    }
};

struct Same {
    std::uint64_t operator()(std::uint64_t) const { return 1; }
};

template <class Map, class Key, class Make> void compare(Map &map, Make make) {
    std::map<Key, std::uint64_t> model;
    std::mt19937_64 random(1);
    for (int step = 0; step < 40000; ++step) {
        // The map grows in the first half, and shrinks in the second.
        const bool add = random() % 10 < (step < 20000 ? 8u : 2u);
        const Key key = make(random() % 10000);
        if (add) {
            CHECK(map.insert_or_assign(key, step) == (model.count(key) == 0));
            model[key] = step;
        } else {
            CHECK(map.erase(key) == (model.erase(key) == 1));
        }
        const auto *found = map.find(key);
        CHECK((found != nullptr) == (model.count(key) == 1));
        if (found) CHECK(*found == model[key]);
    }
    CHECK(map.size() == model.size());
    std::size_t visited = 0;
    for (auto &[key, value] : map) {
        CHECK(model.at(key) == value);
        ++visited;
    }
    CHECK(visited == model.size());
    Map copy(map);
    map.clear();
    CHECK(map.empty() && map.begin() == map.end() && copy.size() == model.size());
    map = std::move(copy);
    CHECK(map.size() == model.size());
}

int main() {
    elastic::map<std::uint64_t, std::uint64_t> integers;
    compare<decltype(integers), std::uint64_t>(integers, [](std::uint64_t number) { return number; });
    elastic::map<Point, std::uint64_t, PointHash> points(PointHash{77});
    compare<decltype(points), Point>(points, [](std::uint64_t number) {
        return Point{static_cast<std::int16_t>(number % 10), static_cast<std::int16_t>(number / 10), 5};
    });
    elastic::map<std::uint64_t, char, Same> colliding;
    for (std::uint64_t key = 0; key < 300; ++key) colliding[key] = 'a';
    for (std::uint64_t key = 0; key < 300; ++key) CHECK(colliding.at(key) == 'a');
    CHECK(!colliding.contains(300));

    // Arguments may lie in the map.
    elastic::map<std::uint64_t, std::uint64_t> own;
    own[0] = 9;
    for (std::uint64_t key = 1; key < 1000; ++key) own.insert(key, own.at(key - 1));
    CHECK(own.at(999) == 9);
    while (!own.empty()) CHECK(own.erase(own.begin()->key));

    // Bad input is an error.
    try {
        own.reserve(std::numeric_limits<std::size_t>::max() / 2);
        CHECK(false);
    } catch (const std::bad_alloc &) {
    }
    try {
        own.at(1);
        CHECK(false);
    } catch (const std::out_of_range &) {
    }
    const auto hash = [](const void *, const void *) -> std::uint64_t { return 0; };
    const auto equal = [](const void *, const void *, const void *) { return true; };
    CHECK(!elastic_new(8, 3, hash, equal, nullptr));
    CHECK(!elastic_new(8, 0, hash, equal, nullptr));
    CHECK(!elastic_new(12, 8, hash, equal, nullptr));
    CHECK(!elastic_new(std::numeric_limits<std::size_t>::max() / 8, 1, hash, equal, nullptr));
    CHECK(!elastic_new(8, 8, nullptr, equal, nullptr));
    CHECK(!elastic_new(8, 8, hash, nullptr, nullptr));
    CHECK(!elastic_find(nullptr, nullptr) && !elastic_erase(nullptr, nullptr) && elastic_len(nullptr) == 0);
    elastic_free(nullptr);
    std::puts("passed");
}
