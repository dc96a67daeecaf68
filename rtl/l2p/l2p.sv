`include "l2p.svh"

// Address generation of walks in ME-HPT's page tables (section V-D, figure 7): the lines that the ways of
// all page sizes would be probed at, and the ways that the cuckoo walk caches select. One walk a cycle.
//
//   cycle 0  the key is taken
//   cycle 1  CRC of its key for each page size
//   cycle 2  slot of each way: mask, and comparison with the rehash pointer
//   cycle 3  shift: L2P entry and number in the chunk
//   cycle 4  L2P table
//   cycle 5  line, and the headers of the walk caches
//   cycle 6  result
//
// The kernel writes registers and L2P entries. A write waits until no walk is on its way, and later walks
// wait for it.
module l2p #(
    parameter int WAYS = `L2P_WAYS,
    localparam int SIZES = `L2P_SIZES,
    localparam int REQ_BITS = `L2P_VA_BITS - `L2P_PAGE_BITS - `L2P_CLUSTER_BITS,
    localparam int SLOT_BITS = `L2P_SLOT_BITS,
    localparam int SIZE_BITS = $clog2(SLOT_BITS + 1),
    localparam int ENTRY_BITS = `L2P_ENTRY_BITS,
    localparam int CHUNK_BITS = `L2P_CHUNK_KIND_BITS,
    localparam int OFFSET_BITS = `L2P_MOST_CHUNK_SLOT_BITS,
    localparam int BASE_BITS = `L2P_BASE_BITS,
    localparam int LINE_BITS = `L2P_PA_BITS - `L2P_LINE_BITS,
    localparam int HEADER_BITS = `L2P_HEADER_BITS,
    localparam int WAY_BITS = $clog2(WAYS),
    localparam int UNITS = SIZES * WAYS
) (
    input  logic                        clk,
    input  logic                        rst,
    // Writes of the kernel: an L2P entry of a way, or a register of a way and page size.
    input  logic                        write_valid,
    output logic                        write_ready,
    input  logic [                 1:0] write_what,
    input  logic [        WAY_BITS-1:0] write_way,
    input  logic [                 1:0] write_size,
    input  logic [      ENTRY_BITS-1:0] write_index,
    input  logic [                63:0] write_value,
    // Walks: key of the 4 KB page, which is its number without the bits inside a line of entries.
    input  logic                        req_valid,
    output logic                        req_ready,
    input  logic [        REQ_BITS-1:0] req_key,
    // Headers of the walk caches, for the walk whose lines are known in the next cycle.
    output logic                        cwc_due,
    input  logic                        cwc_pud_hit,
    input  logic [     HEADER_BITS-1:0] cwc_pud_header,
    input  logic                        cwc_pmd_hit,
    input  logic [     HEADER_BITS-1:0] cwc_pmd_header,
    // Results: the line of each way of each page size, 4 KB first; the ways to read; and those that have memory
    // but no L2P entry. A second round of a walk reads all ways, so the walker keeps the lines.
    output logic                        res_valid,
    output logic                        res_all,
    output logic [           UNITS-1:0] res_ways,
    output logic [           UNITS-1:0] res_live,
    output logic [           UNITS-1:0] res_missing,
    output logic [ UNITS*LINE_BITS-1:0] res_lines
);
  localparam int LATENCY = `L2P_LATENCY;
  localparam int APART = WAYS <= `L2P_FIELD_WAYS ? `L2P_FIELD : 64 / WAYS;
  localparam int LEAST_BITS = LINE_BITS - BASE_BITS;

  logic [LATENCY-1:0] stages;
  assign write_ready = stages[LATENCY-2:0] == '0;
  assign req_ready = !write_valid;
  assign cwc_due = stages[LATENCY-2];
  assign res_valid = stages[LATENCY-1];
  always_ff @(posedge clk) begin
    if (rst) stages <= '0;
    else stages <= {stages[LATENCY-2:0], req_valid && req_ready};
  end

  logic [REQ_BITS-1:0] key;
  always_ff @(posedge clk) if (req_valid && req_ready) key <= req_key;

  logic write;
  assign write = write_valid && write_ready;

  logic [UNITS-1:0] live, presents;
  logic [UNITS*ENTRY_BITS-1:0] entries;
  logic [UNITS*BASE_BITS-1:0] bases;
  logic [UNITS*LINE_BITS-1:0] lines;

  generate
    for (genvar s = 0; s < SIZES; s++) begin : g_size
      localparam int SHIFT = s * `L2P_LEVEL_BITS;
      localparam int KEY_BITS = REQ_BITS - SHIFT;
      logic [63:0] crc, hash;
      crc_unit #(
          .POLYNOMIAL(`L2P_POLYNOMIAL),
          .KEY_BITS(KEY_BITS),
          .SALT(64'(s))
      ) crc_unit (
          .key(key[REQ_BITS-1:SHIFT]),
          .crc
      );
      always_ff @(posedge clk) if (stages[0]) hash <= crc;

      for (genvar w = 0; w < WAYS; w++) begin : g_way
        localparam int UNIT = s * WAYS + w;
        localparam int ROTATION = (`L2P_FIRST_FIELD + APART * w) % 64;
        logic selected, separate;
        logic [SIZE_BITS-1:0] old_bits, new_bits;
        logic [SLOT_BITS:0] pointer;
        logic [CHUNK_BITS-1:0] old_kind, new_kind, kind, kind_q;
        logic [ENTRY_BITS-1:0] old_first, new_first, first, first_q, entry, entry_q;
        logic [SLOT_BITS-1:0] slot, slot_q;
        logic [OFFSET_BITS-1:0] offset, offset_q, offset_qq;
        logic [127:0] twice;
        logic unused_bits;
        assign selected = write && write_way == WAY_BITS'(w) && write_size == 2'(s);
        way_registers way_registers (
            .clk,
            .rst,
            .write_slots(selected && write_what == `L2P_WRITE_SLOTS),
            .write_pointer(selected && write_what == `L2P_WRITE_POINTER),
            .write_chunks(selected && write_what == `L2P_WRITE_CHUNKS),
            .value(write_value),
            .live(live[UNIT]),
            .separate,
            .old_bits,
            .new_bits,
            .pointer,
            .old_kind,
            .new_kind,
            .old_first,
            .new_first
        );

        assign twice = {hash, hash};
        assign unused_bits = &{1'b0, twice};
        slot_select slot_select (
            .field(twice[ROTATION+:SLOT_BITS]),
            .separate,
            .old_bits,
            .new_bits,
            .pointer,
            .old_kind,
            .new_kind,
            .old_first,
            .new_first,
            .slot,
            .kind,
            .first
        );
        entry_select #(
            .DESCENDS(s == 1)
        ) entry_select (
            .slot(slot_q),
            .kind(kind_q),
            .first(first_q),
            .entry,
            .offset
        );
        always_ff @(posedge clk) begin
          if (stages[1]) begin
            slot_q  <= slot;
            kind_q  <= kind;
            first_q <= first;
          end
          if (stages[2]) begin
            entry_q  <= entry;
            offset_q <= offset;
          end
          if (stages[3]) offset_qq <= offset_q;
        end
        assign entries[UNIT*ENTRY_BITS+:ENTRY_BITS] = entry_q;
        // A chunk is aligned to its size, so no adder is needed.
        assign lines[UNIT*LINE_BITS+:LINE_BITS] =
            {bases[UNIT*BASE_BITS+:BASE_BITS], LEAST_BITS'(0)} | LINE_BITS'(offset_qq);
      end
    end
    for (genvar w = 0; w < WAYS; w++) begin : g_table
      logic [SIZES*ENTRY_BITS-1:0] reads;
      logic [SIZES-1:0] read_presents;
      logic [SIZES*BASE_BITS-1:0] read_bases;
      for (genvar s = 0; s < SIZES; s++) begin : g_port
        assign reads[s*ENTRY_BITS+:ENTRY_BITS] = entries[(s*WAYS+w)*ENTRY_BITS+:ENTRY_BITS];
        assign presents[s*WAYS+w] = read_presents[s];
        assign bases[(s*WAYS+w)*BASE_BITS+:BASE_BITS] = read_bases[s*BASE_BITS+:BASE_BITS];
      end
      chunk_table chunk_table (
          .clk,
          .rst,
          .write(write && write_what == `L2P_WRITE_ENTRY && write_way == WAY_BITS'(w)),
          .index(write_index),
          .present(write_value[BASE_BITS]),
          .base(write_value[BASE_BITS-1:0]),
          .enable(stages[3]),
          .reads,
          .presents(read_presents),
          .bases(read_bases)
      );
    end
  endgenerate

  logic all;
  logic [UNITS-1:0] ways;
  way_select #(
      .WAYS(WAYS)
  ) way_select (
      .live,
      .pud_hit(cwc_pud_hit),
      .pud_header(cwc_pud_header),
      .pmd_hit(cwc_pmd_hit),
      .pmd_header(cwc_pmd_header),
      .ways,
      .all
  );
  always_ff @(posedge clk) begin
    if (cwc_due) begin
      res_all <= all;
      res_ways <= ways;
      res_live <= live;
      res_missing <= live & ~presents;
      res_lines <= lines;
    end
  end

`ifdef FORMAL
  logic started = 1'b0;
  always_ff @(posedge clk) started <= 1'b1;
  always_comb if (!started) assume (rst);

  // Each walk that was taken has one result. Modulo 2^8.
  logic [7:0] walks, on_way;
  always_comb begin
    on_way = '0;
    for (int i = 0; i < LATENCY; i++) on_way = on_way + 8'(stages[i]);
  end
  always_ff @(posedge clk) begin
    if (rst) walks <= '0;
    else walks <= walks + 8'(req_valid && req_ready) - 8'(res_valid);
    if (!rst && started) begin
      assert (walks == on_way);
      // Nothing that a walk depends on changes while it is on its way.
      assert (!(write && (stages[LATENCY-2:0] != '0)));
      assert (!(write && req_valid && req_ready));
      if (res_valid) begin
        assert ((res_ways & ~res_live) == '0);
        assert (res_all || res_ways != '0);
        assert ((res_missing & ~res_live) == '0);
      end
    end
  end
`endif
endmodule
