// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One batch of DLRM's lookups, by PyTorch: an embedding bag for each table, with the
// indices that dlrm_data_pytorch.py's generate_uniform_input_batch draws.
//
//     embedding_bag TABLES ROWS FLOATS POOLING SAMPLES
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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
