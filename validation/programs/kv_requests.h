/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Requests of a key-value program, as kv_requests.cc writes them and the
 * programs over the libraries' containers read them from standard input: a head
 * of 32 bytes, and for a SET the value behind it. With -DDELETES they know how to
 * erase; without, they are the programs of GETs and SETs alone. With -DTWO they have two
 * maps with the same keys. With -DEARLIER=N so many requests precede the region of interest. */
#ifndef KV_REQUESTS_H
#define KV_REQUESTS_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

#include "pagewalk.h"

#ifdef TWO
#define MAPS [2]
#define MAP_OF(request) maps[(request)->which]
#else
#define MAPS
#define MAP_OF(request) maps
#endif

/* Requests after the load and before the region of interest. */
#ifndef EARLIER
#define EARLIER 0
#endif

struct Request {
#ifdef TWO
    uint16_t set;
    uint8_t unused, which;
#else
    uint32_t set; /* 0: a GET; 2: no SET either, but a DELETE */
#endif
    uint32_t value_bytes; /* of a DELETE 0 */
    char key[24];
};
static_assert(sizeof(Request) == 32);

/* Standard input, 64 KiB at a time. */
class Requests {
  public:
    /* The next request with its value behind it, or null at the end. */
    inline const Request *next() {
        if (end_ - at_ < LARGEST)
            refill();
        if (at_ == end_)
            return nullptr;
        const Request *request = reinterpret_cast<const Request *>(at_);
        at_ += sizeof(Request) + (request->set ? request->value_bytes : 0);
        return request;
    }

  private:
    static constexpr ptrdiff_t LARGEST = 32 + 256;
    alignas(4096) char buffer_[64 << 10];
    char *at_ = buffer_, *end_ = buffer_;

    __attribute__((noinline)) void refill() {
        size_t left = end_ - at_;
        std::memmove(buffer_, at_, left);
        at_ = buffer_;
        end_ = buffer_ + left;
        while (end_ < buffer_ + sizeof buffer_) {
            ssize_t got = read(STDIN_FILENO, end_, buffer_ + sizeof buffer_ - end_);
            if (got <= 0)
                break;
            end_ += got;
        }
    }
};

/* Values that GETs answer, 64 KiB at a time to standard output. */
class Replies {
  public:
    inline void add(const char *value, size_t bytes) {
        if (buffer_ + sizeof buffer_ - at_ < static_cast<ptrdiff_t>(bytes))
            flush();
        std::memcpy(at_, value, bytes);
        at_ += bytes;
    }

  private:
    alignas(4096) char buffer_[64 << 10];
    char *at_ = buffer_;

    __attribute__((noinline)) void flush() {
        if (write(STDOUT_FILENO, buffer_, at_ - buffer_) < 0)
            std::exit(1);
        at_ = buffer_;
    }
};

static Requests requests;
static Replies replies;

/* Requests with the first `argv[1]` keys load the map or both, the others are measured. */
template <class Maps> static int serve(Maps &maps, int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: kv_requests ... | %s KEYS >/dev/null\n", argv[0]);
        return 2;
    }
    std::string key;
    const Request *r;
    uint64_t left = std::strtoull(argv[1], nullptr, 0) * (sizeof maps / sizeof MAP_OF(r));
    for (; left && (r = requests.next()); left--) {
        key.assign(r->key, sizeof r->key);
        MAP_OF(r)[key].assign(reinterpret_cast<const char *>(r + 1), r->value_bytes);
    }
    uint64_t earlier = EARLIER;
    if (!EARLIER)
        pagewalk_roi_begin();
    while ((r = requests.next())) {
        if (EARLIER && !earlier--)
            pagewalk_roi_begin();
        key.assign(r->key, sizeof r->key);
        auto &map = MAP_OF(r);
        if (r->set) {
#ifdef DELETES
            if (r->set == 2) {
                map.erase(key);
                continue;
            }
#endif
            map[key].assign(reinterpret_cast<const char *>(r + 1), r->value_bytes);
        } else {
            auto found = map.find(key);
            if (found != map.end())
                replies.add(found->second.data(), found->second.size());
        }
    }
    pagewalk_roi_end();
    // Taking the map apart would take as long as all the rest.
    std::_Exit(0);
}

#endif
