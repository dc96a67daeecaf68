// The scaling of the hash unit's last stages, at small widths: it multiplies, and every frame lies in
// memory. The widths are parameters of the modules, and their structure does not depend on them.
module range #(
    parameter int X_BITS = 6,
    parameter int Y_BITS = 6
) (
    input logic [X_BITS-1:0] x,
    input logic [Y_BITS-1:0] frames,
    input logic [Y_BITS-1:0] start
);
  localparam int WIDTH = X_BITS + Y_BITS;
  localparam int ROWS = Y_BITS / 2 + 4;
  logic [ROWS*WIDTH-1:0] rows;
  logic [WIDTH-1:0] sum, carry, product;
  booth_rows #(
      .X_BITS(X_BITS),
      .Y_BITS(Y_BITS)
  ) products (
      .x,
      .y(frames),
      .start,
      .rows
  );
  csa_tree #(
      .ROWS (ROWS),
      .WIDTH(WIDTH)
  ) tree (
      .rows,
      .sum,
      .carry
  );
  assign product = sum + carry;

  logic [Y_BITS-1:0] frame;
  logic [Y_BITS:0] limit;
  assign frame = product[WIDTH-1:X_BITS];
  assign limit = {1'b0, start} + {1'b0, frames};
  always_comb begin
    assert (product == WIDTH'(x) * WIDTH'(frames) + {start, X_BITS'(0)});
    if (frames != '0 && limit <= {1'b0, {Y_BITS{1'b1}}}) begin
      assert (frame >= start);
      assert ({1'b0, frame} < limit);
    end
  end
endmodule
