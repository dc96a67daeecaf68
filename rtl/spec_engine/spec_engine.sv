`include "spec_engine.svh"

// Revelator's speculation engine (section 5.3): the lines where the kernel's hashes would have placed the
// data of a miss and the page-table entry at which its walk ends, as requests to the second-level cache.
//
// The sequencer names one candidate a cycle. The hash unit computes its frame, the filter drops or passes
// it, and a queue of two takes what passes. While the queue is full, everything before it stands still.
// A write of a register waits until no candidate is on its way, and requests wait for the write: a
// request and all of its candidates see the same registers.
module spec_engine #(
    parameter int TIERS = `SPEC_ENGINE_TIERS,
    parameter int HASH = `SPEC_ENGINE_HASH,
    parameter int FRAME_BITS = `SPEC_ENGINE_FRAME_BITS,
    localparam int BITS = `SPEC_ENGINE_HASH_BITS,
    localparam int STAGES = `SPEC_ENGINE_HASH_STAGES(HASH),
    localparam int ASID_BITS = `SPEC_ENGINE_ASID_BITS,
    localparam int VA_BITS = `SPEC_ENGINE_VA_BITS,
    localparam int PAGE_BITS = `SPEC_ENGINE_PAGE_BITS,
    localparam int LINE_BITS = `SPEC_ENGINE_LINE_BITS,
    localparam int OFFSET_BITS = PAGE_BITS - LINE_BITS,
    localparam int LINE_NUMBER_BITS = FRAME_BITS + OFFSET_BITS,
    localparam int COUNT_BITS = `SPEC_ENGINE_COUNT_BITS,
    localparam int DELAY_BITS = `SPEC_ENGINE_DELAY_BITS,
    localparam int REG_BITS = `SPEC_ENGINE_REG_BITS,
    localparam int NB = $clog2(`SPEC_ENGINE_TIERS + 1),
    localparam int TB = $clog2(`SPEC_ENGINE_TIERS)
) (
    input  logic                         clk,
    input  logic                         rst,
    // Registers, written by the kernel.
    input  logic                         reg_valid,
    output logic                         reg_ready,
    input  logic [         REG_BITS-1:0] reg_index,
    input  logic [                 63:0] reg_value,
    // Requests: misses of the last TLB. One that merges with another's walk guesses its data only.
    input  logic                         req_valid,
    output logic                         req_ready,
    input  logic [        ASID_BITS-1:0] req_asid,
    input  logic [VA_BITS-LINE_BITS-1:0] req_line,
    input  logic                         req_merges,
    // The line of the candidate that is about to be judged, and in the same cycle the time for which it
    // would wait for and occupy its channel's bus, as the memory controller's registers have it.
    output logic                         probe_valid,
    output logic [ LINE_NUMBER_BITS-1:0] probe_line,
    input  logic [       DELAY_BITS-1:0] probe_delay,
    // Guesses: requests to the second-level cache, entries marked.
    output logic                         guess_valid,
    input  logic                         guess_ready,
    output logic [ LINE_NUMBER_BITS-1:0] guess_line,
    output logic                         guess_entry,
    // Events, for performance counters: the tiers withheld by their share from a request that is taken,
    // and the outcome of each candidate.
    output logic [            TIERS-1:0] event_data_withheld,
    output logic [            TIERS-1:0] event_table_withheld,
    output logic                         event_entry,
    output logic [               TB-1:0] event_tier,
    output logic                         event_guess,
    output logic                         event_repeated,
    output logic                         event_delayed
);
  logic reg_write, seed_written, seeds_busy;
  logic [TIERS*NB-1:0] order;
  logic [NB-1:0] data_degree, table_degree;
  logic [FRAME_BITS-1:0] range_start, range_frames;
  logic [TIERS*COUNT_BITS-1:0] data_hits, table_hits;
  logic [COUNT_BITS-1:0] data_least, table_least;
  logic [TIERS*DELAY_BITS-1:0] delays;
  registers #(
      .TIERS(TIERS),
      .FRAME_BITS(FRAME_BITS)
  ) registers (
      .clk,
      .rst,
      .write(reg_write),
      .index(reg_index),
      .value(reg_value),
      .seed_written,
      .order,
      .data_degree,
      .table_degree,
      .range_start,
      .range_frames,
      .data_hits,
      .data_least,
      .table_hits,
      .table_least,
      .delays
  );

  logic [TIERS-1:0] data_serving, data_withheld, table_serving, table_withheld;
  share_filter #(
      .TIERS(TIERS)
  ) data_share (
      .degree(data_degree),
      .hits(data_hits),
      .least(data_least),
      .serving(data_serving),
      .withheld(data_withheld)
  );
  share_filter #(
      .TIERS(TIERS)
  ) table_share (
      .degree(table_degree),
      .hits(table_hits),
      .least(table_least),
      .serving(table_serving),
      .withheld(table_withheld)
  );

  logic advance, sequencer_idle;
  logic issue, issue_first, issue_entry;
  logic [BITS-1:0] issue_key;
  logic [TB-1:0] issue_tier;
  logic [OFFSET_BITS-1:0] issue_offset;
  logic [TIERS*BITS-1:0] seeds;
  sequencer #(
      .TIERS(TIERS)
  ) sequencer (
      .clk,
      .rst,
      .advance,
      .hold(seeds_busy || reg_valid),
      .req_valid,
      .req_ready,
      .req_asid,
      .req_line,
      .req_merges,
      .data_serving,
      .table_serving,
      .seeds,
      .issue,
      .issue_key,
      .issue_first,
      .issue_entry,
      .issue_tier,
      .issue_offset,
      .idle(sequencer_idle)
  );

  // Tags beside the values in the hash unit. A value of the seed generator has no tag, and leaves after
  // the mixing.
  localparam int MIXED = `SPEC_ENGINE_MIXED_STAGE(HASH);
  logic [STAGES-1:0] stage_valid;
  logic [MIXED:0] stage_seed;
  logic [STAGES-1:0] stage_first, stage_entry;
  logic [STAGES*TB-1:0] stage_tier;
  logic [STAGES*OFFSET_BITS-1:0] stage_offset;
  logic [STAGES-1:0] enter;

  logic seed_issue;
  logic [BITS-1:0] seed_value, mixed;
  seed_generator #(
      .TIERS(TIERS)
  ) seed_generator (
      .clk,
      .rst,
      .start(seed_written),
      .seed(reg_value),
      .order,
      .advance,
      .issue(seed_issue),
      .issue_value(seed_value),
      .mixed_valid(stage_seed[MIXED] && advance),
      .mixed,
      .busy(seeds_busy),
      .seeds
  );

  assign enter[0] = issue || seed_issue;
  generate
    for (genvar i = 1; i < STAGES; i++) begin : g_enter
      if (i == MIXED + 1) begin : g_after
        assign enter[i] = stage_valid[i-1] && !stage_seed[MIXED];
      end else begin : g_same
        assign enter[i] = stage_valid[i-1];
      end
    end
  endgenerate

  logic [FRAME_BITS-1:0] frame;
  hash_unit #(
      .HASH(HASH),
      .FRAME_BITS(FRAME_BITS)
  ) hash_unit (
      .clk,
      .enable(enter & {STAGES{advance}}),
      .key(issue ? issue_key : seed_value),
      .range_start,
      .range_frames,
      .mixed,
      .frame
  );

  always_ff @(posedge clk) begin
    if (rst) begin
      stage_valid <= '0;
      stage_seed  <= '0;
    end else if (advance) begin
      stage_valid <= enter;
      stage_seed  <= (MIXED + 1)'({stage_seed, seed_issue});
    end
  end
  always_ff @(posedge clk) begin
    if (advance && enter[0]) begin
      stage_first[0] <= issue_first;
      stage_entry[0] <= issue_entry;
      stage_tier[0+:TB] <= issue_tier;
      stage_offset[0+:OFFSET_BITS] <= issue_offset;
    end
  end
  generate
    for (genvar i = 1; i < STAGES; i++) begin : g_tag
      always_ff @(posedge clk) begin
        if (advance && enter[i]) begin
          stage_first[i] <= stage_first[i-1];
          stage_entry[i] <= stage_entry[i-1];
          stage_tier[i*TB+:TB] <= stage_tier[(i-1)*TB+:TB];
          stage_offset[i*OFFSET_BITS+:OFFSET_BITS] <= stage_offset[(i-1)*OFFSET_BITS+:OFFSET_BITS];
        end
      end
    end
  endgenerate

  localparam int LAST = STAGES - 1;
  logic guess, repeated, delayed;
  assign probe_valid = stage_valid[LAST];
  assign probe_line  = {frame, stage_offset[LAST*OFFSET_BITS+:OFFSET_BITS]};
  assign event_entry = stage_entry[LAST];
  assign event_tier  = stage_tier[LAST*TB+:TB];
  guess_filter #(
      .TIERS(TIERS),
      .FRAME_BITS(FRAME_BITS)
  ) guess_filter (
      .clk,
      .advance,
      .valid(stage_valid[LAST]),
      .first(stage_first[LAST]),
      .entry(stage_entry[LAST]),
      .tier(event_tier),
      .frame,
      .delay(probe_delay),
      .delays,
      .guess,
      .repeated,
      .delayed
  );

  logic queue_full;
  assign advance = !queue_full;
  fifo2 #(
      .WIDTH(LINE_NUMBER_BITS + 1)
  ) queue (
      .clk,
      .rst,
      .push(guess && advance),
      .in({event_entry, probe_line}),
      .full(queue_full),
      .valid(guess_valid),
      .pop(guess_valid && guess_ready),
      .out({guess_entry, guess_line})
  );

  assign reg_ready = sequencer_idle && stage_valid == '0 && !seeds_busy;
  assign reg_write = reg_valid && reg_ready;

  logic taken;
  assign taken = req_valid && req_ready;
  assign event_data_withheld = {TIERS{taken}} & data_withheld;
  assign event_table_withheld = {TIERS{taken && !req_merges}} & table_withheld;
  assign event_guess = guess && advance;
  assign event_repeated = repeated && advance;
  assign event_delayed = delayed && advance;

