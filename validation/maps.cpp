/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Lookups of random keys in the maps of the standard library.
 *
 *     maps hash|tree KEYS LOOKUPS
 *
 * Key i is "key:0000" and the 16 hexadecimal digits, lowest first, of i hashed
 * by splitmix64. Keys are inserted in the order of i, and looked up in the order
 * of xorshift64; only the lookups are the region of interest. */
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>

#include "pagewalk.h"

static inline uint64_t splitmix64(uint64_t z) {
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline void write_key(std::string &key, uint64_t number) {
    uint64_t hash = splitmix64(number);
    char digits[16];
    for (char &digit : digits) {
        digit = "0123456789abcdef"[hash & 15];
        hash >>= 4;
    }
    key.assign("key:0000", 8);
    key.append(digits, sizeof digits);
}

template <class Map> static uint64_t run(uint64_t keys, uint64_t lookups) {
    Map map;
    std::string key;
    for (uint64_t i = 0; i < keys; i++) {
        write_key(key, i);
        map.emplace(key, i);
    }
    uint64_t x = UINT64_C(88172645463325252), sum = 0;
    pagewalk_roi_begin();
    for (uint64_t i = 0; i < lookups; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        write_key(key, x % keys);
        sum += map.find(key)->second;
    }
    pagewalk_roi_end();
    std::printf("%" PRIu64 "\n", sum);
    std::fflush(stdout);
    // Taking the map apart would take as long as all the rest.
    std::_Exit(0);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: maps hash|tree KEYS LOOKUPS\n");
        return 2;
    }
    uint64_t keys = std::strtoull(argv[2], nullptr, 10);
    uint64_t lookups = std::strtoull(argv[3], nullptr, 10);
    if (keys == 0) {
        std::fprintf(stderr, "maps: KEYS has to be at least 1\n");
        return 2;
    }
    if (std::strcmp(argv[1], "hash") == 0)
        run<std::unordered_map<std::string, uint64_t>>(keys, lookups);
    else
        run<std::map<std::string, uint64_t>>(keys, lookups);
}
