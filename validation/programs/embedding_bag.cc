// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One batch of DLRM's lookups, by PyTorch: an embedding bag for each table, with the
// indices that dlrm_data_pytorch.py's generate_uniform_input_batch draws.
//
//     embedding_bag TABLES ROWS FLOATS POOLING SAMPLES
//
// An emulator doesn't show what a prefetch reads. In the kernel, once it is assembled, each
// `prefetcht0 (address)` becomes `test %al,(address)` with a prefix that has no effect: as
// long, a load for which nothing waits, and of its flags nobody asks.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "pagewalk.h"

struct Bags {
    std::vector<int64_t> indices, offsets;
};

static Bags draw(std::mt19937_64 &numbers, int64_t rows, int64_t pooling, int64_t samples) {
    std::uniform_real_distribution<double> one(0, 1);
    Bags bags;
    for (int64_t sample = 0; sample < samples; sample++) {
        double most = double(std::min(rows, pooling));
        auto count = int64_t(std::nearbyint(std::max(one(numbers) * most, 1.0)));
        std::vector<int64_t> bag;
        for (int64_t i = 0; i < count; i++)
            bag.push_back(int64_t(std::nearbyint(one(numbers) * double(rows - 1))));
        std::sort(bag.begin(), bag.end());
        bag.erase(std::unique(bag.begin(), bag.end()), bag.end());
        bags.offsets.push_back(int64_t(bags.indices.size()));
        bags.indices.insert(bags.indices.end(), bag.begin(), bag.end());
    }
    return bags;
}

static at::Tensor tensor(const std::vector<int64_t> &values) {
    at::Tensor copy = at::empty({int64_t(values.size())}, at::kLong);
    std::copy(values.begin(), values.end(), copy.data_ptr<int64_t>());
    return copy;
}

static at::Tensor sums(const at::Tensor &table, const at::Tensor &indices,
                       const at::Tensor &offsets) {
    return std::get<0>(at::embedding_bag(table, indices, offsets));
}

static int prefetches_to_loads() {
    int changed = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        uintptr_t from, to;
        if (sscanf(line, "%lx-%lx rwxp", &from, &to) != 2 || !strstr(line, " rwxp "))
            continue;
        for (auto *at = (unsigned char *)from; at + 4 <= (unsigned char *)to; at++) {
            if ((at[0] & 0xf0) != 0x40 || at[1] != 0x0f || at[2] != 0x18 || (at[3] & 0x38) != 8)
                continue;
            const unsigned char load[] = {0x3e, at[0], 0x84, (unsigned char)(at[3] & ~0x38)};
            memcpy(at, load, sizeof load);
            changed++;
        }
    }
    if (maps)
        fclose(maps);
    return changed;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: %s TABLES ROWS FLOATS POOLING SAMPLES\n", argv[0]);
        return 2;
    }
    int64_t count = atoll(argv[1]), rows = atoll(argv[2]), floats = atoll(argv[3]);
    int64_t pooling = atoll(argv[4]), samples = atoll(argv[5]);
    at::set_num_threads(1);
    std::mt19937_64 numbers(1);
    std::vector<at::Tensor> tables, indices, offsets, results;
    size_t lookups = 0;
    for (int64_t table = 0; table < count; table++) {
        Bags bags = draw(numbers, rows, pooling, samples);
        lookups += bags.indices.size();
        tables.push_back(at::ones({rows, floats}));
        indices.push_back(tensor(bags.indices));
        offsets.push_back(tensor(bags.offsets));
    }
    // The kernel is assembled at its first use.
    sums(at::ones({2, floats}), at::zeros({1}, at::kLong), at::zeros({1}, at::kLong));
    if (prefetches_to_loads() == 0) {
        fprintf(stderr, "no prefetch in the kernel: is it FBGEMM's for AVX2?\n");
        return 1;
    }
    pagewalk_roi_begin();
    for (int64_t table = 0; table < count; table++)
        results.push_back(sums(tables[table], indices[table], offsets[table]));
    pagewalk_roi_end();
    double total = 0;
    for (const at::Tensor &result : results)
        total += result.sum().item<double>();
    if (total != double(lookups) * double(floats)) {
        fprintf(stderr, "sum %g of %zu lookups\n", total, lookups);
        return 1;
    }
    printf("%zu lookups\n", lookups);
    return 0;
}
