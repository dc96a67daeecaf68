`include "l2p.svh"

// The only slot of a way that can hold a key: in the old table if that slot was not migrated, else in the new
// table.
module slot_select #(
    localparam int SLOT_BITS  = `L2P_SLOT_BITS,
    localparam int SIZE_BITS  = $clog2(SLOT_BITS + 1),
    localparam int ENTRY_BITS = `L2P_ENTRY_BITS,
    localparam int CHUNK_BITS = `L2P_CHUNK_KIND_BITS
) (
    // The way's field of the hash.
    input  logic [ SLOT_BITS-1:0] field,
    input  logic                  separate,
    input  logic [ SIZE_BITS-1:0] old_bits,
    input  logic [ SIZE_BITS-1:0] new_bits,
    input  logic [   SLOT_BITS:0] pointer,
    input  logic [CHUNK_BITS-1:0] old_kind,
    input  logic [CHUNK_BITS-1:0] new_kind,
    input  logic [ENTRY_BITS-1:0] old_first,
    input  logic [ENTRY_BITS-1:0] new_first,
    output logic [ SLOT_BITS-1:0] slot,
    // Chunks of the table in which the slot lies.
    output logic [CHUNK_BITS-1:0] kind,
    output logic [ENTRY_BITS-1:0] first
);
  logic [SLOT_BITS-1:0] old_slot, new_slot;
  logic migrated, other;
  assign old_slot = field & ~({SLOT_BITS{1'b1}} << old_bits);
  assign new_slot = field & ~({SLOT_BITS{1'b1}} << new_bits);
  assign migrated = {1'b0, old_slot} < pointer;
  assign other = migrated && separate;
  assign slot = migrated ? new_slot : old_slot;
  assign kind = other ? new_kind : old_kind;
  assign first = other ? new_first : old_first;
endmodule
