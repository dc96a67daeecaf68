`include "l2p.svh"

// From the hash to the L2P entry: for any hash and any registers that a kernel may write, the entry is one of
// the way's own, and entry and offset name the slot.
module chunks #(
    parameter bit DESCENDS = 1'b0,
    localparam int SLOT_BITS = `L2P_SLOT_BITS,
    localparam int SIZE_BITS = $clog2(SLOT_BITS + 1),
    localparam int ENTRY_BITS = `L2P_ENTRY_BITS,
    localparam int CHUNK_BITS = `L2P_CHUNK_KIND_BITS,
    localparam int OFFSET_BITS = `L2P_MOST_CHUNK_SLOT_BITS,
    localparam int KINDS = `L2P_CHUNK_KINDS,
    localparam int ENTRIES = `L2P_SIZES * `L2P_ENTRIES
) (
    input logic [ SLOT_BITS-1:0] field,
    input logic                  separate,
    input logic [ SIZE_BITS-1:0] old_bits,
    input logic [ SIZE_BITS-1:0] new_bits,
    input logic [   SLOT_BITS:0] pointer,
    input logic [CHUNK_BITS-1:0] old_kind,
    input logic [CHUNK_BITS-1:0] new_kind,
    input logic [ENTRY_BITS-1:0] old_first,
    input logic [ENTRY_BITS-1:0] new_first
);
  logic [SLOT_BITS-1:0] slot;
  logic [CHUNK_BITS-1:0] kind;
  logic [ENTRY_BITS-1:0] first, entry;
  logic [OFFSET_BITS-1:0] offset;
  slot_select slot_select (
      .field,
      .separate,
      .old_bits,
      .new_bits,
      .pointer,
      .old_kind,
      .new_kind,
      .old_first,
      .new_first,
      .slot,
      .kind,
      .first
  );
  entry_select #(
      .DESCENDS(DESCENDS)
  ) entry_select (
      .slot,
      .kind,
      .first,
      .entry,
      .offset
  );

  // Binary logarithm of the slots of a chunk, and of the chunks of so many slots.
  localparam logic [8*KINDS-1:0] SLOTS = `L2P_CHUNK_SLOT_BITS;
  logic [7:0] old_slots, new_slots, slots, most_bits, old_chunks, new_chunks, chunks;
  assign old_slots  = SLOTS[old_kind*8+:8];
  assign new_slots  = SLOTS[new_kind*8+:8];
  assign slots      = SLOTS[kind*8+:8];
  // Tables that share their memory have the chunks of the larger one.
  assign most_bits  = new_bits > old_bits ? 8'(new_bits) : 8'(old_bits);
  assign old_chunks = chunk_bits(separate ? 8'(old_bits) : most_bits, old_slots);
  assign new_chunks = chunk_bits(8'(new_bits), new_slots);

  function automatic logic [7:0] chunk_bits(input logic [7:0] bits, input logic [7:0] of_chunk);
    chunk_bits = bits > of_chunk ? bits - of_chunk : 8'd0;
  endfunction

  // The entry, counted from the first one of its table.
  logic [ENTRY_BITS-1:0] number;
  logic is_new;
  assign number = DESCENDS ? first - entry : entry - first;
  assign is_new = {1'b0, field & ~({SLOT_BITS{1'b1}} << old_bits)} < pointer;
  assign chunks = separate && is_new ? new_chunks : old_chunks;

  function automatic logic fits(input logic [ENTRY_BITS-1:0] from, input logic [7:0] log);
    logic [ENTRY_BITS:0] number_of;
    number_of = (ENTRY_BITS + 1)'(1) << log;
    fits = from < ENTRY_BITS'(ENTRIES) &&
        (DESCENDS ? {1'b0, from} + 1'b1 >= number_of
                  : {1'b0, from} + number_of <= (ENTRY_BITS + 1)'(ENTRIES));
  endfunction

  always_comb begin
    assume (32'(old_bits) <= SLOT_BITS && 32'(new_bits) <= SLOT_BITS);
    assume (pointer <= (SLOT_BITS + 1)'(1) << old_bits);
    assume (32'(old_kind) < KINDS && 32'(new_kind) < KINDS);
    assume (old_chunks <= 8'(ENTRY_BITS - 1) && new_chunks <= 8'(ENTRY_BITS - 1));
    assume (fits(old_first, old_chunks));
    assume (fits(new_first, new_chunks));
    assert (32'(entry) < ENTRIES);
    assert ({1'b0, number} < (ENTRY_BITS + 1)'(1) << chunks);
    assert ((64'(number) << slots | 64'(offset)) == 64'(slot));
    assert (64'(offset) < 64'd1 << slots);
    // A slot lies in the part of its table that is in use.
    assert (is_new || {1'b0, slot} >= pointer);
    assert (64'(slot) < 64'd1 << (is_new ? new_bits : old_bits));
  end
endmodule
