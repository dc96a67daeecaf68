/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * RocksDB's memtable with lookaside: a factory of representations around SkipListFactory's. Nothing of
 * RocksDB is changed. Needs db/lookup_key.h of RocksDB's source, of the version of the library.
 *
 *   options.memtable_factory = std::make_shared<lookaside::MemTableFactory>(1 << 20);
 *
 * Each memtable has a table of its own, so no row outlives the memory of its entries. A row leads to the
 * newest entry of a user key. Comparators must hold keys with different bytes for different.
 *
 * A reader that looked an entry up may not insert its row once a writer has added a newer one. Writers
 * therefore count up a stripe of keys behind a lock after they add an entry, and empty the row. Readers take
 * the lock to insert, and only if the count is that of before their lookup. Hits take no lock. */
#ifndef LOOKASIDE_MEMTABLE_HPP
#define LOOKASIDE_MEMTABLE_HPP

#include <rocksdb/memtablerep.h>

#include <atomic>
#include <memory>
#include <string>

#include "db/lookup_key.h"
#include "lookaside.hpp"

namespace lookaside {

class MemTable final : public rocksdb::MemTableRep {
    using Each = bool (*)(void *, const char *);

  public:
    MemTable(size_t rows, rocksdb::Allocator *allocator, rocksdb::MemTableRep *inner)
        : MemTableRep(allocator), inner_(inner), table_(rows), stripes_(new Stripe[STRIPES]) {}

    rocksdb::KeyHandle Allocate(const size_t bytes, char **buffer) override { return inner_->Allocate(bytes, buffer); }
    void Insert(rocksdb::KeyHandle handle) override { inner_->Insert(handle), added(handle); }
    bool InsertKey(rocksdb::KeyHandle handle) override {
        bool is_new = inner_->InsertKey(handle);
        return added(handle), is_new;
    }
    void InsertWithHint(rocksdb::KeyHandle handle, void **hint) override {
        inner_->InsertWithHint(handle, hint), added(handle);
    }
    bool InsertKeyWithHint(rocksdb::KeyHandle handle, void **hint) override {
        bool is_new = inner_->InsertKeyWithHint(handle, hint);
        return added(handle), is_new;
    }
    void InsertWithHintConcurrently(rocksdb::KeyHandle handle, void **hint) override {
        inner_->InsertWithHintConcurrently(handle, hint), added(handle);
    }
    bool InsertKeyWithHintConcurrently(rocksdb::KeyHandle handle, void **hint) override {
        bool is_new = inner_->InsertKeyWithHintConcurrently(handle, hint);
        return added(handle), is_new;
    }
    void InsertConcurrently(rocksdb::KeyHandle handle) override { inner_->InsertConcurrently(handle), added(handle); }
    bool InsertKeyConcurrently(rocksdb::KeyHandle handle) override {
        bool is_new = inner_->InsertKeyConcurrently(handle);
        return added(handle), is_new;
    }
    bool Contains(const char *key) const override { return inner_->Contains(key); }
    void MarkReadOnly() override { inner_->MarkReadOnly(); }
    void MarkFlushed() override { inner_->MarkFlushed(); }
    uint64_t ApproximateNumEntries(const rocksdb::Slice &start, const rocksdb::Slice &end) override {
        return inner_->ApproximateNumEntries(start, end);
    }
    void UniqueRandomSample(const uint64_t entries, const uint64_t samples,
                            std::unordered_set<const char *> *out) override {
        inner_->UniqueRandomSample(entries, samples, out);
    }
    size_t ApproximateMemoryUsage() override { return inner_->ApproximateMemoryUsage() + table_.rows() * 8; }
    Iterator *GetIterator(rocksdb::Arena *arena) override { return inner_->GetIterator(arena); }
    Iterator *GetDynamicPrefixIterator(rocksdb::Arena *arena) override {
        return inner_->GetDynamicPrefixIterator(arena);
    }
    bool IsMergeOperatorSupported() const override { return inner_->IsMergeOperatorSupported(); }
    bool IsSnapshotSupported() const override { return inner_->IsSnapshotSupported(); }

    /* Passes the entries of the key from the newest visible one on, until `each` returns false. */
    void Get(const rocksdb::LookupKey &key, void *arguments, Each each) override {
        if (!table_.admit(1))
            return inner_->Get(key, arguments, each);
        rocksdb::Slice user_key = key.user_key();
        uint64_t hash = lookaside_hash_bytes(user_key.data(), user_key.size());
        uint64_t sequence = sequence_of(key.internal_key());
        const char *entry = table_.find(hash, [&](const char *at) {
            rocksdb::Slice internal = internal_key(at);
            return internal.size() == user_key.size() + 8 && sequence_of(internal) <= sequence &&
                   std::memcmp(internal.data(), user_key.data(), user_key.size()) == 0;
        });
        if (entry == nullptr && (entry = fill(user_key, hash)) == nullptr)
            return;
        if (sequence_of(internal_key(entry)) > sequence)
            return inner_->Get(key, arguments, each);
        if (!each(arguments, entry))
            return;
        Rest rest{entry, arguments, each};
        inner_->Get(key, &rest, [](void *context, const char *older) {
            auto *rest = static_cast<Rest *>(context);
            if (rest->after != nullptr) {
                if (rest->after == older)
                    rest->after = nullptr;
                return true;
            }
            return rest->each(rest->arguments, older);
        });
    }

