`include "spec_engine.svh"

// The hash function of kernel and hardware, `TieredHash` in crates/structures: a key that was combined
// with a tier's seed is mixed and scaled to the range of frames. One key enters in each cycle. The parameter
// selects the function (`TierFunction`). With MIXED as its last stage:
//
//   stage MIXED      `mixed`
//   stage MIXED + 1  times the number of frames, carry-save
//   stage MIXED + 2  carries propagated: `frame`
module hash_unit #(
    parameter int HASH = `SPEC_ENGINE_HASH,
    parameter int FRAME_BITS = `SPEC_ENGINE_FRAME_BITS,
    localparam int BITS = `SPEC_ENGINE_HASH_BITS,
    localparam int MIXED = `SPEC_ENGINE_MIXED_STAGE(HASH),
    localparam int STAGES = `SPEC_ENGINE_HASH_STAGES(HASH)
) (
    input  logic                  clk,
    // Stage i takes a new value.
    input  logic [    STAGES-1:0] enable,
    input  logic [      BITS-1:0] key,
    input  logic [FRAME_BITS-1:0] range_start,
    input  logic [FRAME_BITS-1:0] range_frames,
    output logic [      BITS-1:0] mixed,
    output logic [FRAME_BITS-1:0] frame
);
  localparam int WIDE = BITS + FRAME_BITS;
  localparam int WIDE_ROWS = FRAME_BITS / 2 + 4;

  generate
    if (HASH == `SPEC_ENGINE_HASH_MURMUR) begin : g_murmur
      mix_murmur mix (
          .clk,
          .enable(enable[MIXED:0]),
          .key,
          .mixed
      );
    end else if (HASH == `SPEC_ENGINE_HASH_MULTIPLICATIVE) begin : g_multiplicative
      mix_multiplicative mix (
          .clk,
          .enable(enable[MIXED:0]),
          .key,
          .mixed
      );
    end else begin : g_crc
      mix_crc mix (
          .clk,
          .enable(enable[MIXED:0]),
          .key,
          .mixed
      );
    end
  endgenerate

  logic [WIDE_ROWS*WIDE-1:0] rows;
  logic [WIDE-1:0] sum, carry, s, c;
  booth_rows #(
      .X_BITS(BITS),
      .Y_BITS(FRAME_BITS)
  ) products (
      .x(mixed),
      .y(range_frames),
      .start(range_start),
      .rows
  );
  csa_tree #(
      .ROWS (WIDE_ROWS),
      .WIDTH(WIDE)
  ) tree (
      .rows,
      .sum,
      .carry
  );
  // Only the carry out of the low bits matters.
  logic [WIDE-1:0] product;
  logic unused_low;
  assign product = s + c;
  assign unused_low = &{1'b0, product[BITS-1:0]};
  always_ff @(posedge clk) begin
    if (enable[MIXED+1]) begin
      s <= sum;
      c <= carry;
    end
    if (enable[MIXED+2]) frame <= product[WIDE-1:BITS];
  end
endmodule
