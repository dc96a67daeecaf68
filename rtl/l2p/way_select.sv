`include "l2p.svh"

// The ways that can hold a page, by the headers that the cuckoo walk caches have found. If they exclude all
// ways, or neither is there, the walk reads all ways of all tables.
module way_select #(
    parameter int WAYS = `L2P_WAYS,
    localparam int SIZES = `L2P_SIZES,
    localparam int HEADER_BITS = `L2P_HEADER_BITS
) (
    // Ways that have memory, by page size.
    input  logic [ SIZES*WAYS-1:0] live,
    input  logic                   pud_hit,
    input  logic [HEADER_BITS-1:0] pud_header,
    input  logic                   pmd_hit,
    input  logic [HEADER_BITS-1:0] pmd_header,
    output logic [ SIZES*WAYS-1:0] ways,
    output logic                   all
);
  localparam int WAY_BITS = `L2P_HEADER_WAY_BITS;
  localparam int WAY_SHIFT = `L2P_HEADER_WAY_SHIFT;
  localparam int SMALL = `L2P_HEADER_SMALL;
  localparam int HUGE = `L2P_HEADER_HUGE;
  localparam int GIANT = `L2P_HEADER_GIANT;

  logic pud_decides, pud_many;
  logic [2:0] pud_sizes;
  logic [WAYS-1:0] pud_way, pmd_way;
  logic [SIZES*WAYS-1:0] by_pud, by_pmd, selected;
  assign pud_way   = WAYS'(1) << pud_header[WAY_SHIFT+:WAY_BITS];
  assign pmd_way   = WAYS'(1) << pmd_header[WAY_SHIFT+:WAY_BITS];
  assign pud_sizes = {pud_header[GIANT], pud_header[HUGE], pud_header[SMALL]};
  // 4 KB or 1 GB pages alone, or none: the header of 2 MB pages adds nothing.
  assign pud_many  = pud_sizes[1] || (pud_sizes[0] && pud_sizes[2]);
  assign pud_decides = pud_hit && !pud_many;
  assign by_pud = live & {{WAYS{pud_sizes[2]}} & pud_way, {WAYS{pud_sizes[1]}}, {WAYS{pud_sizes[0]}}};
  assign by_pmd = live & {WAYS'(0), {WAYS{pmd_header[HUGE]}} & pmd_way, {WAYS{pmd_header[SMALL]}}};
  assign selected = !pud_decides && pmd_hit ? by_pmd : by_pud;
  assign all  = !(pud_hit || pmd_hit) || selected == '0;
  assign ways = all ? live : selected;

`ifdef FORMAL
  always_comb begin
    assert ((ways & ~live) == '0);
    assert (all || ways != '0);
    // Of large pages at most one way, by a header that names it.
    if (!all && pmd_hit && !pud_decides)
      assert ((ways[WAYS+:WAYS] & (ways[WAYS+:WAYS] - 1'b1)) == '0);
    if (!all) assert ((ways[2*WAYS+:WAYS] & (ways[2*WAYS+:WAYS] - 1'b1)) == '0);
  end
`endif
endmodule
