`include "stlt_unit.svh"

// Number of the first row of an integer's set: the table's base, and the bits of the integer above the
// sub-integer. Tables begin at a multiple of their size, so no adder is needed.
module address_generator #(
    parameter int WAYS = `STLT_UNIT_WAYS,
    localparam int PA_BITS = `STLT_UNIT_PA_BITS,
    localparam int PAGE_BITS = `STLT_UNIT_PAGE_BITS,
    localparam int ROW_BITS = `STLT_UNIT_ROW_BITS,
    localparam int SUB_BITS = `STLT_UNIT_SUB_BITS,
    localparam int FEWEST = `STLT_UNIT_FEWEST_ROWS_BITS,
    localparam int MOST = `STLT_UNIT_MOST_ROWS_BITS
) (
    input  logic [ PA_BITS-PAGE_BITS-1:0] base,
    input  logic [       MOST-FEWEST-1:0] mask,
    input  logic [                  63:0] integer_,
    output logic [PA_BITS-ROW_BITS-1:0] row
);
  localparam int WAY_BITS = $clog2(WAYS);
  logic [MOST-1:0] number;
  logic unused;
  assign number = (MOST'(integer_[SUB_BITS+:MOST-WAY_BITS]) << WAY_BITS) & {mask, {FEWEST{1'b1}}};
  assign row = {base, (PAGE_BITS - ROW_BITS)'(0)} | (PA_BITS - ROW_BITS)'(number);
  assign unused = &{1'b0, integer_[63:SUB_BITS+MOST-WAY_BITS], integer_[SUB_BITS-1:0]};
endmodule