`ifdef FORMAL
  logic started = 1'b0;
  always_ff @(posedge clk) started <= 1'b1;
  always_comb if (!started) assume (rst);

  // Each candidate that was named is on its way or has been judged once, and each guess that has passed is
  // in the queue or was taken once. Modulo 2^8.
  logic [7:0] on_way, queued, stages;
  always_comb begin
    stages = '0;
    for (int i = 0; i < STAGES; i++)
      stages = stages + 8'(stage_valid[i] && !(i <= MIXED && stage_seed[i <= MIXED ? i : 0]));
  end
  always_ff @(posedge clk) begin
    if (rst) begin
      on_way <= '0;
      queued <= '0;
    end else begin
      on_way <= on_way + 8'(issue && advance) - 8'(event_guess || event_repeated || event_delayed);
      queued <= queued + 8'(event_guess) - 8'(guess_valid && guess_ready);
    end
    if (!rst && started) begin
      assert (on_way == stages);
      assert (queued == 8'(guess_valid) + 8'(queue_full));
      // Each judged candidate has one outcome.
      assert (8'(guess) + 8'(repeated) + 8'(delayed) == 8'(stage_valid[LAST]));
      // Values of the seed generator never meet candidates, and leave after the mixing.
      assert (!(issue && seed_issue));
      assert ((stage_seed & ~stage_valid[MIXED:0]) == '0);
      assert (!(seeds_busy && !sequencer_idle));
      // Registers are written only while no candidate is on its way.
      assert (!(reg_write && (stage_valid != '0 || !sequencer_idle)));
      // A request is taken only with all seeds.
      assert (!(taken && seeds_busy));
    end
  end
`endif
endmodule
