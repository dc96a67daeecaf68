`include "spec_engine.svh"

// Multiplication by the golden ratio.
//
//   stage 0  the key, because its selection takes part of a cycle
//   stage 1  times the constant, carry-save
//   stage 2  carries propagated
module mix_multiplicative #(
    localparam int BITS = `SPEC_ENGINE_HASH_BITS,
    localparam int STAGES = `SPEC_ENGINE_MIXED_STAGE(`SPEC_ENGINE_HASH_MULTIPLICATIVE) + 1
) (
    input  logic              clk,
    input  logic [STAGES-1:0] enable,
    input  logic [  BITS-1:0] key,
    output logic [  BITS-1:0] mixed
);
  localparam int ROWS = `SPEC_ENGINE_GOLDEN_ROWS;
  logic [ROWS*BITS-1:0] rows;
  logic [BITS-1:0] x0, sum, carry, s1, c1;
  constant_rows #(
      .WIDTH(BITS),
      .ROWS (ROWS),
      .PLUS (`SPEC_ENGINE_GOLDEN_PLUS),
      .MINUS(`SPEC_ENGINE_GOLDEN_MINUS)
  ) products (
      .x(x0),
      .rows
  );
  csa_tree #(
      .ROWS (ROWS),
      .WIDTH(BITS)
  ) tree (
      .rows,
      .sum,
      .carry
  );
  always_ff @(posedge clk) begin
    if (enable[0]) x0 <= key;
    if (enable[1]) begin
      s1 <= sum;
      c1 <= carry;
    end
    if (enable[2]) mixed <= s1 + c1;
  end
endmodule
