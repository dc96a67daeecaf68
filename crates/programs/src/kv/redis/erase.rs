//! Erasure from Redis's dictionary: `dbSyncDelete`, `dictGenericDelete` (5.0.7). The search is that of
//! `dictFind`, from its listing. Unlinking and freeing are as in the source.

use super::dictionary::{Dictionary, NIL, TABLE_BYTES, TABLES, TYPE};
use super::{ENTRY_BYTES, EXPIRES, KEY_SDS, OBJECT_BYTES};
use crate::heap::Heap;
use crate::kv::emit::Emit;
use crate::kv::index::{Gone, Key};
use crate::kv::libc;
use crate::kv::siphash::hash_of;
use crate::thread::NONE;
use pagewalk_stream::flags::{INDIRECT, TAKEN};

impl Dictionary {
    pub(super) fn take_out<E: Emit>(
        &mut self,
        e: &mut E,
        heap: &mut Heap,
        key: &Key,
        sp: u64,
    ) -> Option<Gone> {
        const CODE: u64 = 0x2c00;
        // No key ever expires.
        let first = e.load(0x700, 3, EXPIRES + 0x18, 8, [NONE; 2]);
        e.load(0x704, 1, EXPIRES + TABLE_BYTES + 0x18, 8, [NONE; 2]);
        e.branch(0x708, 0x710, 1, true, [first, NONE]);
        let found = self.find_entry(e, heap, (0x718, 4), key, sp)?;
        let (id, entry) = (found.id, found.record);
        // The search left the previous entry of the chain in a register.
        let hash = hash_of(key.number);
        let mut link = None;
        'tables: for (n, table) in self.tables.iter().enumerate() {
            if table.buckets.is_empty() {
                continue;
            }
            let bucket = table.bucket(hash);
            let (mut before, mut at) = (NIL, table.buckets[bucket]);
            while at != NIL {
                if at == id {
                    link = Some((n, bucket, before));
                    break 'tables;
                }
                (before, at) = (at, self.records[at as usize].next);
            }
        }
        let (n, bucket, before) = link?;
        let next = self.records[id as usize].next;
        let after = e.load(CODE, 1, entry + 16, 8, [found.at, NONE]);
        e.branch(CODE + 0x7, CODE + 0x10, 2, before == NIL, [NONE; 2]);
        if before == NIL {
            let at = self.tables[n].array + 8 * bucket as u64;
            e.store(CODE + 0x10, 2, at, 8, NONE, after);
            self.tables[n].buckets[bucket] = next;
        } else {
            let at = self.records[before as usize].entry.va() + 16;
            e.store(CODE + 0x9, 1, at, 8, NONE, after);
            self.records[before as usize].next = next;
        }
        // `dictFreeKey` and `dictFreeVal`, called through the type's pointers.
        let value = self.sizes.bytes(id);
        let (sds_bytes, header) = (Self::value_sds(value), Self::header(value));
        let record = &self.records[id as usize];
        let (text, object, value) = (record.key.va(), record.object.va(), record.value.va());
        let function = e.load(CODE + 0x18, 1, TYPE + 0x28, 8, [NONE; 2]);
        let at = e.load(CODE + 0x20, 3, entry, 8, [found.at, NONE]);
        let kind = e.load(CODE + 0x28, 4, text, 1, [at, function]);
        let call = (CODE + 0x38, 7);
        e.jump(
            CODE + 0x30,
            CODE + 0x34,
            3,
            TAKEN | INDIRECT,
            [kind.plus(2), NONE],
        );
        libc::free(e, heap, call, (text, at), KEY_SDS, sp);
        e.load(CODE + 0x48, 1, TYPE + 0x30, 8, [NONE; 2]);
        let at = e.load(CODE + 0x50, 3, entry + 8, 8, [found.at, NONE]);
        // `decrRefCount`, `freeStringObject`
        let count = e.load(CODE + 0x58, 3, object + 4, 4, [at, NONE]);
        e.branch(CODE + 0x60, CODE + 0x200, 2, false, [count, NONE]);
        let kind = e.load(CODE + 0x64, 1, object, 1, [at, NONE]);
        e.branch(CODE + 0x6c, CODE + 0x200, 4, false, [kind, NONE]);
        let sds = e.load(CODE + 0x70, 1, object + 8, 8, [at, NONE]);
        let kind = e.load(CODE + 0x74, 3, value + header - 1, 1, [sds, NONE]);
        e.jump(
            CODE + 0x80,
            CODE + 0x84,
            7,
            TAKEN | INDIRECT,
            [kind.plus(4), NONE],
        );
        libc::free(e, heap, (CODE + 0x88, 3), (value, sds), sds_bytes, sp);
        libc::free(e, heap, (CODE + 0x98, 3), (object, at), OBJECT_BYTES, sp);
        libc::free(
            e,
            heap,
            (CODE + 0xa8, 3),
            (entry, found.at),
            ENTRY_BYTES,
            sp,
        );
        let used_at = TABLES + TABLE_BYTES * n as u64 + 0x18;
        let used = e.load(CODE + 0xb0, 1, used_at, 8, [NONE; 2]);
        e.store(CODE + 0xb0, 0, used_at, 8, NONE, used.plus(1));
        e.jump(CODE + 0xb8, 0, 3, TAKEN, [NONE; 2]);
        self.tables[n].used -= 1;
        self.records.remove(id);
        Some(Gone { id, record: entry })
    }
}