    const table<const char> &rows() const { return table_; }

  private:
    /* Entries that follow one that was passed already. */
    struct Rest {
        const char *after;
        void *arguments;
        Each each;
    };
    struct alignas(16) Stripe {
        std::atomic<uint64_t> additions{0};
        std::atomic_flag lock = ATOMIC_FLAG_INIT;
    };
    static constexpr size_t STRIPES = 1024;

    std::unique_ptr<rocksdb::MemTableRep> inner_;
    table<const char> table_;
    std::unique_ptr<Stripe[]> stripes_;

    /* An entry is the internal key and the value, each behind its length as a varint of 32 bits. */
    static rocksdb::Slice internal_key(const char *entry) {
        uint32_t bytes = 0;
        for (int shift = 0;; shift += 7, entry++) {
            bytes |= static_cast<uint32_t>(*entry & 0x7F) << shift;
            if ((*entry & 0x80) == 0)
                return {entry + 1, bytes};
        }
    }
    /* The last eight bytes of an internal key: the sequence number above the type of eight bits. */
    static uint64_t sequence_of(const rocksdb::Slice &internal) {
        uint64_t packed;
        std::memcpy(&packed, internal.data() + internal.size() - 8, 8);
        return packed >> 8;
    }

    template <class Locked> void locked(Stripe &stripe, Locked &&run) {
        while (stripe.lock.test_and_set(std::memory_order_acquire))
            ;
        run();
        stripe.lock.clear(std::memory_order_release);
    }

    void added(rocksdb::KeyHandle handle) {
        rocksdb::Slice internal = internal_key(static_cast<const char *>(handle));
        uint64_t hash = lookaside_hash_bytes(internal.data(), internal.size() - 8);
        Stripe &stripe = stripes_[hash % STRIPES];
        locked(stripe, [&] {
            stripe.additions.fetch_add(1, std::memory_order_acq_rel);
            table_.invalidate(hash);
        });
    }

    /* The newest entry of the key, for which it inserts a row, or null. */
    const char *fill(const rocksdb::Slice &user_key, uint64_t hash) {
        Stripe &stripe = stripes_[hash % STRIPES];
        uint64_t additions = stripe.additions.load(std::memory_order_acquire);
        constexpr uint64_t NEWEST = (UINT64_C(1) << 56) - 1;
        const char *newest = nullptr;
        inner_->Get(rocksdb::LookupKey(user_key, NEWEST), &newest, [](void *context, const char *entry) {
            *static_cast<const char **>(context) = entry;
            return false;
        });
        // A skip list passes the first entry that does not precede the key: it may be of another key.
        if (newest == nullptr)
            return nullptr;
        rocksdb::Slice internal = internal_key(newest);
        if (internal.size() != user_key.size() + 8 ||
            std::memcmp(internal.data(), user_key.data(), user_key.size()) != 0)
            return nullptr;
        locked(stripe, [&] {
            if (stripe.additions.load(std::memory_order_relaxed) == additions)
                table_.insert(hash, newest);
        });
        return newest;
    }
};

/* Makes memtables whose tables have `rows` rows of 8 bytes. */
class MemTableFactory final : public rocksdb::MemTableRepFactory {
  public:
    explicit MemTableFactory(size_t rows) : rows_(rows) {}
    using rocksdb::MemTableRepFactory::CreateMemTableRep;
    rocksdb::MemTableRep *CreateMemTableRep(const rocksdb::MemTableRep::KeyComparator &compare,
                                            rocksdb::Allocator *allocator, const rocksdb::SliceTransform *prefix,
                                            rocksdb::Logger *logger) override {
        std::unique_ptr<rocksdb::MemTableRep> inner(inner_.CreateMemTableRep(compare, allocator, prefix, logger));
        return new MemTable(rows_, allocator, inner.release());
    }
    const char *Name() const override { return "LookasideMemTableFactory"; }
    bool IsInsertConcurrentlySupported() const override { return true; }
    bool CanHandleDuplicatedKey() const override { return true; }

  private:
    size_t rows_;
    rocksdb::SkipListFactory inner_;
};

} // namespace lookaside

#endif
