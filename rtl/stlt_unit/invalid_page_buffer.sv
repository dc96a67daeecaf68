`include "stlt_unit.svh"

// The IPB: pages whose translation has changed since the kernel last searched the table. The kernel
// enters a page only while the buffer is not full.
module invalid_page_buffer #(
    parameter int ENTRIES = `STLT_UNIT_IPB_ENTRIES,
    localparam int VPN_BITS = `STLT_UNIT_VA_BITS - `STLT_UNIT_PAGE_BITS,
    localparam int COUNT_BITS = $clog2(ENTRIES + 1)
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                insert,
    input  logic                clear,
    input  logic [VPN_BITS-1:0] vpn,
    input  logic [         1:0] size,
    output logic                full,
    input  logic [VPN_BITS-1:0] lookup_vpn,
    output logic                hit
);
  // Entries below the counter are valid, so none needs a bit of its own.
  logic [COUNT_BITS-1:0] count;
  logic [ENTRIES-1:0] same, valid;
  assign full = count == COUNT_BITS'(ENTRIES);
  always_ff @(posedge clk) begin
    if (rst || clear) count <= '0;
    else if (insert && !full) count <= count + 1'b1;
  end
  generate
    for (genvar i = 0; i < ENTRIES; i++) begin : g_entry
      logic [VPN_BITS-1:0] entry_vpn;
      logic [1:0] entry_size;
      always_ff @(posedge clk) begin
        if (insert && count == COUNT_BITS'(i)) begin
          entry_vpn  <= vpn;
          entry_size <= size;
        end
      end
      page_match #(
          .VPN_BITS(VPN_BITS),
          .LEVEL_BITS(`STLT_UNIT_LEVEL_BITS)
      ) page_match (
          .a(entry_vpn),
          .a_size(entry_size),
          .b(lookup_vpn),
          .b_size(2'd0),
          .same(same[i])
      );
      assign valid[i] = count > COUNT_BITS'(i);
    end
  endgenerate
  assign hit = (same & valid) != '0;

`ifdef FORMAL
  always_ff @(posedge clk) if (!rst) assert (count <= COUNT_BITS'(ENTRIES));
`endif
endmodule
