// Queue of two entries. `full` is a register, so that no path leads from `pop` to whoever pushes.
module fifo2 #(
    parameter int WIDTH = 8
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             push,
    input  logic [WIDTH-1:0] in,
    output logic             full,
    output logic             valid,
    input  logic             pop,
    output logic [WIDTH-1:0] out
);
  // The older entry is `out`.
  logic [WIDTH-1:0] newer;

  always_ff @(posedge clk) begin
    if (rst) begin
      valid <= 1'b0;
      full  <= 1'b0;
    end else begin
      valid <= full || push || (valid && !pop);
      full  <= !pop && valid && (full || push);
    end
    if (push) newer <= in;
    if ((pop || !valid) && (push || full)) out <= full ? newer : in;
  end

`ifdef FORMAL
  // An entry is never pushed into a full queue, nor taken from an empty one.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!(push && full));
      assert (!(pop && !valid));
      assert (valid || !full);
    end
`endif
endmodule
