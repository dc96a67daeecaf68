`include "stlt_unit.svh"

// A row's counter after a hit: from x to x + 1 with probability 2^-x (section III-E).
module counter_update #(
    parameter bit SATURATES = `STLT_UNIT_SATURATES,
    localparam int BITS = `STLT_UNIT_COUNTER_BITS,
    localparam int RANDOM_BITS = (1 << BITS) - 1
) (
    input  logic [       BITS-1:0] counter,
    input  logic [RANDOM_BITS-1:0] random,
    output logic [       BITS-1:0] next
);
  logic [RANDOM_BITS-1:0] low;
  logic zero, stays;
  assign low   = ~({RANDOM_BITS{1'b1}} << counter);
  assign zero  = (random & low) == '0;
  assign stays = SATURATES && counter == '1;
  assign next  = zero && !stays ? counter + 1'b1 : counter;
endmodule
