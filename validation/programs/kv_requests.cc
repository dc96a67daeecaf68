/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Writes the requests of a YCSB client to standard output: first a SET of each
 * key, then the measured ones.
 *
 *     kv_requests KEYS OPERATIONS zipfian|scrambled|latest|uniform SETS% VALUE
 *
 * The generators are YCSB core 0.17.0's (Gray et al., SIGMOD 1994, for the
 * zipfian one), over std::mt19937_64 instead of Java's random numbers. With
 * latest a SET inserts a new key, otherwise it writes an old one. */
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

static std::mt19937_64 bits(1);
static double draw() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

static uint64_t fnv64(uint64_t number) {
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (int octet = 0; octet < 8; octet++, number >>= 8)
        hash = (hash ^ (number & 0xff)) * UINT64_C(1099511628211);
    return static_cast<int64_t>(hash) < 0 ? -hash : hash;
}

struct Zipfian {
    static constexpr double theta = 0.99;
    double items, zeta, eta;

    explicit Zipfian(uint64_t n, double zeta_n) : items(n), zeta(zeta_n) {
        double zeta2 = 1 + std::pow(0.5, theta);
        eta = (1 - std::pow(2.0 / items, 1 - theta)) / (1 - zeta2 / zeta);
    }
    static double sum(uint64_t from, uint64_t to) {
        double zeta = 0;
        for (uint64_t i = from; i <= to; i++)
            zeta += std::pow(i, -theta);
        return zeta;
    }
    uint64_t rank(double n) const {
        double u = draw(), uz = u * zeta;
        if (uz < 1)
            return 0;
        if (uz < 1 + std::pow(0.5, theta))
            return 1;
        return n * std::pow(eta * u - eta + 1, 1 / (1 - theta));
    }
};

static void put(bool set, uint64_t number, uint32_t value_bytes) {
    char head[32 + 256 + 1];
    uint32_t words[2] = {set, value_bytes};
    std::memcpy(head, words, 8);
    char key[25];
    std::snprintf(key, sizeof key, "user%020llu", static_cast<unsigned long long>(fnv64(number)));
    std::memcpy(head + 8, key, 24);
    if (set)
        std::memset(head + 32, 'a' + number % 26, value_bytes);
    std::fwrite(head, 1, 32 + (set ? value_bytes : 0), stdout);
}

int main(int argc, char **argv) {
    if (argc != 6 || std::atoi(argv[5]) > 256) {
        std::fprintf(stderr, "usage: kv_requests KEYS OPERATIONS "
                             "zipfian|scrambled|latest|uniform SETS%% VALUE\n");
        return 2;
    }
    uint64_t keys = std::strtoull(argv[1], nullptr, 0), all = keys;
    uint64_t operations = std::strtoull(argv[2], nullptr, 0);
    bool uniform = !std::strcmp(argv[3], "uniform"), scrambled = !std::strcmp(argv[3], "scrambled");
    bool latest = !std::strcmp(argv[3], "latest");
    double sets = std::atof(argv[4]) / 100;
    uint32_t value = std::atoi(argv[5]);
    for (uint64_t i = 0; i < keys; i++)
        put(true, i, value);
    Zipfian zipfian = scrambled ? Zipfian(10000000001, 26.46902820178302)
                                : Zipfian(keys, Zipfian::sum(1, keys));
    for (uint64_t i = 0; i < operations; i++) {
        bool set = draw() < sets;
        if (latest && set) {
            zipfian.zeta += Zipfian::sum(all + 1, all + 1);
            put(true, all++, value);
        } else if (latest) {
            put(false, all - 1 - zipfian.rank(all), value);
        } else if (uniform) {
            put(set, draw() * keys, value);
        } else if (scrambled) {
            put(set, fnv64(zipfian.rank(10000000001)) % keys, value);
        } else {
            put(set, zipfian.rank(keys), value);
        }
    }
}
