`include "spec_engine.svh"

// The finaliser of MurmurHash3. Multiplications end in carry-save form in one stage; the next stage adds.
//
//   stage 0  x ^ x >> 33
//   stage 1  times the first constant, carry-save
//   stage 2  carries propagated, x ^ x >> 33
//   stage 3  times the second constant, carry-save
//   stage 4  carries propagated, x ^ x >> 33
module mix_murmur #(
    localparam int BITS = `SPEC_ENGINE_HASH_BITS,
    localparam int STAGES = `SPEC_ENGINE_MIXED_STAGE(`SPEC_ENGINE_HASH_MURMUR) + 1
) (
    input  logic              clk,
    input  logic [STAGES-1:0] enable,
    input  logic [  BITS-1:0] key,
    output logic [  BITS-1:0] mixed
);
  localparam int SHIFT = `SPEC_ENGINE_MIX_SHIFT;
  localparam int ROWS_1 = `SPEC_ENGINE_MIX_1_ROWS;
  localparam int ROWS_2 = `SPEC_ENGINE_MIX_2_ROWS;

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
endmodule
