/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Shortcuts from a key to its record that a program keeps in software, and the
 * hash functions that lead to them: what the built-in key-value programs execute
 * with `shortcut` and `fast_hash`. Tables are those of one thread, without locks. */
#ifndef KV_SHORTCUT_H
#define KV_SHORTCUT_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Each takes a text and its length, as they are called: no length is known to the
 * compiler. */
struct Xxh3 {
    static inline uint64_t hash(const char *text, size_t length) {
        return XXH3_64bits(text, length);
    }
};

struct Xxh64 {
    static inline uint64_t hash(const char *text, size_t length) { return XXH64(text, length, 0); }
};

/* libstdc++'s: MurmurHash64A's rounds. */
struct Murmur {
    static inline uint64_t hash(const char *text, size_t length) {
        return std::_Hash_bytes(text, length, 0xc70f6907UL);
    }
};

/* Bernstein's: 33 times what was, plus the character. */
struct Djb2 {
    static inline uint64_t hash(const char *text, size_t length) {
        uint64_t hash = 5381;
        for (size_t i = 0; i < length; i++)
            hash = hash * 33 + static_cast<unsigned char>(text[i]);
        return hash;
    }
};

/* SipHash-1-2, as Redis has it (Aumasson and Bernstein). */
struct SipHash {
    static uint64_t seed[2];

    static inline uint64_t hash(const char *text, size_t length) {
        uint64_t v[4] = {UINT64_C(0x736f6d6570736575) ^ seed[0],
                         UINT64_C(0x646f72616e646f6d) ^ seed[1],
                         UINT64_C(0x6c7967656e657261) ^ seed[0],
                         UINT64_C(0x7465646279746573) ^ seed[1]};
        uint64_t last = static_cast<uint64_t>(length) << 56, word;
        for (const char *end = text + (length & ~size_t(7)); text != end; text += 8) {
            std::memcpy(&word, text, 8);
            v[3] ^= word;
            round(v);
            v[0] ^= word;
        }
        switch (length & 7) {
        case 7: last |= uint64_t(uint8_t(text[6])) << 48; [[fallthrough]];
        case 6: last |= uint64_t(uint8_t(text[5])) << 40; [[fallthrough]];
        case 5: last |= uint64_t(uint8_t(text[4])) << 32; [[fallthrough]];
        case 4: last |= uint64_t(uint8_t(text[3])) << 24; [[fallthrough]];
        case 3: last |= uint64_t(uint8_t(text[2])) << 16; [[fallthrough]];
        case 2: last |= uint64_t(uint8_t(text[1])) << 8; [[fallthrough]];
        case 1: last |= uint64_t(uint8_t(text[0])); break;
        case 0: break;
        }
        v[3] ^= last;
        round(v);
        v[0] ^= last;
        v[2] ^= 0xff;
        round(v);
        round(v);
        return v[0] ^ v[1] ^ v[2] ^ v[3];
    }

  private:
    static inline uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }
    static inline void round(uint64_t v[4]) {
        v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
        v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
    }
};

/* Marsaglia's xorshift64, which is enough to choose by. */
struct Random {
    uint64_t state = UINT64_C(88172645463325252);
    inline uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
};

/* Zeroed memory, as the kernel gives it. */
static inline void *pages(size_t bytes) {
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        std::abort();
    return at;
}

template <class Pair> static inline bool is_of(const Pair *record, const std::string &key) {
    return record->first.size() == key.size() &&
           std::memcmp(record->first.data(), key.data(), key.size()) == 0;
}

static constexpr uint64_t POINTER = (UINT64_C(1) << 48) - 1;

/* The search lookaside buffer of Wu, Ni and Jiang (SoCC 2017), written anew from its
 * description and the rules of its published code: slots of seven entries, a tag of
 * 16 bits and a pointer each, with counters of 4 bits in the word before them; sixteen
 * logs of the last seven tags for each slot. */
