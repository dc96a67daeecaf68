`include "spec_engine.svh"

// The hash function of kernel and hardware, `TieredHash` in crates/structures: a key that was combined
// with a tier's seed is mixed (the finaliser of MurmurHash3) and scaled to the range of frames. One key
// enters in each cycle. Multiplications end in carry-save form in one stage; the next stage adds.
//
//   stage 0  x ^ x >> 33
//   stage 1  times the first constant, carry-save
//   stage 2  carries propagated, x ^ x >> 33
//   stage 3  times the second constant, carry-save
//   stage 4  carries propagated, x ^ x >> 33: `mixed`
//   stage 5  times the number of frames, carry-save
//   stage 6  carries propagated: `frame`
module hash_unit #(
    parameter int FRAME_BITS = `SPEC_ENGINE_FRAME_BITS,
    localparam int BITS = `SPEC_ENGINE_HASH_BITS,
    localparam int STAGES = `SPEC_ENGINE_HASH_STAGES
) (
    input  logic                  clk,
    // Stage i takes a new value.
    input  logic [    STAGES-1:0] enable,
    input  logic [      BITS-1:0] key,
    input  logic [FRAME_BITS-1:0] range_start,
    input  logic [FRAME_BITS-1:0] range_frames,
    // From stage 4.
    output logic [      BITS-1:0] mixed,
    // From stage 6.
    output logic [FRAME_BITS-1:0] frame
);
  localparam int SHIFT = `SPEC_ENGINE_MIX_SHIFT;
  localparam int ROWS_1 = `SPEC_ENGINE_MIX_1_ROWS;
  localparam int ROWS_2 = `SPEC_ENGINE_MIX_2_ROWS;
  localparam int WIDE = BITS + FRAME_BITS;
  localparam int WIDE_ROWS = FRAME_BITS / 2 + 4;

  // Stage 0.
  logic [BITS-1:0] x0;
  always_ff @(posedge clk) if (enable[0]) x0 <= key ^ (key >> SHIFT);

  // Stages 1 and 2.
  logic [ROWS_1*BITS-1:0] rows_1;
  logic [BITS-1:0] sum_1, carry_1, s1, c1, product_1, x2;
  constant_rows #(
      .WIDTH(BITS),
      .ROWS (ROWS_1),
      .PLUS (`SPEC_ENGINE_MIX_1_PLUS),
      .MINUS(`SPEC_ENGINE_MIX_1_MINUS)
  ) products_1 (
      .x(x0),
      .rows(rows_1)
  );
  csa_tree #(
      .ROWS (ROWS_1),
      .WIDTH(BITS)
  ) tree_1 (
      .rows (rows_1),
      .sum  (sum_1),
      .carry(carry_1)
  );
  always_ff @(posedge clk) begin
    if (enable[1]) begin
      s1 <= sum_1;
      c1 <= carry_1;
    end
    if (enable[2]) x2 <= product_1 ^ (product_1 >> SHIFT);
  end
  assign product_1 = s1 + c1;

  // Stages 3 and 4.
  logic [ROWS_2*BITS-1:0] rows_2;
  logic [BITS-1:0] sum_2, carry_2, s3, c3, product_2;
  constant_rows #(
      .WIDTH(BITS),
      .ROWS (ROWS_2),
      .PLUS (`SPEC_ENGINE_MIX_2_PLUS),
      .MINUS(`SPEC_ENGINE_MIX_2_MINUS)
  ) products_2 (
      .x(x2),
      .rows(rows_2)
  );
  csa_tree #(
      .ROWS (ROWS_2),
      .WIDTH(BITS)
  ) tree_2 (
      .rows (rows_2),
      .sum  (sum_2),
      .carry(carry_2)
  );
  always_ff @(posedge clk) begin
    if (enable[3]) begin
      s3 <= sum_2;
      c3 <= carry_2;
    end
    if (enable[4]) mixed <= product_2 ^ (product_2 >> SHIFT);
  end
  assign product_2 = s3 + c3;

  // Stages 5 and 6.
  logic [WIDE_ROWS*WIDE-1:0] rows_3;
  logic [WIDE-1:0] sum_3, carry_3, s5, c5;
  booth_rows #(
      .X_BITS(BITS),
      .Y_BITS(FRAME_BITS)
  ) products_3 (
      .x(mixed),
      .y(range_frames),
      .start(range_start),
      .rows(rows_3)
  );
  csa_tree #(
      .ROWS (WIDE_ROWS),
      .WIDTH(WIDE)
  ) tree_3 (
      .rows (rows_3),
      .sum  (sum_3),
      .carry(carry_3)
  );
  // Only the carry out of the low bits matters.
  logic [WIDE-1:0] product;
  logic unused_low;
  assign product = s5 + c5;
  assign unused_low = &{1'b0, product[BITS-1:0]};
  always_ff @(posedge clk) begin
    if (enable[5]) begin
      s5 <= sum_3;
      c5 <= carry_3;
    end
    if (enable[6]) frame <= product[WIDE-1:BITS];
  end
endmodule
