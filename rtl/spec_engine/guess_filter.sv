`include "spec_engine.svh"

// The part of the degree filter that looks at single candidates: one whose line an earlier tier has
// guessed for the same request is dropped, and one for whose tier the DRAM's bus is too busy.
module guess_filter #(
    parameter int TIERS = `SPEC_ENGINE_TIERS,
    parameter int FRAME_BITS = `SPEC_ENGINE_FRAME_BITS,
    localparam int DELAY_BITS = `SPEC_ENGINE_DELAY_BITS,
    localparam int TB = $clog2(`SPEC_ENGINE_TIERS)
) (
    input  logic                        clk,
    input  logic                        advance,
    input  logic                        valid,
    input  logic                        first,
    input  logic                        entry,
    input  logic [              TB-1:0] tier,
    input  logic [      FRAME_BITS-1:0] frame,
    // Delay of the bus for this candidate, at most 2^DELAY_BITS - 1.
    input  logic [      DELAY_BITS-1:0] delay,
    input  logic [TIERS*DELAY_BITS-1:0] delays,
    output logic                        guess,
    output logic                        repeated,
    output logic                        delayed
);
  // All candidates of a kind have one offset, so equal frames are equal lines.
  logic [TIERS-1:0] same;
  generate
    for (genvar t = 0; t < TIERS - 1; t++) begin : g_earlier
      logic data_set, entry_set;
      logic [FRAME_BITS-1:0] data_frame, entry_frame;
      assign same[t] = !first && (entry ? entry_set && entry_frame == frame : data_set && data_frame == frame);
      always_ff @(posedge clk) begin
        if (valid && advance) begin
          if (first) begin
            data_set  <= 1'b0;
            entry_set <= 1'b0;
          end
          if (guess && tier == TB'(t)) begin
            if (entry) entry_set <= 1'b1;
            else data_set <= 1'b1;
          end
        end
        if (valid && advance && guess && tier == TB'(t)) begin
          if (entry) entry_frame <= frame;
          else data_frame <= frame;
        end
      end
    end
  endgenerate
  // With a single tier there is nothing to remember.
  logic unused;
  assign unused = &{1'b0, clk, advance, first, entry, frame};
  // The last tier has none after it.
  assign same[TIERS-1] = 1'b0;

  logic [DELAY_BITS-1:0] longest;
  always_comb begin
    longest = '0;
    for (int t = 0; t < TIERS; t++) if (tier == TB'(t)) longest = longest | delays[t*DELAY_BITS+:DELAY_BITS];
  end

  assign repeated = valid && |same;
  assign delayed = valid && !repeated && delay > longest;
  assign guess = valid && !repeated && !delayed;
endmodule
