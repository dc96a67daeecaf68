/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Writes the requests of a YCSB client to standard output: first a SET of each
 * key, then the measured ones.
 *
 *     kv_requests KEYS OPERATIONS zipfian|scrambled|latest|uniform SETS% VALUE \
 *         [DELETES% [resize|same [MAPS]]]
 *
 * The generators are YCSB core 0.17.0's (Gray et al., SIGMOD 1994, for the
 * zipfian one), over std::mt19937_64 instead of Java's random numbers. With
 * latest a SET inserts a new key, otherwise it writes an old one. A DELETE takes a
 * key away, which a SET brings back. With resize a SET's value is of 64, 128 or 256
 * bytes, each as often. Of two maps both have all keys: a request is about either, which
 * its head's fourth byte says, and the first of each value says whose it is.
 *
 *     kv_requests check
 *
 * compares the generators with values that YCSB itself printed. */
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <unordered_map>
#include <vector>

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

    explicit Zipfian(uint64_t n, double zeta_n) : items(n), zeta(zeta_n) { set_eta(); }
    void set_eta() {
        double zeta2 = 1 + std::pow(0.5, theta);
        eta = (1 - std::pow(2.0 / items, 1 - theta)) / (1 - zeta2 / zeta);
    }
    /* Item number `n` is new: eta keeps the number of items at first. */
    void grow(uint64_t n) {
        zeta += sum(n, n);
        set_eta();
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

enum Kind { GET, SET, DELETE };

static unsigned maps = 1;

static void put(Kind kind, uint64_t number, uint32_t value_bytes, unsigned which) {
    char head[32 + 256 + 1];
    bool set = kind == SET;
    uint32_t words[2] = {kind | which << 24, kind == DELETE ? 0 : value_bytes};
    std::memcpy(head, words, 8);
    char key[25];
    std::snprintf(key, sizeof key, "user%020llu", static_cast<unsigned long long>(fnv64(number)));
    std::memcpy(head + 8, key, 24);
    if (set)
        std::memset(head + 32, 'a' + number % 26, value_bytes);
    if (maps > 1)
        head[32] = '0' + which;
    std::fwrite(head, 1, 32 + (set ? value_bytes : 0), stdout);
}

static bool near(const char *what, double got, double wanted, double apart) {
    bool good = std::fabs(got - wanted) <= apart;
    std::printf("%-28s %.9g (%.9g)%s\n", what, got, wanted, good ? "" : "  WRONG");
    return good;
}

/* Against values that site.ycsb:core:0.17.0 printed: shares of ranks are of five
 * million draws, of keys of three million. */
static int check() {
    const uint64_t hashes[] = {UINT64_C(6284781860667377211), UINT64_C(8517097267634966620),
                               UINT64_C(1820151046732198393), UINT64_C(4052466453699787802)};
    bool good = true;
    for (uint64_t i = 0; i < 4; i++)
        good &= near("fnv64", fnv64(i), hashes[i], 0) && fnv64(i) == hashes[i];
    good &= near("zeta(1000)", Zipfian::sum(1, 1000), 7.728953217284729, 1e-9);
    good &= near("zeta(10^7)", Zipfian::sum(1, 10000000), 18.066242574968303, 1e-9);

    const uint64_t draws = 5000000, ranks[] = {0, 1, 2, 9, 99};
    const double shares[] = {.12966, .06493, .05106, .01342, .00129};
    Zipfian zipfian(1000, Zipfian::sum(1, 1000));
    std::vector<uint64_t> counts(1000);
    for (uint64_t i = 0; i < draws; i++)
        counts.at(zipfian.rank(1000))++;
    // Five standard deviations of the difference of two such samples.
    for (int i = 0; i < 5; i++)
        good &= near("share of a rank", double(counts[ranks[i]]) / draws, shares[i],
                     5 * std::sqrt(2 * shares[i] / draws));

    Zipfian scrambled(10000000001, 26.46902820178302);
    std::unordered_map<uint64_t, uint64_t> keys;
    for (uint64_t i = 0; i < 3000000; i++)
        keys[fnv64(scrambled.rank(10000000001)) % 10000000]++;
    uint64_t most = 0;
    for (const auto &key : keys)
        most = std::max(most, key.second);
    good &= near("scrambled, top key", most / 3e6, .0378, 5 * std::sqrt(2 * .0378 / 3e6) + 5e-5);
    good &= near("scrambled, distinct keys", keys.size(), 1441847, 5000);
    return good ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 2 && !std::strcmp(argv[1], "check"))
        return check();
    if (argc < 6 || argc > 9 || std::atoi(argv[5]) > 256) {
        std::fprintf(stderr, "usage: kv_requests KEYS OPERATIONS "
                             "zipfian|scrambled|latest|uniform SETS%% VALUE "
                             "[DELETES%% [resize|same [MAPS]]]\n");
        return 2;
    }
    uint64_t keys = std::strtoull(argv[1], nullptr, 0), all = keys;
    uint64_t operations = std::strtoull(argv[2], nullptr, 0);
    bool uniform = !std::strcmp(argv[3], "uniform"), scrambled = !std::strcmp(argv[3], "scrambled");
    bool latest = !std::strcmp(argv[3], "latest");
    double sets = std::atof(argv[4]) / 100;
    uint32_t value = std::atoi(argv[5]);
    double deletes = argc > 6 ? std::atof(argv[6]) / 100 : 0;
    bool resize = argc > 7 && !std::strcmp(argv[7], "resize");
    maps = argc > 8 ? std::atoi(argv[8]) : 1;
    for (uint64_t i = 0; i < keys * maps; i++)
        put(SET, i / maps, value, i % maps);
    Zipfian zipfian = scrambled ? Zipfian(10000000001, 26.46902820178302)
                                : Zipfian(keys, Zipfian::sum(1, keys));
    for (uint64_t i = 0; i < operations; i++) {
        double u = draw();
        Kind kind = u < sets ? SET : u < sets + deletes ? DELETE : GET;
        if (resize && kind == SET)
            value = 64 << bits() % 3;
        unsigned which = maps > 1 ? bits() % maps : 0;
        if (latest && kind == SET) {
            put(SET, all++, value, which);
            zipfian.grow(all);
        } else if (latest) {
            put(kind, all - 1 - zipfian.rank(all), value, which);
        } else if (uniform) {
            put(kind, draw() * keys, value, which);
        } else if (scrambled) {
            put(kind, fnv64(zipfian.rank(10000000001)) % keys, value, which);
        } else {
            put(kind, zipfian.rank(keys), value, which);
        }
    }
}
