// SPDX-License-Identifier: Apache-2.0
// The tagged table, the other tracker: 2^IdxW entries in sets of eight. Two requests a clock, channel
// 0 before channel 1 of the same cycle; nothing waits and nothing is lost. Holds the epoch number and
// carries the items beside the sets.
module np_table
  import np_pkg::*;
#(
  parameter int unsigned IdxW = 17,
  parameter int unsigned CyclesPer100us = 40000,
  localparam int unsigned SetW = IdxW - WaysLog2
) (
  input  logic            clk_i,
  input  logic            rst_ni,
  input  logic            init_we_i,
  input  logic [SetW-1:0] init_set_i,
  input  logic            clear_i,    // requests at X from the next cycle on see zeros
  input  logic            restart_i,  // touched parts are forgotten
  input  logic            by_parts_i,
  input  logic [15:0]     window_i,   // of 5 us; 0: for ever
  input  cnt_t            threshold_i,
  output tag_t            epoch_o,
  // Stage A.
  input  item_t           item_i [Channels],
  input  logic [SetW-1:0] set_i  [Channels],
  // Stage X.
  input  logic            room_i     [Channels],  // for one report, for two
  output logic            report_o   [Channels],
  output key_t            key_o      [Channels],
  output cnt_t            estimate_o [Channels],
  // Stage W.
  output event_t          event_o [Channels]
);
  // The hash is one to one between the low bits of a unit's number and the set, for given high bits.
  localparam int unsigned UnitTagW = KeyW - SetW;

  typedef struct packed {
    logic                          outside_valid;
    touched_t                      outside;
    logic [UnitTagW-1:0]           outside_tag;
    logic [Ways-1:0][UnitTagW-1:0] tags;
    way_t [Ways-1:0]               ways;
  } word_t;

  tag_t    epoch_q;
  window_t window_q;
  logic    fire;
  item_t   m_item_q [Channels];
  item_t   b_item_q [Channels];
  item_t   x_item_q [Channels];
  logic    a_valid  [Channels];
  logic    x_valid  [Channels];

  logic [$bits(word_t)-1:0] word [Channels];
  word_t before0, before1, after0, after1;
  logic  same;
  logic  report0, report1;
  event_t event0, event1;
  logic  counted0, counted1, saturated0, saturated1;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) epoch_q <= tag_t'(1);  // 0 is what initialised memory holds
    else if (clear_i) epoch_q <= epoch_q + tag_t'(1);
  end

  assign epoch_o = epoch_q;

  np_timer #(
    .CyclesPer100us(CyclesPer100us / 20)
  ) u_window (
    .clk_i,
    .rst_ni,
    .run_i(by_parts_i && window_i != '0),
    .restart_i,
    .ticks_i(TickW'(window_i)),
    .fire_o(fire)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) window_q <= '0;
    else if (fire || restart_i) window_q <= window_q + window_t'(1);
  end

  // ---------------------------------------------------------------- items, A to X
  for (genvar c = 0; c < Channels; c++) begin : gen_item
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        m_item_q[c] <= '{verdict: VerdictNone, default: '0};
        b_item_q[c] <= '{verdict: VerdictNone, default: '0};
        x_item_q[c] <= '{verdict: VerdictNone, default: '0};
      end else begin
        m_item_q[c] <= item_i[c];
        b_item_q[c] <= m_item_q[c];
        x_item_q[c] <= b_item_q[c];
      end
    end
    assign a_valid[c] = item_i[c].verdict == VerdictCount;
    assign x_valid[c] = x_item_q[c].verdict == VerdictCount;
    assign key_o[c] = x_item_q[c].key;
  end

  // ---------------------------------------------------------------- X: channel 0, then channel 1
  np_sets #(
    .SetW(SetW),
    .Width($bits(word_t))
  ) u_sets (
    .clk_i,
    .rst_ni,
    .init_we_i,
    .init_set_i,
    .clear_i,
    .epoch_i(epoch_q),
    .valid_i(a_valid),
    .set_i,
    .word_o(word),
    .same_o(same),
    .word_i('{after0, after1})
  );

  assign before0 = word[0];
  assign before1 = same ? after0 : word[1];

  np_set_update #(
    .UnitTagW(UnitTagW)
  ) u_update0 (
    .valid_i(x_valid[0]),
    .by_parts_i,
    .window_i(window_q),
    .threshold_i,
    .room_i(room_i[0]),
    .tag_i(x_item_q[0].key[KeyW-1:SetW]),
    .part_i(x_item_q[0].part),
    .ways_i(before0.ways),
    .tags_i(before0.tags),
    .outside_valid_i(before0.outside_valid),
    .outside_i(before0.outside),
    .outside_tag_i(before0.outside_tag),
    .ways_o(after0.ways),
    .tags_o(after0.tags),
    .outside_valid_o(after0.outside_valid),
    .outside_o(after0.outside),
    .outside_tag_o(after0.outside_tag),
    .count_o(estimate_o[0]),
    .counted_o(counted0),
    .saturated_o(saturated0),
    .displaced_o(event0.displaced),
    .entered_o(event0.entered),
    .left_o(event0.left),
    .bin_o(event0.bin),
    .report_o(report0),
    .refused_o(event0.refused)
  );
  np_set_update #(
    .UnitTagW(UnitTagW)
  ) u_update1 (
    .valid_i(x_valid[1]),
    .by_parts_i,
    .window_i(window_q),
    .threshold_i,
    .room_i(report0 ? room_i[1] : room_i[0]),
    .tag_i(x_item_q[1].key[KeyW-1:SetW]),
    .part_i(x_item_q[1].part),
    .ways_i(before1.ways),
    .tags_i(before1.tags),
    .outside_valid_i(before1.outside_valid),
    .outside_i(before1.outside),
    .outside_tag_i(before1.outside_tag),
    .ways_o(after1.ways),
    .tags_o(after1.tags),
    .outside_valid_o(after1.outside_valid),
    .outside_o(after1.outside),
    .outside_tag_o(after1.outside_tag),
    .count_o(estimate_o[1]),
    .counted_o(counted1),
    .saturated_o(saturated1),
    .displaced_o(event1.displaced),
    .entered_o(event1.entered),
    .left_o(event1.left),
    .bin_o(event1.bin),
    .report_o(report1),
    .refused_o(event1.refused)
  );
  assign report_o = '{report0, report1};

  function automatic verdict_e became(logic valid, logic counted, verdict_e verdict);
    became = (valid && !counted) ? VerdictRun : verdict;
  endfunction

  always_comb begin
    event0.verdict = became(x_valid[0], counted0, x_item_q[0].verdict);
    event0.beat = x_item_q[0].beat;
    event0.write = x_item_q[0].write;
    event0.saturated = 2'(saturated0);
    event0.report = report0;
    event1.verdict = became(x_valid[1], counted1, x_item_q[1].verdict);
    event1.beat = x_item_q[1].beat;
    event1.write = x_item_q[1].write;
    event1.saturated = 2'(saturated1);
    event1.report = report1;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      event_o[0] <= '{verdict: VerdictNone, default: '0};
      event_o[1] <= '{verdict: VerdictNone, default: '0};
    end else begin
      event_o[0] <= event0;
      event_o[1] <= event1;
    end
  end

`ifndef SYNTHESIS
  ReportHasRoom: assert property (@(posedge clk_i) disable iff (!rst_ni)
      (report_o[0] || report_o[1] |-> room_i[0]) and (report_o[0] && report_o[1] |-> room_i[1]))
    else $error("np_table: report without room in the hot list");
  SameKeySameSet: assert property (@(posedge clk_i) disable iff (!rst_ni)
      x_valid[0] && x_valid[1] && key_o[0] == key_o[1] |-> same)
    else $error("np_table: one unit, two sets");
  for (genvar a = 0; a < Ways; a++) begin : gen_way
    for (genvar b = a + 1; b < Ways; b++) begin : gen_other
      OneEntryAUnit: assert property (@(posedge clk_i) disable iff (!rst_ni)
          x_valid[1] |-> after1.ways[a].count == '0 || after1.ways[b].count == '0 ||
          after1.tags[a] != after1.tags[b])
        else $error("np_table: a unit has two entries");
    end
  end
`endif
endmodule
