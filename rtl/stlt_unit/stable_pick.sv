// The lowest request, kept until it is taken.
module stable_pick #(
    parameter int N = 8,
    localparam int BITS = $clog2(N)
) (
    input  logic            clk,
    input  logic            rst,
    input  logic [   N-1:0] requests,
    input  logic            ready,
    output logic            valid,
    output logic [BITS-1:0] index
);
  logic kept;
  logic [BITS-1:0] kept_index, lowest;
  always_comb begin
    lowest = '0;
    for (int i = N - 1; i >= 0; i--) if (requests[i]) lowest = BITS'(i);
  end
  assign valid = requests != '0;
  assign index = kept ? kept_index : lowest;
  always_ff @(posedge clk) begin
    if (rst) kept <= 1'b0;
    else kept <= valid && !ready;
    kept_index <= index;
  end

`ifdef FORMAL
  // Requests stay until they are taken, and so does the choice.
  always_ff @(posedge clk) if (!rst && kept) assert (requests[kept_index]);
`endif
endmodule
