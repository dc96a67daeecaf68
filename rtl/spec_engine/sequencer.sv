`include "spec_engine.svh"

// Holds one request and names its candidates, one a cycle: tier by tier, the most probable first, and the
// page-table entry before the data, since the walk waits for it. The next request is taken with the last
// candidate.
module sequencer #(
    parameter int TIERS = `SPEC_ENGINE_TIERS,
    localparam int BITS = `SPEC_ENGINE_HASH_BITS,
    localparam int ASID_BITS = `SPEC_ENGINE_ASID_BITS,
    localparam int NUMBER_BITS = `SPEC_ENGINE_NUMBER_BITS,
    localparam int VA_BITS = `SPEC_ENGINE_VA_BITS,
    localparam int PAGE_BITS = `SPEC_ENGINE_PAGE_BITS,
    localparam int LINE_BITS = `SPEC_ENGINE_LINE_BITS,
    localparam int LEVEL_BITS = `SPEC_ENGINE_LEVEL_BITS,
    localparam int OFFSET_BITS = PAGE_BITS - LINE_BITS,
    localparam int TB = $clog2(`SPEC_ENGINE_TIERS)
) (
    input  logic                          clk,
    input  logic                          rst,
    input  logic                          advance,
    // No request is taken while this is set.
    input  logic                          hold,
    input  logic                          req_valid,
    output logic                          req_ready,
    input  logic [         ASID_BITS-1:0] req_asid,
    input  logic [ VA_BITS-LINE_BITS-1:0] req_line,
    input  logic                          req_merges,
    input  logic [             TIERS-1:0] data_serving,
    input  logic [             TIERS-1:0] table_serving,
    input  logic [        TIERS*BITS-1:0] seeds,
    output logic                          issue,
    output logic [              BITS-1:0] issue_key,
    // The first candidate of its request.
    output logic                          issue_first,
    output logic                          issue_entry,
    output logic [                TB-1:0] issue_tier,
    // The line in the page.
    output logic [       OFFSET_BITS-1:0] issue_offset,
    output logic                          idle
);
  logic [ASID_BITS-1:0] asid;
  logic [VA_BITS-LINE_BITS-1:0] line;
  logic [VA_BITS-PAGE_BITS-1:0] page;
  // Entry and data of tier t are bits 2t and 2t + 1.
  logic [2*TIERS-1:0] left, next, after, wanted;
  logic first;

  assign page = line[VA_BITS-LINE_BITS-1:OFFSET_BITS];
  assign issue = |left;
  assign idle = !issue;
  assign next = left & (~left + 1'b1);
  assign after = left & ~next;
  assign req_ready = advance && !hold && after == '0;

  logic [BITS-1:0] seed;
  always_comb begin
    issue_entry = 1'b0;
    issue_tier = '0;
    seed = '0;
    for (int t = 0; t < TIERS; t++) begin
      wanted[2*t] = table_serving[t] && !req_merges;
      wanted[2*t+1] = data_serving[t];
      issue_entry = issue_entry | next[2*t];
      if (next[2*t] || next[2*t+1]) begin
        issue_tier = issue_tier | TB'(t);
        seed = seed | seeds[t*BITS+:BITS];
      end
    end
  end

  logic [NUMBER_BITS-1:0] number;
  assign number = issue_entry ? NUMBER_BITS'(page[VA_BITS-PAGE_BITS-1:LEVEL_BITS]) : NUMBER_BITS'(page);
  assign issue_key = {asid, number} ^ seed;
  assign issue_offset = issue_entry ? page[LEVEL_BITS-1-:OFFSET_BITS] : line[OFFSET_BITS-1:0];
  assign issue_first = first;

  always_ff @(posedge clk) begin
    if (rst) left <= '0;
    else if (req_valid && req_ready) left <= wanted;
    else if (advance) left <= after;
    if (req_valid && req_ready) begin
      asid  <= req_asid;
      line  <= req_line;
      first <= 1'b1;
    end else if (advance) first <= 1'b0;
  end

`ifdef FORMAL
  // Candidates that requests want, less those that were named, modulo 2^8: those that are left.
  logic [7:0] owed, count;
  always_comb begin
    count = '0;
    for (int i = 0; i < 2 * TIERS; i++) count = count + 8'(left[i]);
  end
  logic [7:0] taken;
  always_comb begin
    taken = '0;
    for (int i = 0; i < 2 * TIERS; i++) taken = taken + 8'(wanted[i] && req_valid && req_ready);
  end
  always_ff @(posedge clk) begin
    if (rst) owed <= '0;
    else owed <= owed + taken - 8'(issue && advance);
    if (!rst) assert (owed == count);
  end
`endif
endmodule