template <class Pair> class Slb {
  public:
    explicit Slb(size_t bytes)
        : count_(bytes / 5 / sizeof(Slot)), logs_(16 * count_),
          slots_(static_cast<Slot *>(pages(count_ * sizeof(Slot)))),
          log_(static_cast<Log *>(pages(logs_ * sizeof(Log)))) {}

    __attribute__((noinline)) Pair *find(uint64_t hash, const std::string &key) {
        Slot &slot = slots_[(hash >> 6) % count_];
#ifdef PREFETCH_SLOT
        __builtin_prefetch(&slot);
#endif
        uint64_t tag = fold(hash);
        for (unsigned i = 0; i < 7; i++) {
            uint64_t entry = slot.entry[i];
            if (entry >> 48 == tag && (entry & POINTER)) {
                Pair *record = reinterpret_cast<Pair *>(entry & POINTER);
                if (is_of(record, key)) {
                    if ((slot.counters >> 4 * i & 15) < 15)
                        slot.counters += UINT64_C(1) << 4 * i;
                    return record;
                }
            }
        }
        return nullptr;
    }

    /* After the slow path. */
    __attribute__((noinline)) void insert(uint64_t hash, Pair *record) {
        Slot &slot = slots_[(hash >> 6) % count_];
        uint64_t used = slot.counters >> 60;
#ifdef FIRST_FREE
        if (used < 7) {
            take_free(slot, fold(hash) << 48 | reinterpret_cast<uint64_t>(record));
            return;
        }
        if ((random_.next() & 0xfff) >= sampled_)
            return;
#else
        if (used == 7 && (random_.next() & 0xfff) >= sampled_)
            return;
#endif
        Log &log = log_[(hash >> 6) % logs_];
        uint64_t tag = fold(hash), seen = 0;
        for (unsigned i = 0; i < 7; i++)
            seen += log.tag[i] == tag;
        log.tag[log.head] = tag;
        log.head = log.head == 6 ? 0 : log.head + 1;
        if (!seen)
            return;
        uint64_t entry = tag << 48 | reinterpret_cast<uint64_t>(record);
#ifndef FIRST_FREE
        if (used < 7) {
            take_free(slot, entry);
            return;
        }
#endif
        unsigned at = random_.next() % 7;
        if (slot.counters >> 4 * at & 15)
            slot.counters -= UINT64_C(1) << 4 * at;
        for (unsigned i = 0; i < 7; i++) {
            if ((slot.counters >> 4 * at & 15) < seen) {
                slot.entry[at] = entry;
                slot.counters = (slot.counters & ~(UINT64_C(15) << 4 * at)) | seen << 4 * at;
                return;
            }
            at = at == 6 ? 0 : at + 1;
        }
    }

    /* The record of `hash` is about to be freed: no entry with its tag is left. */
    __attribute__((noinline)) void erase(uint64_t hash) {
        Slot &slot = slots_[(hash >> 6) % count_];
        uint64_t tag = fold(hash);
        for (unsigned i = 0; i < 7; i++) {
            if (slot.entry[i] >> 48 == tag && (slot.entry[i] & POINTER)) {
                slot.entry[i] = 0;
                slot.counters = (slot.counters & ~(UINT64_C(15) << 4 * i)) - (UINT64_C(1) << 60);
            }
        }
    }

    /* The record of `hash` has moved. */
    __attribute__((noinline)) void move(uint64_t hash, Pair *from, Pair *to) {
        Slot &slot = slots_[(hash >> 6) % count_];
        for (unsigned i = 0; i < 7; i++) {
            if ((slot.entry[i] & POINTER) == reinterpret_cast<uint64_t>(from)) {
                slot.entry[i] = fold(hash) << 48 | reinterpret_cast<uint64_t>(to);
                return;
            }
        }
    }

  private:
    struct Slot {
        uint64_t counters, entry[7];
    };
    struct Log {
        uint16_t head, tag[7];
    };
    static inline void take_free(Slot &slot, uint64_t entry) {
        for (unsigned i = 0; i < 7; i++) {
            if (!(slot.entry[i] & POINTER)) {
                slot.entry[i] = entry;
                slot.counters += UINT64_C(1) << 60;
                return;
            }
        }
    }

    size_t count_, logs_;
    Slot *slots_;
    Log *log_;
    uint64_t sampled_ = 0x1000 / 32;
    Random random_;

    static inline uint64_t fold(uint64_t hash) {
        hash ^= hash >> 32;
        return (hash ^ hash >> 16) & 0xffff;
    }
};

/* STLT's table without hardware: rows of 16 bytes, four to a set, of which the second
 * word, the page-table entry's, stays empty. */
template <class Pair> class Rows {
  public:
    explicit Rows(size_t bytes)
        : mask_(bytes / 64 - 1), rows_(static_cast<Row *>(pages(bytes))) {}

    __attribute__((noinline)) Pair *find(uint64_t integer, const std::string &key) {
        Row *set = rows_ + 4 * (integer >> 12 & mask_);
        for (unsigned i = 0; i < 4; i++) {
            uint64_t word = set[i].word;
            if ((word >> 48 & 0xfff) == (integer & 0xfff) && (word & POINTER)) {
                // The counter grows with probability 2^-counter, and wraps.
                uint64_t below = (UINT64_C(1) << (word >> 60)) - 1;
                if (!(random_.next() & below))
                    set[i].word = word + (UINT64_C(1) << 60);
                Pair *record = reinterpret_cast<Pair *>(word & POINTER);
                return is_of(record, key) ? record : nullptr;
            }
        }
        return nullptr;
    }

    __attribute__((noinline)) void insert(uint64_t integer, Pair *record) {
        Row *set = rows_ + 4 * (integer >> 12 & mask_), *to = set;
        for (unsigned i = 0; i < 4; i++) {
            uint64_t word = set[i].word;
            if ((word >> 48 & 0xfff) == (integer & 0xfff) || !(word & POINTER)) {
                to = &set[i];
                break;
            }
            if (word >> 60 < to->word >> 60)
                to = &set[i];
        }
        to->word = (integer & 0xfff) << 48 | reinterpret_cast<uint64_t>(record);
    }

    __attribute__((noinline)) void erase(uint64_t integer) {
        Row *set = rows_ + 4 * (integer >> 12 & mask_);
        for (unsigned i = 0; i < 4; i++) {
            uint64_t word = set[i].word;
            if ((word >> 48 & 0xfff) == (integer & 0xfff) && (word & POINTER)) {
                set[i].word = 0;
                return;
            }
        }
    }

    __attribute__((noinline)) void move(uint64_t integer, Pair *, Pair *to) { insert(integer, to); }

  private:
    struct Row {
        uint64_t word, entry;
    };
    uint64_t mask_;
    Row *rows_;
    Random random_;
};

/* What the program does when the machine answers: `loadVA` and `insertSTLT` are an
 * instruction each, here of another name. */
template <class Pair> class Asked {
  public:
    explicit Asked(size_t) {}
    __attribute__((noinline)) Pair *find(uint64_t integer, const std::string &key) {
        Pair *record;
        asm volatile("bswap %0" : "=r"(record) : "0"(integer));
        return record && is_of(record, key) ? record : nullptr;
    }
    __attribute__((noinline)) void insert(uint64_t integer, Pair *record) {
        asm volatile("xadd %0, %1" : "+r"(integer), "+r"(record));
    }
    /* With address 0. */
    __attribute__((noinline)) void erase(uint64_t integer) {
        Pair *none = nullptr;
        asm volatile("xadd %0, %1" : "+r"(integer), "+r"(none));
    }
};

#endif
