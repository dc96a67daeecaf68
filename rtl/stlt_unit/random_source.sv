`include "stlt_unit.svh"

// Random numbers: a linear-feedback shift register with the primitive polynomial x^47 + x^42 + 1, 16 steps
// a cycle.
module random_source #(
    localparam int PICK_BITS  = `STLT_UNIT_PICK_BITS,
    localparam int COUNT_BITS = (1 << `STLT_UNIT_COUNTER_BITS) - 1
) (
    input  logic                  clk,
    input  logic                  rst,
    output logic [ PICK_BITS-1:0] pick,
    output logic [COUNT_BITS-1:0] count
);
  localparam int BITS = 47;
  localparam int STEPS = 16;
  logic [BITS-1:0] state;
  always_ff @(posedge clk) begin
    if (rst) state <= BITS'(1);
    else state <= {state[BITS-STEPS-1:0], state[BITS-1-:STEPS] ^ state[BITS-6-:STEPS]};
  end
  assign {pick, count} = state;
endmodule
