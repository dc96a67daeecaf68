`include "l2p.svh"

// The L2P entry of a slot's chunk, and the slot's number in the chunk. A table's chunks have adjacent entries.
module entry_select #(
    // The entries of the chunks descend.
    parameter bit DESCENDS = 1'b0,
    localparam int SLOT_BITS = `L2P_SLOT_BITS,
    localparam int ENTRY_BITS = `L2P_ENTRY_BITS,
    localparam int CHUNK_BITS = `L2P_CHUNK_KIND_BITS,
    localparam int KINDS = `L2P_CHUNK_KINDS,
    localparam int OFFSET_BITS = `L2P_MOST_CHUNK_SLOT_BITS
) (
    input  logic [  SLOT_BITS-1:0] slot,
    input  logic [ CHUNK_BITS-1:0] kind,
    input  logic [ ENTRY_BITS-1:0] first,
    output logic [ ENTRY_BITS-1:0] entry,
    output logic [OFFSET_BITS-1:0] offset
);
  // A byte for each kind: binary logarithm of the slots of a chunk.
  localparam logic [8*KINDS-1:0] SLOTS = `L2P_CHUNK_SLOT_BITS;
  logic [SLOT_BITS-1:0] chunk;
  logic unused;
  always_comb begin
    chunk  = '0;
    offset = '0;
    for (int i = 0; i < KINDS; i++) begin
      if (kind == CHUNK_BITS'(i)) begin
        chunk  = slot >> SLOTS[8*i+:8];
        offset = slot[OFFSET_BITS-1:0] & ~({OFFSET_BITS{1'b1}} << SLOTS[8*i+:8]);
      end
    end
  end
  assign entry = DESCENDS ? first - chunk[ENTRY_BITS-1:0] : first + chunk[ENTRY_BITS-1:0];
  // A table has at most twice as many chunks as a sub-table has entries.
  assign unused = &{1'b0, chunk[SLOT_BITS-1:ENTRY_BITS]};
endmodule
