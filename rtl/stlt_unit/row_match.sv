`include "stlt_unit.svh"

// Scans the rows of a set, one a cycle: the row that matches the sub-integer, and the row that an
// insertion takes. At most one row of a set matches, because an insertion overwrites a matching row.
module row_match #(
    parameter int WAYS = `STLT_UNIT_WAYS,
    localparam int VA_BITS = `STLT_UNIT_VA_BITS,
    localparam int SUB_BITS = `STLT_UNIT_SUB_BITS,
    localparam int COUNTER_BITS = `STLT_UNIT_COUNTER_BITS,
    localparam int WAY_BITS = WAYS > 1 ? $clog2(WAYS) : 1
) (
    input  logic                         clk,
    input  logic                         start,
    input  logic                         valid,
    input  logic [                 63:0] word,
    input  logic [                 63:0] pte,
    input  logic [         SUB_BITS-1:0] sub,
    // For each number of candidates, the one to take.
    input  logic [(WAYS+1)*WAY_BITS-1:0] picks,
    // The last row is in `word`. The target of an insertion is known now, the found row a cycle later.
    output logic                         last,
    output logic                         found,
    output logic [         WAY_BITS-1:0] found_way,
    output logic [          VA_BITS-1:0] found_va,
    output logic [                 63:0] found_pte,
    output logic [     COUNTER_BITS-1:0] found_counter,
    output logic [         WAY_BITS-1:0] target_way,
`ifdef FORMAL
    output logic [         WAY_BITS-1:0] formal_way,
`endif
    output logic [                  1:0] target_kind
);
  localparam int COUNT_BITS = $clog2(WAYS + 1);

  logic [WAY_BITS-1:0] way;
`ifdef FORMAL
  assign formal_way = way;
`endif
  logic [SUB_BITS-1:0] row_sub;
  logic [VA_BITS-1:0] row_va;
  logic [COUNTER_BITS-1:0] row_counter;
  assign {row_counter, row_sub, row_va} = word;

  logic used, same_sub;
  assign used = row_va != '0;
  assign same_sub = used && row_sub == sub;

  // Results over the rows before this one, and with it.
  logic empty, empty_next, found_next;
  logic [WAY_BITS-1:0] empty_way, empty_way_next, found_way_next;
  logic [COUNTER_BITS-1:0] least, least_next;
  logic [WAYS-1:0] ties, ties_next, this_way;
  assign this_way = WAYS'(1) << way;
  assign found_next = found || same_sub;
  assign found_way_next = same_sub ? way : found_way;
  assign empty_next = empty || !used;
  assign empty_way_next = empty ? empty_way : way;
  always_comb begin
    least_next = least;
    ties_next  = ties;
    if (ties == '0 || row_counter < least) begin
      least_next = row_counter;
      ties_next  = this_way;
    end else if (row_counter == least) ties_next = ties | this_way;
  end
  assign last = valid && way == WAY_BITS'(WAYS - 1);

  always_ff @(posedge clk) begin
    if (start) begin
      way   <= '0;
      found <= 1'b0;
      empty <= 1'b0;
      ties  <= '0;
    end else if (valid) begin
      way <= way + 1'b1;
      found <= found_next;
      found_way <= found_way_next;
      empty <= empty_next;
      empty_way <= empty_way_next;
      least <= least_next;
      ties <= ties_next;
      if (same_sub) begin
        found_va <= row_va;
        found_pte <= pte;
        found_counter <= row_counter;
      end
    end
  end

  // One of the rows with the least counter.
  logic [COUNT_BITS-1:0] number, rank;
  logic [WAY_BITS-1:0] picked, tie_way;
  always_comb begin
    number = '0;
    for (int i = 0; i < WAYS; i++) number = number + COUNT_BITS'(ties_next[i]);
    picked = '0;
    for (int n = 1; n <= WAYS; n++)
    if (number == COUNT_BITS'(n)) picked = picks[n*WAY_BITS+:WAY_BITS];
    tie_way = '0;
    rank  = '0;
    for (int i = 0; i < WAYS; i++) begin
      if (ties_next[i] && rank == COUNT_BITS'(picked)) tie_way = WAY_BITS'(i);
      rank = rank + COUNT_BITS'(ties_next[i]);
    end
  end
  logic unused_picks;
  assign unused_picks = &{1'b0, picks[WAY_BITS-1:0]};

  always_comb begin
    if (found_next) begin
      target_way  = found_way_next;
      target_kind = 2'd2;
    end else if (empty_next) begin
      target_way  = empty_way_next;
      target_kind = 2'd1;
    end else begin
      target_way  = tie_way;
      target_kind = 2'd3;
    end
  end
endmodule
